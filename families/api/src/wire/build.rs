//! The question that a plugin is for, and its answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ABI, MOST_ANSWERED, MOST_ASKED, Malformed, WireError, of_this_version, read};
use crate::{CallSyntax, Checkpoint, Draft, HfCheckpoint, Import, Model};

/// What a plugin is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BuildRequest {
    /// To describe a checkpoint of one of its architectures.
    Model {
        /// The checkpoint.
        checkpoint: Checkpoint,
    },
    /// To bring a Hugging Face checkpoint into its own terms.
    Import {
        /// The checkpoint.
        checkpoint: HfCheckpoint,
    },
    /// To describe a draft that comes in a file of its own.
    Draft {
        /// The draft.
        draft: Checkpoint,
        /// The model that it drafts for, of one of the plugin's architectures.
        target: Checkpoint,
    },
}

/// What a plugin answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BuildAnswer {
    /// To [`BuildRequest::Model`].
    Model(Box<Model>),
    /// To [`BuildRequest::Import`].
    Import(Box<Import>),
    /// To [`BuildRequest::Draft`].
    Draft(Box<Draft>),
    /// To any.
    Error(WireError),
}

impl BuildRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// Another version, or what is no request.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Malformed> {
        read(&content(bytes, MOST_ASKED)?)
    }

    /// As a plugin gets it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn to_vec(&self) -> Result<Vec<u8>, serde_json::Error> {
        to_vec(self)
    }
}

impl BuildAnswer {
    /// Reads an answer. Kinds of call syntax that are not known go to [`crate::ChatFormat::unknown_calls`]. What the graphs
    /// in it say is not checked.
    ///
    /// # Errors
    /// Another version, or what is no answer.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut content = content(bytes, MOST_ANSWERED)?;
        let unknown = content.pointer_mut("/model/chat/calls").map(take_unknown).unwrap_or_default();
        let mut answer = read(&content)?;
        if let BuildAnswer::Model(model) = &mut answer {
            model.chat.unknown_calls = unknown;
        }
        Ok(answer)
    }

    /// As a plugin gives it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn to_vec(&self) -> Result<Vec<u8>, serde_json::Error> {
        to_vec(self)
    }
}

/// Removes the syntaxes of kinds that are not known, and names them.
fn take_unknown(calls: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Value::Array(calls) = calls {
        calls.retain(|call| match kind(call) {
            Some(kind) if !CallSyntax::KINDS.contains(&kind) => {
                unknown.push(kind.into());
                false
            }
            _ => true,
        });
    }
    unknown
}

/// The kind of a syntax: the one key of the object, or a text alone.
fn kind(call: &Value) -> Option<&str> {
    match call {
        Value::Object(keys) if keys.len() == 1 => keys.keys().next().map(String::as_str),
        call => call.as_str(),
    }
}

/// What stands beside the version.
pub(super) fn content(bytes: &[u8], most: usize) -> Result<Value, Malformed> {
    let mut value = of_this_version(bytes, most)?;
    if let Value::Object(keys) = &mut value {
        keys.shift_remove("bantam_plugin");
    }
    Ok(value)
}

#[derive(Serialize)]
struct Message<'c, T> {
    bantam_plugin: u32,
    #[serde(flatten)]
    content: &'c T,
}

pub(super) fn to_vec(content: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Message { bantam_plugin: ABI, content })
}
