//! Reading the files that arguments name.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::CliError;

/// A text file.
pub(crate) fn text(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|e| CliError::file(path, &e))
}

/// A JSON file; `expected` is what it must hold, in words.
pub(crate) fn json<T: DeserializeOwned>(path: &Path, expected: &str) -> Result<T, CliError> {
    let text = text(path)?;
    serde_json::from_str(&text)
        .map_err(|e| CliError::Failed(format!("{}: expected {expected}, found {e}", path.display())))
}
