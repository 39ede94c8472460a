//! Writing data to standard output. Nothing but a command's result goes there.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::error::CliError;

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints text exactly, at once.
pub(crate) fn text(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a line of text.
pub(crate) fn line(text: &str) -> Result<(), CliError> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}
