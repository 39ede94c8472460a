//! From what a user writes for MODEL to a file or directory on this machine, downloading it if need be.

mod demo;
mod hub;
pub(crate) mod pip;

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::error::CliError;

/// What MODEL may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelSource {
    /// `demo`: a small model that a Python package carries.
    Demo,
    /// `hf:OWNER/REPO[:QUANT]`.
    Hub(hub::HubModel),
    /// A file or directory of this machine.
    File(PathBuf),
}

impl FromStr for ModelSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("hf:") {
            _ if text == "demo" => Ok(ModelSource::Demo),
            Some(name) => name.parse().map(ModelSource::Hub),
            None if text.is_empty() => {
                Err("empty; give a .gguf file, a directory with config.json, hf:OWNER/REPO[:QUANT], or demo".into())
            }
            None => Ok(ModelSource::File(text.into())),
        }
    }
}

impl ModelSource {
    /// Reads it from the command line, where paths need not be Unicode.
    pub(crate) fn parser() -> impl TypedValueParser<Value = ModelSource> {
        OsStringValueParser::new().try_map(|text| match text.into_string() {
            Ok(text) => text.parse(),
            Err(path) => Ok(ModelSource::File(path.into())),
        })
    }

    /// The model's (first) file, or its directory.
    pub(crate) fn locate(&self) -> Result<PathBuf, CliError> {
        match self {
            ModelSource::Demo => demo::locate(),
            ModelSource::Hub(model) => model.locate(),
            ModelSource::File(path) => existing(path).map(|()| path.clone()),
        }
    }
}

fn existing(path: &Path) -> Result<(), CliError> {
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(|e| {
        CliError::Failed(format!(
            "{shown}: {e}; MODEL is a .gguf file, a directory with config.json, hf:OWNER/REPO[:QUANT], or demo"
        ))
    })?;
    if found.is_dir() && !path.join("config.json").is_file() {
        return Err(CliError::Failed(format!(
            "{shown}: a directory without config.json; name one of a safetensors checkpoint, or a .gguf file (of a split \
             model, the first)"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        assert_eq!("demo".parse(), Ok(ModelSource::Demo));
        assert_eq!("./demo".parse(), Ok(ModelSource::File("./demo".into())));
        assert_eq!("m.gguf".parse(), Ok(ModelSource::File("m.gguf".into())));
        assert!(matches!("hf:a/b:Q8_0".parse(), Ok(ModelSource::Hub(_))));
        assert!("hf:a".parse::<ModelSource>().is_err());
        assert!("".parse::<ModelSource>().is_err());
    }

    #[test]
    fn a_missing_file_and_a_directory_of_something_else_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = ModelSource::File(folder.path().join("none.gguf")).locate().unwrap_err().to_string();
        assert!(missing.contains("none.gguf") && missing.contains("MODEL is"), "{missing}");
        let source = ModelSource::File(folder.path().into());
        let directory = source.locate().unwrap_err().to_string();
        assert!(directory.contains("without config.json"), "{directory}");
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        assert_eq!(source.locate().unwrap(), folder.path());
    }
}
