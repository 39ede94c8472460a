//! Asking a plugin, in a process that lives for one question.
//!
//! The process is this program again, with a hidden command: [`ask`] starts it and [`answer`] is what it does. It has no
//! environment, no terminal, little memory and little time, and is the head of a process group that is ended with it.
//!
//! Its standard output is one byte, [`ANSWER`] or [`REFUSAL`], and then the plugin's answer or a [`Refusal`] in JSON.

mod child;
mod limits;
mod native;
mod parent;
mod wasm;

use serde::{Deserialize, Serialize};

use crate::PluginError;

pub use child::answer;
pub(crate) use parent::ask;
pub use parent::{Limits, WorkerProgram};

/// What a plugin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What it is. There is no request.
    Describe,
    /// What becomes of a checkpoint, which is the request.
    Build,
    /// How wide the rows are that an op yields, which is the request.
    Infer,
}

impl Question {
    /// The word for it, also on the worker's command line.
    pub fn name(self) -> &'static str {
        match self {
            Question::Describe => "describe",
            Question::Build => "build",
            Question::Infer => "infer",
        }
    }

    /// The question of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Question::Describe, Question::Build, Question::Infer].into_iter().find(|question| question.name() == name)
    }
}

/// An answer of the plugin follows.
const ANSWER: u8 = 0;
/// Why there is none follows.
const REFUSAL: u8 = 1;

/// Longest answer that the worker takes from a plugin, in bytes. Who asks may want less.
const LONGEST_ANSWER: usize = 256 << 20;

/// Why there is no answer, as the worker tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Refusal {
    /// The loader or interpreter refuses it.
    Load(String),
    /// It lacks this function.
    Symbol(String),
    /// It speaks this version.
    Abi(u32),
    /// It returned this instead of 0.
    Code(i32),
    /// What it returned is no answer.
    Answer(String),
}

impl Refusal {
    fn error(self, question: &'static str) -> PluginError {
        match self {
            Refusal::Load(why) => PluginError::Load(why),
            Refusal::Symbol(symbol) => PluginError::Symbol { symbol },
            Refusal::Abi(found) => PluginError::Abi { found, expected: bantam_family_api::wire::ABI },
            Refusal::Code(code) => PluginError::Died { question, how: format!("it returned {code} instead of 0") },
            Refusal::Answer(why) => PluginError::Answer { question, why },
        }
    }
}

/// The functions that every plugin has, as in `plugins/bantam_plugin.h`.
mod symbols {
    pub(super) const ABI: &str = "bantam_plugin_abi";
    pub(super) const DESCRIBE: &str = "bantam_plugin_describe";
    pub(super) const BUILD: &str = "bantam_plugin_build";
    pub(super) const FREE: &str = "bantam_plugin_free";
    /// Plugins with ops only.
    pub(super) const INFER: &str = "bantam_plugin_op_infer";
    /// WebAssembly only: memory for the request.
    pub(super) const ALLOC: &str = "bantam_plugin_alloc";
}
