//! Products with a matrix, with what is added to them.

use super::{elementwise, turn::Turn};
use crate::{
    compile::ir::{Entry, ValueId},
    linear::{Activations, Batch, Output, matmul, partition},
    simd::LANES,
};

/// Operands of a product.
pub(super) struct Product {
    pub(super) x: ValueId,
    pub(super) matrix: usize,
    pub(super) bias: Option<usize>,
    pub(super) add: Option<ValueId>,
}

/// Computes this member's columns of the product.
pub(super) fn linear(turn: &Turn<'_>, product: &Product) {
    let matrix = &turn.frame.weights.matrices[product.matrix];
    let tiles = partition(matrix.tiles(), turn.member.threads(), turn.member.index());
    let (rows, width) = (turn.rows(), matrix.rows());
    let out = turn.out::<f32>(0);
    let batch = Batch::first(activations(turn, product.x), rows);
    // SAFETY: the floats are the result's, and the tiles of members are disjoint columns.
    let done = unsafe {
        let output = Output::from_raw(out.start(), out.len(), width);
        matmul(matrix, 0, &batch, &output, tiles.clone(), &mut turn.scratch().linear)
    };
    assert!(done.is_ok(), "{done:?}");
    let columns = tiles.start * LANES..(tiles.end * LANES).min(width);
    if columns.is_empty() || (product.bias.is_none() && product.add.is_none()) {
        return;
    }
    let bias = product.bias.map(|b| &turn.frame.weights.vectors[b][columns.clone()]);
    let add = product.add.map(|a| turn.read::<f32>(a));
    for row in 0..rows {
        let range = row * width + columns.start..row * width + columns.end;
        // SAFETY: this member's columns, which it has just written.
        let out = unsafe { out.part(range.clone()) };
        for summand in [bias, add.map(|a| &a[range])].into_iter().flatten() {
            elementwise::add_to(out, summand);
        }
    }
}

/// An operand as the kernels take it.
pub(super) fn activations<'a>(turn: &Turn<'a>, x: ValueId) -> Activations<'a> {
    let stride = turn.frame.width(x);
    match turn.frame.plan.values[x].entry {
        Entry::Block => Activations::Quantized { blocks: turn.read(x), stride },
        Entry::Float | Entry::Integer => Activations::Float { values: turn.read(x), stride },
    }
}
