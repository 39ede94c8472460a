//! `bantam tokenize`: text to token ids.

use std::path::{Path, PathBuf};

use bantam_runtime::load::ModelFiles;
use bantam_text::Specials;
use clap::Args;

use crate::{args::ModelArg, error::CliError, families::FamilyArgs, files, output};

/// Print the token ids of a text as JSON
///
/// Nothing is added in front or behind. A GGUF with nothing but a vocabulary is enough.
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    model: ModelArg,

    #[command(flatten)]
    families: FamilyArgs,

    #[command(flatten)]
    input: InputArgs,

    /// Take spellings of control tokens in the text for the tokens; otherwise they stay text
    #[arg(long)]
    special: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct InputArgs {
    /// The text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<String>,

    /// A file with the text
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// A file with a JSON array of texts; an array of arrays is printed
    #[arg(long, value_name = "FILE")]
    batch: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &TokenizeArgs) -> Result<(), CliError> {
    let path = args.model.model.locate()?;
    let files = ModelFiles::open(&path).map_err(CliError::failed)?;
    let tokenizer = args.families.tokenizer(&files)?;
    let specials = if args.special { Specials::Parse } else { Specials::Plain };
    let encode = |text: &str| tokenizer.encode(text, specials).map_err(|e| failed_in(&path, &e));
    if let Some(batch) = &args.input.batch {
        let texts: Vec<String> = files::json(batch, "a JSON array of strings")?;
        let ids: Vec<Vec<u32>> = texts.iter().map(|text| encode(text)).collect::<Result<_, _>>()?;
        return output::json(&ids);
    }
    let text = match &args.input.file {
        Some(file) => files::text(file)?,
        None => args.input.text.clone().unwrap_or_default(),
    };
    output::json(&encode(&text)?)
}

fn failed_in(path: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError::Failed(format!("{}: {error}", path.display()))
}
