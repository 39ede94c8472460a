//! Ops that bring the step's inputs in, and tables read by integers.

use serde::{Deserialize, Serialize};

use super::{is_one, one};

/// An integer that stands for nothing: [`super::TopKeys`] yields it where fewer rows are visible than it may choose.
pub const NO_ID: u32 = u32::MAX;

/// What an [`super::Op::Input`] reads. Integers are 32 bits wide and unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InputSource {
    /// The token's id.
    TokenIds,
    /// The token's rotary position: its index in the sequence, for text.
    Positions,
    /// The id of the token `back` places before, in this step or an earlier one.
    PreviousTokens {
        /// Places, at least 1.
        back: usize,
        /// What stands for a token before the sequence's first.
        missing: u32,
    },
    /// For each row of a strided state that the step closes: the rotary position of the first token that it stands for.
    StridedPositions {
        /// Tokens that a row stands for.
        stride: usize,
    },
    /// f32 rows that the caller gives, one per token: a row that another graph, or an earlier row of this one, put out as
    /// a tap ([`crate::Graph::taps`]).
    Hidden {
        /// Which of the caller's inputs; those of a graph count from 0.
        index: usize,
        /// Entries of a row.
        width: usize,
    },
}

/// See [`super::Op::Embed`]. A table that no [`super::Linear`] names is only gathered from: it stays mapped and is not repacked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Embed {
    /// Integers; with several in a row, their table rows stand one after another.
    pub ids: String,
    /// Weight `[vocab, width]`. May also be the matrix of a [`super::Linear`] (tied output).
    pub table: String,
    /// Factor on the row.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f32,
}

/// See [`super::Op::Lookup`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// Integers, width 1.
    pub ids: String,
    /// Weight `[vocab, width]` of integers.
    pub table: String,
}

/// See [`super::Op::NgramHash`].
///
/// With `id_s` the token `s` places back, or `boundary` if any of the tokens `1..=s` places back is `boundary`, entry `j`
/// is `offset_j + (id_0·m_0 xor … xor id_(n-1)·m_(n-1)) mod rows_j` with `n = order_j`, in 64-bit unsigned arithmetic.
/// The token's own being `boundary` cuts nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NgramHash {
    /// Integers of width 1: the token, the one before, and so on.
    pub ids: Vec<String>,
    /// The token that n-grams do not reach across; also what stands for a token before the first.
    pub boundary: u32,
    /// `m`: one per place. In JSON, strings of digits.
    #[serde(with = "crate::json::digits::list")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::digits::schema::Uint>"))]
    pub multipliers: Vec<u64>,
    /// One per entry of the result.
    pub heads: Vec<HashHead>,
}

/// One hash of an [`NgramHash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HashHead {
    /// Tokens that are hashed together.
    pub order: usize,
    /// Table rows of this head.
    pub rows: u32,
    /// The first of them.
    pub offset: u32,
}
