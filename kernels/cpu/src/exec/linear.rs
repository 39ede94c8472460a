//! Products with a matrix, with what is added to them.

use std::ops::Range;

use super::{elementwise, turn::Turn};
use crate::{
    compile::ir::{Entry, ValueId},
    linear::{Activations, Batch, Output, Scratch, matmul, partition},
    simd::LANES,
};

/// Operands of a product.
pub(super) struct Product {
    pub(super) x: ValueId,
    pub(super) matrix: usize,
    pub(super) bias: Option<usize>,
    pub(super) add: Option<ValueId>,
}

/// Work, in bytes of weights times rows, from which members take pieces as they get to them: where other programs hold
/// one of them up, the others go on. Below it, taking pieces costs more than a member can lose.
const LARGE: usize = 1 << 20;
/// Pieces of such a product, per member.
const PIECES: usize = 4;

/// Computes this member's columns of the product.
pub(super) fn linear(turn: &Turn<'_>, product: &Product) {
    let tiles = turn.frame.weights.matrices[product.matrix].tiles();
    let members = turn.member.threads();
    let scratch = &mut turn.scratch().linear;
    let work = turn.frame.weights.matrices[product.matrix].bytes().saturating_mul(turn.rows());
    if members == 1 || work < LARGE {
        return columns(turn, product, partition(tiles, members, turn.member.index()), scratch);
    }
    while let Some(piece) = turn.claims().next(PIECES * members) {
        columns(turn, product, partition(tiles, PIECES * members, piece), scratch);
    }
}

/// Computes the columns of some tiles, which no other member computes.
fn columns(turn: &Turn<'_>, product: &Product, tiles: Range<usize>, scratch: &mut Scratch) {
    let matrix = &turn.frame.weights.matrices[product.matrix];
    let (rows, width) = (turn.rows(), matrix.rows());
    let out = turn.out::<f32>(0);
    let batch = Batch::first(activations(turn, product.x), rows);
    // SAFETY: the floats are the result's, and nobody else touches the columns of these tiles.
    let done = unsafe {
        let output = Output::from_raw(out.start(), out.len(), width);
        matmul(matrix, 0, &batch, &output, tiles.clone(), scratch)
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
        // SAFETY: these columns, which were just written here.
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
