//! The operations. Each is as coarse as one good kernel and means the same on every backend.
//!
//! A row of a value is a flat run of `width` numbers; ops that see heads in it carry the head size as an attribute.

use serde::{Deserialize, Serialize};

use crate::Rows;

/// An operation with its operands (by name) and attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// An input of the step: integers, width 1, one row per token.
    Input {
        /// Which input.
        source: InputSource,
    },
    /// Rows of a table by id.
    Embed(Embed),
    /// `y = x·Wᵀ (+ bias)`.
    Linear(Linear),
    /// Normalisation of each row, or of each run of `group` entries in it.
    Norm(Norm),
    /// Rotary position embedding of each head (arXiv 2104.09864).
    Rope(Rope),
    /// Causal attention over the sequence's own cache; writes the step's K/V into it first.
    Attention(Attention),
    /// `act(x)`, entry by entry.
    Activate {
        /// Operand.
        x: String,
        /// The function.
        act: Act,
    },
    /// `act(gate) ⊙ up`.
    Glu(Glu),
    /// `a + b`.
    Add {
        /// Operand.
        a: String,
        /// Operand of the same shape.
        b: String,
    },
    /// `a ⊙ b`; `b` may have width 1, which then scales the whole row.
    Mul {
        /// Operand.
        a: String,
        /// Operand of the same shape, or of width 1.
        b: String,
    },
    /// `x · factor`.
    Scale {
        /// Operand.
        x: String,
        /// The factor.
        factor: f32,
    },
    /// `cap · tanh(x / cap)`.
    Softcap {
        /// Operand.
        x: String,
        /// The bound, positive.
        cap: f32,
    },
    /// Choice of experts per row. Yields `NAME.ids` (integers) and `NAME.weights`, each of width `used`, best first.
    Route(Route),
    /// Mixture of experts: `Σ_j weights[j] · down_e(act(gate_e x) ⊙ up_e x)` with `e = ids[j]`, summed in rank order.
    Experts(Experts),
    /// The rows of `x` that `to` holds: tokens to logit rows.
    Select {
        /// Operand over tokens.
        x: String,
        /// The row space to go to.
        to: Rows,
    },
}

/// What an [`Op::Input`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputSource {
    /// The token's id.
    TokenIds,
    /// The token's rotary position: its index in the sequence, for text.
    Positions,
}

/// See [`Op::Embed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embed {
    /// Integer value, width 1.
    pub ids: String,
    /// Weight `[vocab, width]`. May also be the matrix of a [`Linear`] (tied output).
    pub table: String,
    /// Factor on the row.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f32,
}

/// See [`Op::Linear`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Operand, width = columns of the weight.
    pub x: String,
    /// Weight `[out, in]`.
    pub weight: String,
    /// Weight `[out]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
}

/// The kind of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// `x / sqrt(mean(x²) + eps)`.
    Rms,
}

/// See [`Op::Norm`]. Computed in f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Norm {
    /// Operand.
    pub x: String,
    /// Factor per entry, `[width]` or `[group]`; none: no factor.
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

/// Which entries of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// Entries `2j` and `2j+1`.
    Interleaved,
    /// Entries `j` and `j + dims/2`.
    Halves,
}

/// A change of the rotary frequencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// All frequencies divided by `factor`.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// YaRN (arXiv 2309.00071): slow pairs divided by `factor`, fast ones kept, cos and sin times `magnitude`.
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

/// See [`Op::Rope`]. Pair `j` turns by `position · base^(-2j/dims)`, scaled, over `factors[j]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Operand, a whole number of heads.
    pub x: String,
    /// Integer value, width 1.
    pub positions: String,
    /// Entries of a head.
    pub head_dim: usize,
    /// Entries that turn, from the start of the head; even, at most `head_dim`.
    pub dims: usize,
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
}

