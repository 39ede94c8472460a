//! Operations. Each is semantic and as coarse as one good kernel; how it is computed is the backend's business.
//!
//! Operands name values of earlier nodes; attributes named after a weight or state name that. Shapes are given per row: a
//! value is `[rows, width]`, a row is `width` numbers; ops that see heads in it carry their number or size as an attribute.
//!
//! Operands of an op have the same rows unless it says otherwise.

mod attention;
mod custom;
mod dense;
mod input;
mod moe;
mod names;
mod recurrent;
mod streams;

pub use attention::{Attention, BlockSelection, CompressedKeys, Mask, Pool, TopKeys};
pub use custom::{Custom, MAX_CUSTOM_OPERANDS};
pub use dense::{Act, Affine, Concat, Glu, GluLimit, Linear, Norm, NormKind, Pairing, Rope, RopeScaling, Slice};
pub use input::{Embed, HashHead, InputSource, Lookup, NO_ID, NgramHash};
pub use moe::{ExpertGroups, ExpertScales, Experts, Route, Scoring};
pub use recurrent::{DeltaRule, ShortConv, Ssm};
pub use streams::{StreamCollapse, StreamGates, StreamUpdate};

use serde::{Deserialize, Serialize};

use crate::Rows;

/// An operation with its operands (by name) and attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// An input of the step: one row per token; integers of width 1, unless the source says otherwise.
    Input {
        /// Which input.
        source: InputSource,
    },
    /// Rows of a table by id.
    Embed(Embed),
    /// Rows of a table of integers by id.
    Lookup(Lookup),
    /// Rows of hashed n-gram tables that the last tokens address: integers, one per head.
    NgramHash(NgramHash),
    /// `y = x·Wᵀ (+ bias)`.
    Linear(Linear),
    /// Normalisation of each row, or of each run of `group` entries in it.
    Norm(Norm),
    /// Rotary position embedding of each head (arXiv 2104.09864).
    Rope(Rope),
    /// Attention over the sequence's own cache; writes the step's K/V into it first.
    Attention(Attention),
    /// The rows of a strided state that a query scores highest.
    TopKeys(TopKeys),
    /// One row for each block of tokens that the step closes. Yields rows of that stride.
    Pool(Pool),
    /// Writes rows into a state of rows: tokens into a per-token or window state, rows of a stride into a state of that
    /// stride. Ops that stand behind it read them. Yields no value.
    Store {
        /// Operand, as wide as the state.
        x: String,
        /// State to be written.
        state: String,
    },
    /// Causal depthwise convolution over the last few tokens.
    ShortConv(ShortConv),
    /// Gated delta rule: linear attention whose state forgets and is corrected.
    DeltaRule(DeltaRule),
    /// Selective state-space scan.
    Ssm(Ssm),
    /// `act(x)`, entry by entry.
    Activate {
        /// Operand.
        x: String,
        /// The function.
        act: Act,
    },
    /// `act(gate) ⊙ up` (arXiv 2002.05202).
    Glu(Glu),
    /// `a + b`.
    Add {
        /// Operand.
        a: String,
        /// Operand of the same shape.
        b: String,
    },
    /// `a ⊙ b`; `b` may be narrower: each of its entries then scales a run of `width(a)/width(b)` neighbours (a head), at
    /// width 1 the whole row.
    Mul {
        /// Operand.
        a: String,
        /// Operand of the same width, or of one that divides it.
        b: String,
    },
    /// `a_g · b_g` for each of `groups` equal runs `g` of a row. Yields `groups` entries.
    Dot {
        /// Operand.
        a: String,
        /// Operand of the same shape.
        b: String,
        /// Runs.
        groups: usize,
    },
    /// `x · factor + offset`.
    Scale {
        /// Operand.
        x: String,
        /// The factor.
        factor: f32,
        /// The summand.
        #[serde(default, skip_serializing_if = "is_nought")]
        offset: f32,
    },
    /// `x ⊙ scale + bias` by weights.
    Affine(Affine),
    /// `cap · tanh(x / cap)`.
    Softcap {
        /// Operand.
        x: String,
        /// The bound, positive.
        cap: f32,
    },
    /// A part of each row, or of each of its heads.
    Slice(Slice),
    /// Rows side by side, or their heads.
    Concat(Concat),
    /// Choice of experts per row. Yields `NAME.ids` (integers) and `NAME.weights`, each of width `used`, best first.
    Route(Route),
    /// Mixture of experts: a weighted sum over the chosen ones.
    Experts(Experts),
    /// How a block reads and rewrites the residual streams. Yields `NAME.pre` and `NAME.post`, an entry per stream, and
    /// `NAME.mix`, one per pair of streams.
    StreamGates(StreamGates),
    /// Residual streams to one row.
    StreamCollapse(StreamCollapse),
    /// A block's result into the residual streams.
    StreamUpdate(StreamUpdate),
    /// An op that this language does not have, row by row. Yields f32 rows.
    Custom(Custom),
    /// The rows of `x` that `to` holds: tokens to logit rows.
    Select {
        /// Operand over tokens.
        x: String,
        /// The row space to go to.
        to: Rows,
    },
}

fn one() -> f32 {
    1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_one(x: &f32) -> bool {
    *x == 1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_nought(x: &f32) -> bool {
    *x == 0.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}
