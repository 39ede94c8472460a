//! Products with a matrix, with what is added to them.

use std::ops::Range;

use super::{elementwise, frame::PieceRow, turn::Turn};
use crate::{
    compile::ir::{Entry, Op, ValueId},
    linear::{Activations, Batch, Output, PackedMatrix, QBlock, Scratch, matmul, partition},
    simd::LANES,
};

/// Work, in bytes of weights times rows, from which members take pieces as they get to them: where other programs hold
/// one of them up, the others go on. Below it, taking pieces costs more than a member can lose.
const LARGE: usize = 1 << 20;
/// Pieces of such a product, per member.
const PIECES: usize = 4;

/// Computes this member's columns of the product.
pub(super) fn linear(turn: &Turn<'_>) {
    let Op::Linear { matrix, .. } = *turn.op() else { return };
    let matrix = &turn.frame.weights.matrices[matrix];
    let tiles = matrix.tiles() * matrix.matrices();
    let work = matrix.bytes().saturating_mul(turn.rows());
    pieces(turn, work, tiles.div_ceil(2), |parts, part| columns(turn, partition(tiles, parts, part)));
}

/// Shares out a product: `compute(parts, part)` does one of `parts` parts. There are `units` that no part can be less than.
pub(super) fn pieces(turn: &Turn<'_>, work: usize, units: usize, compute: impl Fn(usize, usize)) {
    let members = turn.member.threads();
    // Where units are few, members that got less of one product take more of another.
    if members == 1 || (work < LARGE && units >= PIECES * members) {
        return compute(members, turn.member.index());
    }
    let parts = units.min(PIECES * members);
    while let Some(part) = turn.claims().next(parts) {
        compute(parts, part);
    }
}

/// Computes the columns of some tiles, counted over all matrices, which no other member computes.
pub(super) fn columns(turn: &Turn<'_>, tiles: Range<usize>) {
    let Op::Linear { x, matrix, bias, add, twice } = *turn.op() else { return };
    let product = Product { x, matrix, bias, add, twice };
    let matrix = &turn.frame.weights.matrices[matrix];
    let scratch = &mut turn.scratch().linear;
    let first = tiles.start;
    for (head, part) in elementwise::runs(tiles, matrix.tiles()) {
        let start = head * matrix.tiles();
        head_columns(turn, &product, head, first + part.start - start..first + part.end - start, scratch);
    }
}

/// Operands of a product.
struct Product {
    x: ValueId,
    matrix: usize,
    bias: Option<usize>,
    add: Option<ValueId>,
    /// Whether `x` is rounded twice.
    twice: bool,
}

/// Computes the columns of some tiles of matrix `head`.
fn head_columns(turn: &Turn<'_>, product: &Product, head: usize, tiles: Range<usize>, scratch: &mut Scratch) {
    let matrix = &turn.frame.weights.matrices[product.matrix];
    // With a matrix for each run it meets one in a row; otherwise the runs are rows of the one matrix.
    let (heads, width) = (matrix.matrices(), matrix.rows());
    let (rows, stride) = (turn.rows() * turn.width() / (heads * width), heads * width);
    let out = turn.out::<f32>(0);
    let first = head * width;
    let columns = columns_of(matrix, &tiles);
    let layout = turn.layout(&columns);
    let mut batch = Batch::first(every(activations(turn, product.x, matrix.cols()), head, heads), rows);
    if product.twice {
        batch.rest = rest(batch.input, QBlock::count(matrix.cols()));
    }
    // SAFETY: the floats are the result's, and nobody else touches the columns of these tiles.
    let done = unsafe {
        let pitch = if layout.is_of_piece() { layout.pitch } else { stride };
        let output = Output::from_raw(out.start().wrapping_add(first), out.len() - first, pitch);
        matmul(matrix, head, &batch, &output.from_column(layout.first), tiles, scratch)
    };
    assert!(done.is_ok(), "{done:?}");
    if columns.is_empty() || (product.bias.is_none() && product.add.is_none()) {
        return;
    }
    let columns = first + columns.start..first + columns.end;
    let bias = product.bias.map(|b| &turn.frame.weights.vectors[b][columns.clone()]);
    let add = product.add.map(|a| turn.read::<f32>(a));
    for row in 0..rows {
        let range = row * stride + columns.start..row * stride + columns.end;
        let own =
            if layout.is_of_piece() { layout.entries(PieceRow { number: row, row }, &columns) } else { range.clone() };
        // SAFETY: these columns, which were just written here.
        let out = unsafe { out.part(own) };
        for summand in [bias, add.map(|a| &a[range])].into_iter().flatten() {
            elementwise::add_to(out, summand);
        }
    }
}

/// The columns of the result that tiles of a matrix yield.
pub(super) fn columns_of(matrix: &PackedMatrix, tiles: &Range<usize>) -> Range<usize> {
    tiles.start * LANES..(tiles.end * LANES).min(matrix.rows())
}

/// An operand as the kernels take it: runs of `cols` entries.
pub(super) fn activations<'a>(turn: &Turn<'a>, x: ValueId, cols: usize) -> Activations<'a> {
    match turn.frame.plan.values[x].entry {
        Entry::Block => Activations::Quantized { blocks: turn.read(x), stride: turn.frame.width(x) },
        Entry::Float | Entry::Integer => Activations::Float { values: turn.read(x), stride: cols },
    }
}

/// What rounding has left of rows of `blocks` blocks, which lies behind them.
fn rest(rows: Activations<'_>, blocks: usize) -> Option<Activations<'_>> {
    match rows {
        Activations::Quantized { blocks: all, stride } => {
            Some(Activations::Quantized { blocks: all.get(blocks..)?, stride })
        }
        Activations::Float { .. } => None,
    }
}

/// Every `step`th run from run `first` on.
fn every(runs: Activations<'_>, first: usize, step: usize) -> Activations<'_> {
    match runs {
        Activations::Float { values, stride } => {
            Activations::Float { values: &values[first * stride..], stride: stride * step }
        }
        Activations::Quantized { blocks, stride } => {
            Activations::Quantized { blocks: &blocks[first * stride..], stride: stride * step }
        }
    }
}
