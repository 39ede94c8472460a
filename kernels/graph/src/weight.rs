//! Weights as expressions over checkpoint tensors.
//!
//! A family names the weight it wants, its shape, and how it comes out of the checkpoint. The loader evaluates that, so
//! the same family reads fused and split layouts. Shapes are row-major here (slowest axis first), so a matrix is
//! `[out, in]`.

use serde::{Deserialize, Serialize};

/// A weight: its name in the graph, its shape, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// Unique name; by habit the tensor's own.
    pub name: String,
    /// Row-major shape: `[n]`, `[out, in]` or `[experts, out, in]` (`[groups, out, in]`).
    pub shape: Vec<usize>,
    /// Its value.
    pub expr: WeightExpr,
}

/// A value computed from checkpoint tensors when the model is loaded.
///
/// What moves whole rows of the last axis keeps a quantized tensor's bytes: slices and concatenations along the other axes,
/// stacks, reshapes and permutations that leave the last axis as it is. All else decodes to f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WeightExpr {
    /// A tensor of the checkpoint.
    Tensor(String),
    /// `len` entries from `start` along `axis`.
    Slice {
        /// Operand.
        of: Box<WeightExpr>,
        /// Axis, 0 is the slowest.
        axis: usize,
        /// First index.
        start: usize,
        /// Number of indexes.
        len: usize,
    },
    /// The same numbers in another shape.
    Reshape {
        /// Operand.
        of: Box<WeightExpr>,
        /// The new shape.
        shape: Vec<usize>,
    },
    /// Axes in another order: axis `i` of the result is axis `axes[i]` of the operand.
    Permute {
        /// Operand.
        of: Box<WeightExpr>,
        /// Where each axis comes from.
        axes: Vec<usize>,
    },
    /// Operands one after another along an existing axis.
    Concat {
        /// Operands, equal in the other axes.
        of: Vec<WeightExpr>,
        /// The axis.
        axis: usize,
    },
    /// Operands of one shape along a new first axis.
    Stack(Vec<WeightExpr>),
    /// `scale · x + offset`.
    Affine {
        /// Operand.
        of: Box<WeightExpr>,
        /// Factor.
        scale: f32,
        /// Summand.
        offset: f32,
    },
    /// `e^x`.
    Exp(Box<WeightExpr>),
}

impl WeightExpr {
    /// Names of the tensors that the expression reads.
    pub fn tensors(&self) -> Vec<&str> {
        match self {
            WeightExpr::Tensor(name) => vec![name],
            WeightExpr::Slice { of, .. }
            | WeightExpr::Reshape { of, .. }
            | WeightExpr::Permute { of, .. }
            | WeightExpr::Affine { of, .. }
            | WeightExpr::Exp(of) => of.tensors(),
            WeightExpr::Concat { of, .. } | WeightExpr::Stack(of) => of.iter().flat_map(WeightExpr::tensors).collect(),
        }
    }
}
