//! The graph: a model as data.
//!
//! A model family does not compute; it describes. [`Graph`] is that description: [`Node`]s of coarse [`Op`]s over named
//! values, [`Weight`]s as expressions over checkpoint tensors, and declared per-sequence [`State`]. Backends compile it,
//! the caches read its state declarations, plugins send it as JSON ([`json`]).
//!
//! Everything is referred to by name: values, weights, states. Names carry the layer (`attn_norm.3`), so that any
//! intermediate can be dumped and compared with a reference. [`check()`] resolves all names and shapes, and refuses what does
//! not fit, before a backend sees the graph. A model of several graphs (a trunk and what drafts for it) is held together by
//! taps, hidden inputs and aliases, which [`link()`] checks.
//!
//! Invariant: this crate knows no number format, no file format and no device.

mod builder;
mod check;
pub mod json;
mod link;
mod op;
mod state;
mod weight;

pub use builder::GraphBuilder;
pub use check::{Checked, GraphError, ValueType, check};
pub use link::{Extension, link};
pub use op::{
    Act, Affine, Attention, BlockSelection, CompressedKeys, Concat, Custom, DeltaRule, Embed, ExpertGroups,
    ExpertScales, Experts, Glu, GluLimit, HashHead, InputSource, Linear, Lookup, MAX_CUSTOM_OPERANDS, Mask, NO_ID,
    NgramHash, Norm, NormKind, Op, Pairing, Pool, Rope, RopeScaling, Route, Scoring, ShortConv, Slice, Ssm,
    StreamCollapse, StreamGates, StreamUpdate, TopKeys,
};
pub use state::{Alias, Recurrent, State, StateKind, StateType};
pub use weight::{Weight, WeightExpr};

use std::fmt;

use serde::{Deserialize, Serialize};

/// The row space of a value: what one row of it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Rows {
    /// One row per token of the step, ragged over all its sequences.
    Tokens,
    /// One row per token whose logits are wanted.
    Logits,
    /// One row per block of `stride` tokens that the step closes, ragged over its sequences: `w` with
    /// `⌊start/stride⌋ ≤ w < ⌊(start + rows)/stride⌋`. Often none.
    Strided {
        /// Tokens of a block, counted from the sequence's first.
        stride: usize,
    },
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rows::Tokens => f.write_str("tokens"),
            Rows::Logits => f.write_str("logits"),
            Rows::Strided { stride } => write!(f, "blocks of {stride} tokens"),
        }
    }
}

/// One operation and the name of what it yields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique name of the value (`ffn_norm.2`). An op with several results yields `NAME.SUFFIX` for each ([`Op::results`]).
    pub name: String,
    /// What is computed.
    pub op: Op,
}

/// A model, or one part of it, as data. Nodes stand in an order in which they can be computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// Name for people: usually the architecture. Unique among a model's graphs.
    pub name: String,
    /// The weights that nodes name.
    pub weights: Vec<Weight>,
    /// The per-sequence state of rows that nodes name.
    pub states: Vec<State>,
    /// The per-sequence recurrent state that nodes name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recurrent: Vec<Recurrent>,
    /// The computation, in order.
    pub nodes: Vec<Node>,
    /// The value that is the result: for a text model the logits, `[logit rows, vocab]`.
    pub output: String,
    /// Further values over tokens that the caller can ask for with a step, to feed them to a graph with hidden inputs: tap
    /// `i` goes to [`InputSource::Hidden`] of index `i`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taps: Vec<String>,
}

impl Graph {
    /// The weight of this name.
    pub fn weight(&self, name: &str) -> Option<&Weight> {
        self.weights.iter().find(|w| w.name == name)
    }

    /// The state of rows of this name.
    pub fn state(&self, name: &str) -> Option<&State> {
        self.states.iter().find(|s| s.name == name)
    }

    /// How many tokens before a sequence's rows the step must name, for [`InputSource::PreviousTokens`].
    pub fn history(&self) -> usize {
        let back = |node: &Node| match node.op {
            Op::Input { source: InputSource::PreviousTokens { back, .. } } => back,
            _ => 0,
        };
        self.nodes.iter().map(back).max().unwrap_or(0)
    }

    /// Widths of the hidden inputs, by index.
    pub fn hidden(&self) -> Vec<usize> {
        let mut inputs: Vec<(usize, usize)> = self
            .nodes
            .iter()
            .filter_map(|node| match node.op {
                Op::Input { source: InputSource::Hidden { index, width } } => Some((index, width)),
                _ => None,
            })
            .collect();
        inputs.sort_unstable();
        inputs.into_iter().map(|(_, width)| width).collect()
    }
}
