//! An op from outside of this language.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most operands, and most weights, of a [`Custom`].
pub const MAX_CUSTOM_OPERANDS: usize = 8;

/// See [`super::Op::Custom`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Custom {
    /// What it is called by whoever brings it.
    pub op: String,
    /// Operands over one row space, 1 to [`MAX_CUSTOM_OPERANDS`].
    pub x: Vec<String>,
    /// Weights of any shape, which the op gets whole and as f32; at most [`MAX_CUSTOM_OPERANDS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<String>,
    /// What the op is told once, in terms of its own.
    #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "crate::json::object")]
    pub attributes: Map<String, Value>,
    /// Entries of a row of the result.
    pub width: usize,
}
