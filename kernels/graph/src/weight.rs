//! Weights as expressions over checkpoint tensors.
//!
//! A family names the weight it wants, its shape, and how it comes out of the checkpoint. The loader evaluates that, so
//! the same family reads fused and split layouts. Shapes are row-major here (slowest axis first), so a matrix is
//! `[out, in]`.

use serde::{Deserialize, Serialize};

/// A weight: its name in the graph, its shape, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Shape of the value, given those of the tensors.
    ///
    /// # Errors
    /// What does not fit: a missing tensor, an axis that is not there, parts of different shapes.
    pub fn shape(&self, tensor: &dyn Fn(&str) -> Option<Vec<usize>>) -> Result<Vec<usize>, String> {
        match self {
            WeightExpr::Tensor(name) => tensor(name).ok_or_else(|| format!("no tensor `{name}`")),
            WeightExpr::Slice { of, axis, start, len } => {
                let mut shape = of.shape(tensor)?;
                let fits = |extent: &&mut usize| start.checked_add(*len).is_some_and(|end| end <= **extent);
                match shape.get_mut(*axis).filter(fits) {
                    Some(extent) => *extent = *len,
                    None => return Err(format!("no {len} entries from {start} along axis {axis} of {shape:?}")),
                }
                Ok(shape)
            }
            WeightExpr::Reshape { of, shape } => {
                let from = of.shape(tensor)?;
                let entries = |shape: &[usize]| shape.iter().try_fold(1_usize, |n, extent| n.checked_mul(*extent));
                match entries(&from).is_some_and(|n| Some(n) == entries(shape)) {
                    true => Ok(shape.clone()),
                    false => Err(format!("{from:?}, which cannot become {shape:?}")),
                }
            }
            WeightExpr::Permute { of, axes } => {
                let from = of.shape(tensor)?;
                let shape: Option<Vec<usize>> = axes.iter().map(|axis| from.get(*axis).copied()).collect();
                shape.filter(|shape| shape.len() == from.len()).ok_or_else(|| format!("no axes {axes:?} in {from:?}"))
            }
            WeightExpr::Concat { of, axis } => joined(&shapes(of, tensor)?, *axis),
            WeightExpr::Stack(of) => {
                let shapes = shapes(of, tensor)?;
                match shapes.first().filter(|first| shapes.iter().all(|shape| shape == *first)) {
                    Some(first) => Ok([&[shapes.len()], first.as_slice()].concat()),
                    None => Err(format!("parts of shapes {shapes:?}")),
                }
            }
            WeightExpr::Affine { of, .. } | WeightExpr::Exp(of) => of.shape(tensor),
        }
    }

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

fn shapes(of: &[WeightExpr], tensor: &dyn Fn(&str) -> Option<Vec<usize>>) -> Result<Vec<Vec<usize>>, String> {
    of.iter().map(|part| part.shape(tensor)).collect()
}

/// Shape of operands put together along an axis, in which alone they may differ.
fn joined(shapes: &[Vec<usize>], axis: usize) -> Result<Vec<usize>, String> {
    let first = shapes.first().filter(|first| axis < first.len());
    let alike =
        |a: &[usize], b: &[usize]| a.len() == b.len() && (0..a.len()).all(|i| i == axis || a.get(i) == b.get(i));
    let Some(first) = first.filter(|first| shapes.iter().all(|shape| alike(shape, first))) else {
        return Err(format!("parts of shapes {shapes:?} along axis {axis}"));
    };
    let mut shape = first.clone();
    if let Some(extent) = shape.get_mut(axis) {
        *extent = shapes.iter().filter_map(|shape| shape.get(axis)).fold(0, |sum, n| sum.saturating_add(*n));
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(expr: &WeightExpr) -> Result<Vec<usize>, String> {
        expr.shape(&|name| match name {
            "a" => Some(vec![4, 6]),
            "b" => Some(vec![2, 6]),
            _ => None,
        })
    }

    fn tensor(name: &str) -> Box<WeightExpr> {
        Box::new(WeightExpr::Tensor(name.into()))
    }

    #[test]
    fn shapes_follow_from_those_of_the_tensors() {
        let slice = WeightExpr::Slice { of: tensor("a"), axis: 0, start: 2, len: 2 };
        assert_eq!(shape(&slice), Ok(vec![2, 6]));
        let reshape = WeightExpr::Reshape { of: tensor("a"), shape: vec![2, 2, 6] };
        assert_eq!(shape(&WeightExpr::Permute { of: Box::new(reshape), axes: vec![2, 0, 1] }), Ok(vec![6, 2, 2]));
        let parts = vec![*tensor("a"), *tensor("b")];
        assert_eq!(shape(&WeightExpr::Concat { of: parts, axis: 0 }), Ok(vec![6, 6]));
        assert_eq!(shape(&WeightExpr::Stack(vec![*tensor("b"), slice.clone()])), Ok(vec![2, 2, 6]));
        let affine = WeightExpr::Affine { of: Box::new(WeightExpr::Exp(tensor("b"))), scale: -1.0, offset: 0.0 };
        assert_eq!(shape(&affine), Ok(vec![2, 6]));
    }

    #[test]
    fn what_has_no_shape_is_refused() {
        let ab = || vec![*tensor("a"), *tensor("b")];
        for expr in [
            WeightExpr::Tensor("c".into()),
            WeightExpr::Slice { of: tensor("a"), axis: 0, start: 3, len: 2 },
            WeightExpr::Slice { of: tensor("a"), axis: 0, start: usize::MAX, len: 2 },
            WeightExpr::Slice { of: tensor("a"), axis: 2, start: 0, len: 1 },
            WeightExpr::Reshape { of: tensor("a"), shape: vec![5, 5] },
            WeightExpr::Reshape { of: tensor("a"), shape: vec![usize::MAX, 2] },
            WeightExpr::Permute { of: tensor("a"), axes: vec![0] },
            WeightExpr::Permute { of: tensor("a"), axes: vec![0, 2] },
            WeightExpr::Concat { of: ab(), axis: 1 },
            WeightExpr::Concat { of: vec![], axis: 0 },
            WeightExpr::Stack(ab()),
        ] {
            assert!(shape(&expr).is_err(), "{expr:?}");
        }
    }
}
