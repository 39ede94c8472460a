//! The graph: a model as data.
//!
//! A model family does not compute; it describes. [`Graph`] is that description: [`Node`]s of coarse [`Op`]s over named
//! values, [`Weight`]s as expressions over checkpoint tensors, and declared per-sequence [`State`]. Backends compile it,
//! the caches read its state declarations, plugins send it as JSON ([`json`]).
//!
//! Everything is referred to by name: values, weights, states. Names carry the layer (`attn_norm.3`), so that any
//! intermediate can be dumped and compared with a reference. [`check()`] resolves all names and shapes, and refuses what does
//! not fit, before a backend sees the graph.
//!
//! Invariant: this crate knows no number format, no file format and no device.

mod builder;
mod check;
pub mod json;
mod op;
mod state;
mod weight;

pub use builder::GraphBuilder;
pub use check::{Checked, GraphError, ValueType, check};
pub use op::{
    Act, Attention, Embed, Experts, Glu, InputSource, Linear, Norm, NormKind, Op, Pairing, Rope, RopeScaling, Route,
    Scoring,
};
pub use state::{State, StateKind, StateType};
pub use weight::{Weight, WeightExpr};

use serde::{Deserialize, Serialize};

/// The row space of a value: what one row of it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// One row per token of the step, ragged over all its sequences.
    Tokens,
    /// One row per token whose logits are wanted.
    Logits,
}

/// One operation and the name of what it yields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique name of the value (`ffn_norm.2`). An op with several results yields `NAME.SUFFIX` for each ([`Op::results`]).
    pub name: String,
    /// What is computed.
    pub op: Op,
}

/// A model, or one part of it, as data. Nodes stand in an order in which they can be computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// Name for people: usually the architecture.
    pub name: String,
    /// The weights that nodes name.
    pub weights: Vec<Weight>,
    /// The per-sequence state that nodes name.
    pub states: Vec<State>,
    /// The computation, in order.
    pub nodes: Vec<Node>,
    /// The value that is the result: for a text model the logits, `[logit rows, vocab]`.
    pub output: String,
}

impl Graph {
    /// The weight of this name.
    pub fn weight(&self, name: &str) -> Option<&Weight> {
        self.weights.iter().find(|w| w.name == name)
    }

    /// The state of this name.
    pub fn state(&self, name: &str) -> Option<&State> {
        self.states.iter().find(|s| s.name == name)
    }
}
