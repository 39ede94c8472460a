//! Why a plugin is not used.

use std::{error::Error, time::Duration};

/// Why a plugin is not used, or gave no answer. Whoever shows it names the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(String),
    /// Another user could have put it there.
    #[error("{0}")]
    Untrusted(String),
    /// It is a library for another machine, or none at all.
    #[error("{0}")]
    Format(String),
    /// It lacks a function that every plugin has.
    #[error("it has no function `{symbol}`; expected the four of bantam_plugin.h")]
    Symbol {
        /// The function.
        symbol: String,
    },
    /// It speaks another version of the interface.
    #[error(
        "it speaks version {found} of the plugin interface, expected {expected}: build it against this version's SDK or header"
    )]
    Abi {
        /// Its version.
        found: u32,
        /// This program's.
        expected: u32,
    },
    /// The system's loader, or the interpreter, refuses it.
    #[error("cannot be loaded: {0}")]
    Load(String),
    /// It took longer than it may.
    #[error("it gave no answer to `{question}` within {} s and was stopped", .limit.as_secs_f32())]
    Time {
        /// `describe` or `build`.
        question: &'static str,
        /// The longest time.
        limit: Duration,
    },
    /// It answered with more than it may.
    #[error("its answer to `{question}` is longer than {limit} bytes")]
    Size {
        /// `describe` or `build`.
        question: &'static str,
        /// The longest answer.
        limit: usize,
    },
    /// Its process ended without an answer.
    #[error("it gave no answer to `{question}`: {how}")]
    Died {
        /// `describe` or `build`.
        question: &'static str,
        /// How the process ended.
        how: String,
    },
    /// Its answer cannot be read, or cannot be.
    #[error("its answer to `{question}` is refused: {why}")]
    Answer {
        /// `describe` or `build`.
        question: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The process that asks it cannot be started.
    #[error("the process that asks it cannot be started: {0}")]
    Worker(String),
}

/// An error with what is behind it: the system's loader says there what the matter is.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        told = format!("{told}: {behind}");
        source = behind.source();
    }
    told
}
