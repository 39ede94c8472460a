//! `bantam render`: conversations to prompts.

use std::{collections::BTreeMap, path::PathBuf};

use bantam_runtime::load::ModelFiles;
use bantam_text::{ChatTemplate, DateTime, RenderInput, local_now};
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{error::CliError, files, model_source::ModelSource, output};

/// Print the prompt that a chat template makes of a conversation
///
/// Prepared as Hugging Face's transformers prepares it; nothing is added. With a JSON array of cases, a JSON array of
/// {"text":…} or {"error":…} is printed.
#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// Take the template and the special tokens from this model
    #[arg(value_name = "MODEL", required_unless_present = "template")]
    model: Option<ModelSource>,

    /// A file with the template to use
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,

    /// A JSON file: an object with messages, tools, kwargs (further variables) and special_tokens, or an array of such
    #[arg(long, value_name = "FILE")]
    case: PathBuf,

    /// The time that templates are told instead of the clock's
    #[arg(long, value_name = "YYYY-MM-DDTHH:MM:SS")]
    now: Option<DateTime>,
}

/// A conversation. Other fields than these are notes of whoever wrote it.
#[derive(Debug, Deserialize)]
struct Case {
    messages: Vec<Value>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    kwargs: Map<String, Value>,
    #[serde(default)]
    special_tokens: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Cases {
    Many(Vec<Case>),
    One(Case),
}

/// What all cases are rendered with.
struct Renderer {
    template: ChatTemplate,
    special_tokens: BTreeMap<String, String>,
    now: DateTime,
}

impl Renderer {
    fn new(args: &RenderArgs) -> Result<Self, CliError> {
        let model = args.model.as_ref().map(open).transpose()?;
        let template = match (&args.template, &model) {
            (Some(path), _) => ChatTemplate::new(&files::text(path)?, &[])
                .map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))?,
            (None, Some(files)) => template_of(files)?,
            (None, None) => return Err(CliError::Usage("give a MODEL or --template FILE".into())),
        };
        let tokenizer = model.map(|files| files.tokenizer()).transpose().map_err(CliError::failed)?;
        let special_tokens = tokenizer.map(|tokenizer| tokenizer.special_tokens()).unwrap_or_default();
        Ok(Renderer { template, special_tokens, now: args.now.unwrap_or_else(local_now) })
    }

    fn render(&self, case: Case) -> Result<String, CliError> {
        let input = RenderInput {
            messages: case.messages,
            tools: case.tools,
            kwargs: case.kwargs,
            special_tokens: case.special_tokens.unwrap_or_else(|| self.special_tokens.clone()),
            parse_arguments: false,
        };
        self.template.render(&input, self.now).map_err(CliError::failed)
    }
}

fn open(model: &ModelSource) -> Result<ModelFiles, CliError> {
    ModelFiles::open(&model.locate()?).map_err(CliError::failed)
}

fn template_of(files: &ModelFiles) -> Result<ChatTemplate, CliError> {
    let template = files.template().map_err(CliError::failed)?;
    template.ok_or_else(|| {
        let key = match files {
            ModelFiles::Gguf(_) => "key tokenizer.chat_template",
            ModelFiles::Directory(_) => "chat_template.jinja, or chat_template in tokenizer_config.json",
        };
        let shown = files.path().display();
        CliError::Failed(format!("{shown}: no chat template ({key}); give one with --template"))
    })
}

/// Runs the command.
pub(crate) fn run(args: &RenderArgs) -> Result<(), CliError> {
    let renderer = Renderer::new(args)?;
    match files::json(&args.case, "an object with messages, or an array of such objects")? {
        Cases::One(case) => output::text(&renderer.render(case)?),
        Cases::Many(cases) => {
            let outcome = |case| match renderer.render(case) {
                Ok(text) => json!({ "text": text }),
                Err(error) => json!({ "error": error.to_string() }),
            };
            output::json(&cases.into_iter().map(outcome).collect::<Vec<Value>>())
        }
    }
}