/// See [`Op::Attention`]. Query head `i` reads K/V head `i / (heads / kv_heads)`; scores and softmax in f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Queries, `heads × head_dim`.
    pub q: String,
    /// Keys of the step, to be written to `k_state`.
    pub k: String,
    /// Values of the step, to be written to `v_state`.
    pub v: String,
    /// State that holds the keys.
    pub k_state: String,
    /// State that holds the values.
    pub v_state: String,
    /// Query heads.
    pub heads: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// A query at `p` sees keys `q` with `p - window < q ≤ p`; none: all `q ≤ p`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// `x · sigmoid(x)`.
    Silu,
    /// `x/2 · (1 + tanh(√(2/π)(x + 0.044715 x³)))`.
    GeluTanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
}

/// See [`Op::Glu`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Glu {
    /// Operand of the function.
    pub gate: String,
    /// The other factor.
    pub up: String,
    /// The function.
    pub act: Act,
}

/// How router scores become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scoring {
    /// Softmax over all experts.
    Softmax,
}

/// See [`Op::Route`]. Ties go to the lower expert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Router outputs, one per expert.
    pub scores: String,
    /// Experts chosen per row.
    pub used: usize,
    /// From scores to weights.
    pub scoring: Scoring,
    /// Whether the chosen weights are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f32,
}

/// See [`Op::Experts`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Operand.
    pub x: String,
    /// Integer value: expert ids, best first.
    pub ids: String,
    /// Value of the same width: weights.
    pub weights: String,
    /// Weight `[experts, ffn, width]`.
    pub gate: String,
    /// Weight `[experts, ffn, width]`.
    pub up: String,
    /// Weight `[experts, width, ffn]`.
    pub down: String,
    /// The function on the gate.
    pub act: Act,
}

impl Op {
    /// Suffixes of the values an op yields: empty for the usual one value under the node's own name.
    pub fn results(&self) -> &'static [&'static str] {
        match self {
            Op::Route(_) => &["ids", "weights"],
            _ => &[],
        }
    }

    /// Names of the values that the op reads.
    pub fn operands(&self) -> Vec<&str> {
        match self {
            Op::Input { .. } => vec![],
            Op::Embed(o) => vec![&o.ids],
            Op::Linear(o) => vec![&o.x],
            Op::Norm(o) => vec![&o.x],
            Op::Rope(o) => vec![&o.x, &o.positions],
            Op::Attention(o) => vec![&o.q, &o.k, &o.v],
            Op::Glu(o) => vec![&o.gate, &o.up],
            Op::Add { a, b } | Op::Mul { a, b } => vec![a, b],
            Op::Activate { x, .. } | Op::Scale { x, .. } | Op::Softcap { x, .. } | Op::Select { x, .. } => vec![x],
            Op::Route(o) => vec![&o.scores],
            Op::Experts(o) => vec![&o.x, &o.ids, &o.weights],
        }
    }

    /// Names of the weights that the op reads.
    pub fn weights(&self) -> Vec<&str> {
        match self {
            Op::Embed(o) => vec![&o.table],
            Op::Linear(o) => std::iter::once(o.weight.as_str()).chain(o.bias.as_deref()).collect(),
            Op::Norm(o) => o.weight.as_deref().into_iter().collect(),
            Op::Rope(o) => o.factors.as_deref().into_iter().collect(),
            Op::Experts(o) => vec![&o.gate, &o.up, &o.down],
            _ => vec![],
        }
    }

    /// Names of the states that the op reads or writes.
    pub fn states(&self) -> Vec<&str> {
        match self {
            Op::Attention(o) => vec![&o.k_state, &o.v_state],
            _ => vec![],
        }
    }

    /// Whether the op writes state, so that it must run for every token even if no logits are wanted.
    pub fn writes_state(&self) -> bool {
        !self.states().is_empty()
    }
}

fn one() -> f32 {
    1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_one(x: &f32) -> bool {
    *x == 1.0
}
