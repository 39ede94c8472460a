//! Weight expressions, entry by entry.

use std::collections::HashMap;

use bantam_graph::{Graph, WeightExpr};

use super::Tensor;

/// Every weight of the graph by name.
pub(crate) fn evaluate(graph: &Graph, tensor: &dyn Fn(&str) -> Tensor) -> HashMap<String, Tensor> {
    graph
        .weights
        .iter()
        .map(|weight| {
            let value = expression(&weight.expr, tensor);
            assert_eq!(value.shape, weight.shape, "weight `{}`", weight.name);
            (weight.name.clone(), value)
        })
        .collect()
}

/// The value of an expression.
pub(crate) fn expression(expr: &WeightExpr, tensor: &dyn Fn(&str) -> Tensor) -> Tensor {
    match expr {
        WeightExpr::Tensor(name) => tensor(name),
        WeightExpr::Slice { of, axis, start, len } => {
            let of = expression(of, tensor);
            let mut shape = of.shape.clone();
            shape[*axis] = *len;
            gather(&of, shape, |mut index| {
                index[*axis] += start;
                index
            })
        }
        WeightExpr::Reshape { of, shape } => Tensor { shape: shape.clone(), data: expression(of, tensor).data },
        WeightExpr::Permute { of, axes } => {
            let of = expression(of, tensor);
            let shape = axes.iter().map(|&axis| of.shape[axis]).collect();
            gather(&of, shape, |index| {
                let mut from = index.clone();
                axes.iter().zip(index).for_each(|(&axis, i)| from[axis] = i);
                from
            })
        }
        WeightExpr::Concat { of, axis } => {
            let parts: Vec<Tensor> = of.iter().map(|e| expression(e, tensor)).collect();
            let mut shape = parts[0].shape.clone();
            shape[*axis] = parts.iter().map(|p| p.shape[*axis]).sum();
            let run = |p: &Tensor| p.shape[*axis..].iter().product::<usize>();
            let outer: usize = shape[..*axis].iter().product();
            let data = (0..outer)
                .flat_map(|o| parts.iter().flat_map(move |p| p.data[o * run(p)..(o + 1) * run(p)].iter().copied()));
            Tensor { data: data.collect(), shape }
        }
        WeightExpr::Stack(of) => {
            let parts: Vec<Tensor> = of.iter().map(|e| expression(e, tensor)).collect();
            let shape = [&[parts.len()], parts[0].shape.as_slice()].concat();
            Tensor { shape, data: parts.into_iter().flat_map(|p| p.data).collect() }
        }
        WeightExpr::Affine { of, scale, offset } => {
            map(expression(of, tensor), |x| x * f64::from(*scale) + f64::from(*offset))
        }
        WeightExpr::Exp(of) => map(expression(of, tensor), f64::exp),
    }
}

fn map(of: Tensor, f: impl Fn(f64) -> f64) -> Tensor {
    Tensor { shape: of.shape, data: of.data.into_iter().map(f).collect() }
}

/// A tensor of `shape` whose entry at an index is that of `of` at `from(index)`.
fn gather(of: &Tensor, shape: Vec<usize>, from: impl Fn(Vec<usize>) -> Vec<usize>) -> Tensor {
    let entries: usize = shape.iter().product();
    let data = (0..entries).map(|flat| {
        let source = from(unravel(flat, &shape));
        let at = source.iter().zip(&of.shape).fold(0, |at, (i, n)| at * n + i);
        of.data[at]
    });
    Tensor { data: data.collect(), shape }
}

fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, n) in index.iter_mut().zip(shape).rev() {
        (*i, flat) = (flat % n, flat / n);
    }
    index
}
