//! Hyper-connections: several residual streams instead of one (arXiv 2409.19606).
//!
//! A value of `streams · width` entries holds the streams one after another. A block reads one row made of all of them
//! ([`StreamCollapse`]) and its result goes back into all of them ([`StreamUpdate`]).

use serde::{Deserialize, Serialize};

/// See [`super::Op::StreamGates`] (arXiv 2512.24880). In f32, `S` streams:
///
/// - `pre_s  = sigmoid(x_s · scale_0 + base_s) + eps`,
/// - `post_s = 2 · sigmoid(x_(S+s) · scale_1 + base_(S+s))`,
/// - `mix`, `[S, S]`: `x_(2S..) · scale_2 + base_(2S..)` as rows (source) and columns (destination); softmax over each row,
///   plus `eps`; columns divided by their sums plus `eps`; then `iterations - 1` times rows, then columns, each divided by
///   their sums plus `eps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamGates {
    /// Operand, `(2 + S)·S` entries.
    pub x: String,
    /// Weight `[3]`.
    pub scale: String,
    /// Weight `[(2 + S)·S]`.
    pub base: String,
    /// `S`.
    pub streams: usize,
    /// Normalisations of the columns.
    pub iterations: u32,
    /// Keeps shares and sums from 0.
    pub eps: f32,
}

/// See [`super::Op::StreamCollapse`]: `y = Σ_s w_s · x_s`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamCollapse {
    /// The streams.
    pub x: String,
    /// How many they are.
    pub streams: usize,
    /// A weight per stream, or per entry of each stream; none: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}

/// See [`super::Op::StreamUpdate`]: `x'_d = post_d · y + Σ_s mix[s, d] · x_s`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamUpdate {
    /// The streams; none: zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// What goes into each of them, a row of one stream's width.
    pub y: String,
    /// A weight per stream.
    pub post: String,
    /// Weights of the old streams in the new ones, `[source, destination]`; none: each stream stays itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<String>,
}
