//! Recurrences. Each reads and advances one [`crate::Recurrent`] value of its sequence, token after token.
//!
//! The formulas are the step form; a backend may work in chunks where its numbers allow.

use serde::{Deserialize, Serialize};

use super::{is_one, one};

/// See [`super::Op::ShortConv`].
///
/// `y_t[c] = bias[c] + Σ_j weight[c, j] · x_(t - (taps-1-j)·dilation)[c]`, zeros before the sequence; the last tap meets
/// the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShortConv {
    /// Operand over tokens.
    pub x: String,
    /// Weight `[width, taps]`, at least 2 taps.
    pub weight: String,
    /// Weight `[width]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Tokens between two taps.
    #[serde(default = "next_token", skip_serializing_if = "is_next_token")]
    pub dilation: usize,
    /// Recurrent `[(taps-1)·dilation, width]`: the last rows of `x`, oldest first.
    pub state: String,
}

/// See [`super::Op::DeltaRule`] (arXiv 2412.06464; with a decay per channel arXiv 2510.26692).
///
/// Per value head, with `S [key_dim, value_dim]`, and `q`, `k` of key head `head mod key_heads`:
/// `S ← diag(e^decay)·S; δ = beta·(v - Sᵀk); S ← S + k·δᵀ; o = scale · Sᵀq`. All in f32; every decay is at most 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeltaRule {
    /// Queries, `key_heads × key_dim`.
    pub q: String,
    /// Keys, `key_heads × key_dim`, of length 1.
    pub k: String,
    /// Values, `heads × value_dim`.
    pub v: String,
    /// Logarithm of what is kept of the state: one number per value head, or one per channel of its key.
    pub decay: String,
    /// How far a value is corrected, one number per value head.
    pub beta: String,
    /// Recurrent `[heads, key_dim, value_dim]`.
    pub state: String,
    /// Factor on the result.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f32,
}

/// See [`super::Op::Ssm`] (Mamba-2, arXiv 2405.21060).
///
/// Per head, with `S [dim, size]`, and `B`, `C` of group `head / (heads/groups)`:
/// `S ← e^(dt·a)·S + dt·x·Bᵀ; y = S·C + d·x`. All in f32.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ssm {
    /// Operand, `heads × dim`.
    pub x: String,
    /// `groups × size`: how the operand enters the state.
    pub b: String,
    /// `groups × size`: how the result leaves it.
    pub c: String,
    /// Time step, one per head, above 0.
    pub dt: String,
    /// Weight `[heads]`, below 0.
    pub a: String,
    /// Weight `[heads]`: factor of the operand in the result; none: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d: Option<String>,
    /// Recurrent `[heads, dim, size]`.
    pub state: String,
}

fn next_token() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_next_token(dilation: &usize) -> bool {
    *dilation == 1
}
