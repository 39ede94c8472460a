//! Ops that look at one row at a time: linear maps, norms, rotation, the elementwise set, and views of rows.

use serde::{Deserialize, Serialize};

use super::is_zero;

/// See [`super::Op::Linear`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Operand, width = columns of the weight.
    pub x: String,
    /// Weight `[out, in]`; or `[groups, out, in]`: run `g` of `in` entries of the operand (a head) meets matrix `g`, and
    /// yields run `g` of `out` entries.
    pub weight: String,
    /// Runs of `in` entries of the operand (residual streams) that all meet the one matrix.
    #[serde(default = "one_group", skip_serializing_if = "is_one_group")]
    pub runs: usize,
    /// Weight `[out]`, or `[groups·out]`; the same for all runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
}

/// The kind of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// `x / sqrt(mean(x²) + eps)` (arXiv 1910.07467).
    Rms,
    /// `x / sqrt(sum(x²) + eps)`.
    L2,
}

/// See [`super::Op::Norm`]. Computed in f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Norm {
    /// Operand.
    pub x: String,
    /// Factor per entry, `[width]`, or `[group]` where all groups share it; none: no factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// The formula.
    pub kind: NormKind,
    /// Added under the root.
    pub eps: f32,
    /// Entries that are normalised together (a head); none: the whole row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
}

/// Which entries of a head turn together, counted from the first that turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// Entries `2j` and `2j+1`.
    Interleaved,
    /// Entries `j` and `j + dims/2`.
    Halves,
    /// Entries `j` and `j + head_dim/2`, whatever `dims` is; what lies between them is left as it is.
    HeadHalves,
}

/// A change of the rotary frequencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// All frequencies divided by `factor`.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// YaRN (arXiv 2309.00071): slow pairs divided by `factor`, fast ones kept, cos and sin times `magnitude`.
    ///
    /// With `c(b) = dims·ln(original_context / (2π·b)) / (2·ln base)`, `lo = max(⌊c(beta_fast)⌋, 0)` and
    /// `hi = min(⌈c(beta_slow)⌉, dims - 1)`, pair `j` has the share `m = clamp((j - lo) / max(hi - lo, 0.001), 0, 1)` of
    /// the divided frequency and `1 - m` of its own.
    Yarn {
        /// The divisor of the slow pairs.
        factor: f32,
        /// Context length of the original training.
        original_context: u32,
        /// Rotations over the original context above which a pair is kept.
        beta_fast: f32,
        /// Rotations below which a pair is fully scaled.
        beta_slow: f32,
        /// Factor on cos and sin.
        magnitude: f32,
    },
}

/// See [`super::Op::Rope`]. Pair `j` turns by `position · base^(-2j/dims)`, scaled, over `factors[j]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Operand, a whole number of heads.
    pub x: String,
    /// Integer value, width 1.
    pub positions: String,
    /// Entries of a head.
    pub head_dim: usize,
    /// Entries that turn; even.
    pub dims: usize,
    /// Entries of the head before them, which do not turn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: usize,
    /// How entries pair up.
    pub pairing: Pairing,
    /// Base of the frequencies.
    pub base: f32,
    /// Scaling of the frequencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RopeScaling>,
    /// Weight `[dims/2]`: a divisor per pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors: Option<String>,
    /// Turns back by the same angle: on what attention read from keys that had been turned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inverse: bool,
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// `x · sigmoid(x)`.
    Silu,
    /// `x/2 · (1 + tanh(√(2/π)(x + 0.044715 x³)))`.
    GeluTanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `ln(1 + e^x)`.
    Softplus,
    /// `max(x, 0)²` (arXiv 2109.08668).
    ReluSquared,
    /// `sign(x) · √max(|x|, 10⁻⁶)`, with `sign(0) = 0`.
    SignedSqrt,
}

/// Bounds on the factors of a gated product.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GluLimit {
    /// `act(min(gate, L)) ⊙ clamp(up, -L, L)`.
    BeforeAct(f32),
    /// `min(act(gate), L) ⊙ clamp(up, -L, L)`.
    AfterAct(f32),
}

/// See [`super::Op::Glu`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Glu {
    /// Operand of the function.
    pub gate: String,
    /// The other factor.
    pub up: String,
    /// The function.
    pub act: Act,
    /// Bounds on both factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<GluLimit>,
}

/// See [`super::Op::Affine`]. A weight of `n` entries spreads: each of them meets a run of `width/n` neighbours (a head).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Affine {
    /// Operand.
    pub x: String,
    /// Weight `[n]`, with `n` a divisor of the width: factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<String>,
    /// Weight `[n]`, with `n` a divisor of the width: summands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
}

/// See [`super::Op::Slice`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Operand.
    pub x: String,
    /// Equal runs (heads) of a row that each are cut.
    #[serde(default = "one_group", skip_serializing_if = "is_one_group")]
    pub groups: usize,
    /// First entry of each run.
    pub start: usize,
    /// Entries of each run.
    pub len: usize,
}

/// See [`super::Op::Concat`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// Operands; one may stand several times.
    pub parts: Vec<String>,
    /// Equal runs (heads) of each operand's row: the first runs of all stand first, then the second ones.
    #[serde(default = "one_group", skip_serializing_if = "is_one_group")]
    pub groups: usize,
}

fn one_group() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_one_group(n: &usize) -> bool {
    *n == 1
}
