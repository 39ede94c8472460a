//! Why a plugin is not used.

use std::{error::Error, time::Duration};

/// Why a plugin is not used, or gave no answer. Whoever shows it names the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(String),
    /// There is no place for the copy of it that is run.
    #[error("no private copy of it can be made: {0}")]
    Place(String),
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

/// Longest text of somebody else's in a message, in characters.
const LONGEST_TOLD: usize = 1000;

/// A text of somebody else's as it may stand in a line of a log: short, and without what cannot be seen.
pub(crate) fn told(text: &str) -> String {
    let escaped = |c: char| if misleads(c) { c.escape_unicode().collect() } else { vec![c] };
    let mut told: String = text.chars().take(LONGEST_TOLD).flat_map(escaped).collect();
    if text.chars().nth(LONGEST_TOLD).is_some() {
        told.push('…');
    }
    told
}

/// Control characters, and what cannot be seen or turns the direction of what follows.
pub(crate) fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

impl PluginError {
    /// Whether it may be another time, though the file is the same.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, PluginError::Place(_) | PluginError::Worker(_) | PluginError::Read(_))
    }

    /// The same, with texts that the plugin chose as they may be shown.
    pub(crate) fn shown(self) -> Self {
        match self {
            PluginError::Load(why) => PluginError::Load(told(&why)),
            PluginError::Symbol { symbol } => PluginError::Symbol { symbol: told(&symbol) },
            PluginError::Died { question, how } => PluginError::Died { question, how: told(&how) },
            PluginError::Answer { question, why } => PluginError::Answer { question, why: told(&why) },
            other => other,
        }
    }
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
