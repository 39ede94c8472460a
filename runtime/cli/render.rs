//! `bantam render`: conversations to prompts.

use std::{collections::BTreeMap, path::PathBuf};

use bantam_runtime::{load::ModelFiles, words::brief};
use bantam_text::{ChatTemplate, DateTime, RenderInput, local_now};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::{error::CliError, families::FamilyArgs, files, model_source::ModelSource, output};

/// Print the prompt that a chat template makes of a conversation
///
/// Prepared as Hugging Face's transformers prepares it; nothing is added. With a JSON array of cases, a JSON array of
/// {"text":…} or {"error":…} is printed.
#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// Take the template and the special tokens from this model
    #[arg(value_name = "MODEL", required_unless_present = "template", value_parser = ModelSource::parser())]
    model: Option<ModelSource>,

    #[command(flatten)]
    families: FamilyArgs,

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
#[derive(Debug)]
struct Case {
    messages: Vec<Value>,
    tools: Option<Value>,
    kwargs: Map<String, Value>,
    special_tokens: Option<BTreeMap<String, String>>,
}

impl Case {
    /// Reads a case; `at` is where it stands: nothing, or `[3].`.
    fn read(case: &Value, at: &str) -> Result<Self, String> {
        let Value::Object(fields) = case else {
            let whole = at.trim_end_matches('.');
            return Err(expected(if whole.is_empty() { "the case" } else { whole }, "an object with messages", case));
        };
        let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let of = |name: &str| format!("{at}{name}");
        let messages = match fields.get("messages") {
            Some(Value::Array(messages)) => match messages.iter().position(|message| !message.is_object()) {
                Some(index) => return Err(expected(&of(&format!("messages[{index}]")), "an object", &messages[index])),
                None => messages.clone(),
            },
            found => return Err(expected(&of("messages"), "an array", found.unwrap_or(&Value::Null))),
        };
        let tools = match field("tools") {
            None | Some(Value::Array(_)) => field("tools").cloned(),
            Some(other) => return Err(expected(&of("tools"), "an array or null", other)),
        };
        let kwargs = match field("kwargs") {
            None => Map::new(),
            Some(Value::Object(kwargs)) => kwargs.clone(),
            Some(other) => return Err(expected(&of("kwargs"), "an object", other)),
        };
        let special_tokens = match field("special_tokens") {
            None => None,
            Some(Value::Object(tokens)) => Some(special_tokens(tokens, &of("special_tokens"))?),
            Some(other) => return Err(expected(&of("special_tokens"), "an object", other)),
        };
        Ok(Case { messages, tools, kwargs, special_tokens })
    }
}

fn special_tokens(tokens: &Map<String, Value>, at: &str) -> Result<BTreeMap<String, String>, String> {
    let token = |(name, token): (&String, &Value)| match token {
        Value::String(text) => Ok((name.clone(), text.clone())),
        other => Err(expected(&format!("{at}.{name}"), "a string", other)),
    };
    tokens.iter().map(token).collect()
}

fn expected(field: &str, what: &str, found: &Value) -> String {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    format!("{field}: expected {what}, found {found}")
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
        let tokenizer = model.map(|files| args.families.tokenizer(&files)).transpose()?;
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
    let cases: Value = files::json(&args.case, "JSON")?;
    let named = |why: String| CliError::Failed(format!("{}: {why}", args.case.display()));
    let Value::Array(cases) = cases else {
        let case = Case::read(&cases, "").map_err(named)?;
        return output::text(&Renderer::new(args)?.render(case)?);
    };
    let renderer = Renderer::new(args)?;
    let rendered = |(index, case)| {
        let case = Case::read(case, &format!("[{index}].")).map_err(CliError::Failed)?;
        renderer.render(case)
    };
    let outcome = |case| match rendered(case) {
        Ok(text) => json!({ "text": text }),
        Err(error) => json!({ "error": brief(&error.to_string()) }),
    };
    output::json(&cases.iter().enumerate().map(outcome).collect::<Vec<Value>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_named_with_what_was_expected_and_found() {
        let problem = |case: Value| Case::read(&case, "[3].").unwrap_err();
        assert_eq!(problem(json!([])), "[3]: expected an object with messages, found an array");
        assert_eq!(problem(json!({"messages": "hi"})), "[3].messages: expected an array, found a string");
        let null = json!({"messages": [{"role": "user"}, null]});
        assert_eq!(problem(null), "[3].messages[1]: expected an object, found nothing");
        assert_eq!(problem(json!({"tools": null})), "[3].messages: expected an array, found nothing");
        assert_eq!(problem(json!({"messages": [], "kwargs": 1})), "[3].kwargs: expected an object, found a number");
        let tokens = json!({"messages": [], "special_tokens": {"bos_token": 1}});
        assert_eq!(problem(tokens), "[3].special_tokens.bos_token: expected a string, found a number");
        assert_eq!(
            Case::read(&json!(1), "").unwrap_err(),
            "the case: expected an object with messages, found a number"
        );
        let notes = json!({"messages": [], "tools": null, "kwargs": null, "text": "what it becomes"});
        assert!(Case::read(&notes, "").is_ok());
    }
}
