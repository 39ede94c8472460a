//! Attention and what prepares its keys: storing rows, compressing blocks of tokens, choosing the best rows.

use serde::{Deserialize, Serialize};

use super::{is_one, one};

/// Which keys of its sequence a query may see, beside the limits that [`Attention::window`] and [`Attention::select`] set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mask {
    /// A query at `p` sees keys `q ≤ p`; the step's own keys are stored first.
    #[default]
    Causal,
    /// Every query sees what the states hold of tokens before the step (the last `window` of them), and all keys of its
    /// sequence in this step, later ones too, which are not stored. So a sequence's rows must come in one step.
    Block,
}

/// See [`super::Op::Attention`].
///
/// Query head `i` reads K/V head `i / (heads / kv_heads)`. Head `h` of the row at `p` yields `Σ_j softmax_j(s_j)·v_j` with
/// `s_j = scale · (q_h · k_j)` over all visible `j` (arXiv 2305.13245), scores and softmax in f32. Keys are read as stored:
/// those of this step no more exactly than older ones.
///
/// A step's keys and values are stored before any query reads. Without `k` nothing is: then the states are another op's
/// that stands before this one, or aliases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Queries, `heads × dim` of the key state.
    pub q: String,
    /// Keys of the step, to be written to `k_state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<String>,
    /// Values of the step, to be written to `v_state`; given if `k` is and there is a `v_state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v: Option<String>,
    /// State that holds the keys: per token or a window.
    pub k_state: String,
    /// State that holds the values; none: the values are the first `value_dim` entries of each key head (arXiv 2405.04434).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v_state: Option<String>,
    /// Without a `v_state`: entries of a value head; none: all of the key head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_dim: Option<usize>,
    /// Query heads.
    pub heads: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Who sees whom.
    #[serde(default, skip_serializing_if = "is_causal")]
    pub mask: Mask,
    /// A query at `p` sees keys `q` with `p - window < q ≤ p`; none: all `q ≤ p`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Weight `[heads]`: the logit of one more key per head, whose value is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sinks: Option<String>,
    /// Only these blocks of the keys are visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<BlockSelection>,
    /// Further keys under the same softmax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressed: Option<CompressedKeys>,
}

/// Sparse attention over chosen blocks (arXiv 2502.11089).
///
/// Of the tokens up to a query at `p`, those in a chosen block are visible, and those behind the last complete block:
/// `⌊(p+1)/block⌋·block ..= p`. Ids stand for blocks `id·block .. (id+1)·block`; [`super::NO_ID`] for none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockSelection {
    /// Integers per query: block ids, from [`TopKeys`] over a state of stride `block`.
    pub ids: String,
    /// Tokens of a block.
    pub block: usize,
}

/// Keys that each stand for several tokens (made by [`Pool`]), and are their own values.
///
/// A query at `p` sees rows `w < ⌊(p+1)/stride⌋`: those of blocks that are complete with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CompressedKeys {
    /// Strided state, with heads as the key state has.
    pub state: String,
    /// Integers per query: the rows that are visible, from [`TopKeys`]; none: all complete ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<String>,
}

/// See [`super::Op::TopKeys`] (the "lightning indexer" of arXiv 2512.02556).
///
/// `score_w = scale · Σ_h weight_h · max(q_h · k_w, 0)`, in f32, over the rows `w < ⌊(p+1)/stride⌋` of the state. The
/// `count` rows of the highest score are chosen, of equal ones the lower. The result lists them in rising order and is filled
/// up with [`super::NO_ID`]. Where no more than `count` rows are visible no score is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TopKeys {
    /// Index queries, `heads × dim` of the state.
    pub q: String,
    /// Weight of each index head, `heads` entries; none: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Strided state of index keys, one head in a row.
    pub k_state: String,
    /// Index heads.
    pub heads: usize,
    /// Factor on the scores.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f32,
    /// Rows chosen for a query, at most.
    pub count: usize,
}

/// See [`super::Op::Pool`]. One row per block of `stride` tokens, as soon as the step closes it.
///
/// Without a gate the row is the mean of the block's rows of `x`. With a gate each channel is a weighted sum of its
/// entries in `x`, by the softmax over the same channel's entries in `gate + bias[t mod stride]`, `t` the token's index in
/// the sequence.
///
/// With `overlap` a row of `x` has twice the channels of the result: in the block of row `w` its second half counts, in
/// that of row `w + 1` its first. Row 0 has only its own block. So `2·stride` entries meet in a softmax.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Operand over tokens.
    pub x: String,
    /// Logits, as wide as `x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// Weight `[stride, width]`, added to the gate by place in the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Window state for the rows of blocks that are not closed yet: f32, a row of `x` and behind it one of the biased gate;
    /// of `stride` tokens, with `overlap` twice as many.
    pub state: String,
    /// Tokens of a block.
    pub stride: usize,
    /// Whether a block also takes in the one before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlap: bool,
}

fn is_causal(mask: &Mask) -> bool {
    *mask == Mask::Causal
}
