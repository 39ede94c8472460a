//! Why a template could not be read or rendered.

use minijinja::{Error, ErrorKind};

/// What went wrong with a chat template. Lines are those of the template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The file's metadata has something else in the template's place.
    #[error(transparent)]
    Metadata(#[from] bantam_gguf::GgufError),
    /// The template is not valid Jinja.
    #[error("the chat template cannot be read: {reason} (template line {line})")]
    Syntax {
        /// The template engine's words.
        reason: String,
        /// Where.
        line: usize,
    },
    /// The template called `raise_exception`: the conversation is not of a form that the model knows.
    #[error("the chat template refused: {reason} (template line {line})")]
    Refused {
        /// The template's own words.
        reason: String,
        /// Where.
        line: usize,
    },
    /// The template met a value that it cannot handle, such as a field that is missing.
    #[error("the chat template failed: {reason} (template line {line})")]
    Failed {
        /// The template engine's words.
        reason: String,
        /// Where.
        line: usize,
    },
    /// A variable that is not the caller's to set.
    #[error("the variable `{name}` is the renderer's own: give it in its own place, not among the further variables")]
    Reserved {
        /// Its name.
        name: &'static str,
    },
    /// The template takes too many steps, or makes too much text or too large values.
    #[error(
        "the chat template takes more steps or memory than allowed (template line {line}); it may loop without end"
    )]
    Exhausted {
        /// Where.
        line: usize,
    },
    /// The template was never come to.
    #[error("the chat template could not be rendered: {0}")]
    Thread(#[from] std::io::Error),
}

/// Marks an error as raised by the template itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// The error of `raise_exception(reason)`.
pub(super) fn raised(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.to_owned()).with_source(Raised(reason.to_owned()))
}

impl TemplateError {
    pub(super) fn syntax(error: &Error) -> Self {
        Self::Syntax { reason: describe(error), line: error.line().unwrap_or_default() }
    }

    pub(super) fn rendering(error: &Error) -> Self {
        let line = error.line().unwrap_or_default();
        match error.kind() {
            ErrorKind::OutOfFuel => Self::Exhausted { line },
            _ => match source_of(error) {
                Some(Raised(reason)) => Self::Refused { reason: reason.clone(), line },
                None => Self::Failed { reason: describe(error), line },
            },
        }
    }
}

fn source_of(error: &Error) -> Option<&Raised> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(raised) = error.downcast_ref() {
            return Some(raised);
        }
        next = error.source();
    }
    None
}

fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}
