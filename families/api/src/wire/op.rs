//! Ops that a plugin brings: what it is told of one, and what it says of it.

use bantam_graph::Custom;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ABI, MOST_ANSWERED, MOST_ASKED, Malformed, WireError, of_this_version, read};

/// An op of a graph, with what it works on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OpRequest {
    /// [`ABI`].
    pub bantam_plugin: u32,
    /// What the plugin calls it.
    pub op: String,
    /// What the graph tells it.
    pub attributes: Map<String, Value>,
    /// Entries of a row of each operand.
    pub operands: Vec<usize>,
    /// Row-major shape of each weight.
    pub weights: Vec<Vec<usize>>,
}

/// What a plugin says of an op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Keys", into = "Keys")]
pub enum OpAnswer {
    /// What the op is.
    Op(OpDescription),
    /// Why there is no such op.
    Error(WireError),
}

/// What an op is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpDescription {
    /// Entries of a row of its result.
    pub width: usize,
    /// Source of a function in CUDA C++ that computes a row on a card, if there is one.
    pub cuda: Option<String>,
}

/// All keys that an answer may have.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    width: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cuda: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<WireError>,
}

impl TryFrom<Keys> for OpAnswer {
    type Error = &'static str;

    fn try_from(keys: Keys) -> Result<Self, &'static str> {
        match keys {
            Keys { width: Some(width), cuda, error: None } => Ok(OpAnswer::Op(OpDescription { width, cuda })),
            Keys { width: None, cuda: None, error: Some(error) } => Ok(OpAnswer::Error(error)),
            _ => Err("expected the key `width`, and `cuda` beside it if there is a kernel, or the key `error` alone"),
        }
    }
}

impl From<OpAnswer> for Keys {
    fn from(answer: OpAnswer) -> Self {
        match answer {
            OpAnswer::Op(OpDescription { width, cuda }) => Keys { width: Some(width), cuda, ..Keys::default() },
            OpAnswer::Error(error) => Keys { error: Some(error), ..Keys::default() },
        }
    }
}

impl OpRequest {
    /// Of a node whose operands and weights are these.
    pub fn new(op: &Custom, operands: &[usize], weights: &[&[usize]]) -> Self {
        OpRequest {
            bantam_plugin: ABI,
            op: op.op.clone(),
            attributes: op.attributes.clone(),
            operands: operands.into(),
            weights: weights.iter().map(|shape| shape.to_vec()).collect(),
        }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// Another version, or what is no request.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Malformed> {
        read(&of_this_version(bytes, MOST_ASKED)?)
    }

    /// As a plugin gets it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn to_vec(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

impl OpAnswer {
    /// Reads an answer.
    ///
    /// # Errors
    /// Another version, or what is no answer.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Malformed> {
        read(&super::build::content(bytes, MOST_ANSWERED)?)
    }

    /// As a plugin gives it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn to_vec(&self) -> Result<Vec<u8>, serde_json::Error> {
        super::build::to_vec(self)
    }
}
