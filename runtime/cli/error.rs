//! What a command ends with when it fails, and how that is shown.

use std::{fmt::Display, io, process::ExitCode};

use bantam_runtime::words::{brief, printable};
use clap::error::ErrorKind;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The command line asks for something that cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// Anything else. The text names the thing and says what to do.
    #[error("{0}")]
    Failed(String),
    /// Standard output cannot be written to.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    /// The user asked twice to stop.
    #[error("stopped at once by a second signal; running requests were cut off")]
    Interrupted,
}

impl CliError {
    /// A failure in the words of another error.
    pub(crate) fn failed(error: impl Display) -> Self {
        CliError::Failed(error.to_string())
    }

    /// A failure to read or write a file.
    pub(crate) fn file(path: &std::path::Path, error: &io::Error) -> Self {
        CliError::Failed(format!("{}: {error}", path.display()))
    }

    fn code(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Failed(_) | CliError::Output(_) | CliError::Interrupted => 1,
        }
    }

    /// Prints the error and gives the exit code. A reader that closed the pipe early (`| head`) is no failure.
    pub(crate) fn report(&self) -> ExitCode {
        if matches!(self, CliError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        eprintln!("error: {}", printable(&brief(&one_line(&self.to_string()))));
        ExitCode::from(self.code())
    }
}

/// Prints what clap has to say. Help and version go to standard output; of an error, hints and usage come first, so
/// that the last line is the error itself.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print();
            return printed.map_or_else(|e| CliError::Output(e).report(), |()| ExitCode::SUCCESS);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprintln!("{}\n", error.render());
            return CliError::Usage("no command given; name one of those above".into()).report();
        }
        _ => {}
    }
    let text = error.render().to_string();
    let (message, hints) = text.split_once("\n\n").unwrap_or((&text, ""));
    if !hints.is_empty() {
        eprintln!("{}\n", hints.trim_end());
    }
    CliError::Usage(message.trim_start_matches("error: ").to_owned()).report()
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_its_text() {
        assert_eq!(one_line("a:\n  b\n\n  c\n"), "a: b c");
    }

    #[test]
    fn wrong_usage_and_failure_have_codes_of_their_own() {
        assert_eq!(CliError::Usage(String::new()).code(), 2);
        assert_eq!(CliError::failed("x").code(), 1);
    }
}
