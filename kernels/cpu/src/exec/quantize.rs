//! Rounding of activations to 8 bits, with what can be computed on the way.

use super::{elementwise::Map, frame::Frame, norm, turn::Turn};
use crate::{
    compile::ir::{Source, ValueId},
    linear::{QBlock, quantize_row},
};

/// Blocks that are computed before they are rounded.
const CHUNK: usize = 16;

/// Writes this member's share of the blocks, or all of them where each has its own.
pub(super) fn quantize(turn: &Turn<'_>, source: Source) {
    let per_row = turn.width();
    let blocks = turn.rows() * per_row;
    let share = if turn.is_private() { 0..blocks } else { turn.member.share(blocks, CHUNK.min(per_row)) };
    let mut start = share.start;
    while start < share.end {
        let (row, block) = (start / per_row, start % per_row);
        let len = (per_row - block).min(share.end - start);
        row_part(turn, source, row, block * QBlock::LEN, turn.own(start..start + len, 1));
        start += len;
    }
}

/// Writes the blocks of this member's share of the rows of `x`, and behind those of a row those of what rounding has left.
pub(super) fn quantize_twice(turn: &Turn<'_>, x: ValueId) {
    let (isa, per_row) = (turn.frame.isa, turn.width());
    let rows = turn.member.share(turn.rows(), 1);
    let x = turn.read::<f32>(x);
    let len = x.len() / turn.rows();
    for row in rows {
        let (rounded, rest) = turn.own::<QBlock>(row..row + 1, per_row).split_at_mut(per_row / 2);
        let x = &x[row * len..][..len];
        quantize_row(isa, x, rounded);
        for ((x, rounded), rest) in x.chunks(QBlock::LEN).zip(rounded).zip(rest) {
            let mut left = [0.0; QBlock::LEN];
            for ((left, x), rounded) in left.iter_mut().zip(x).zip(rounded.values()) {
                *left = x - rounded;
            }
            quantize_row(isa, &left, std::slice::from_mut(rest));
        }
    }
}

/// Writes the blocks of run `row` from column `column` on.
fn row_part(turn: &Turn<'_>, source: Source, row: usize, column: usize, out: &mut [QBlock]) {
    let frame = turn.frame;
    let row_of = |value: ValueId| {
        let entries = turn.read::<f32>(value);
        let len = entries.len() / turn.rows();
        &entries[row * len..][..len]
    };
    match source {
        Source::Plain(x) => {
            let x = &row_of(x)[column..];
            quantize_row(frame.isa, &x[..x.len().min(out.len() * QBlock::LEN)], out);
        }
        Source::Norm(x, norm) => {
            let x = row_of(x);
            let weight = norm.weight.map(|w| &frame.weights.vectors[w][column..]);
            let factor = norm::factor(frame.isa, x, &norm);
            let compute = |at: usize, out: &mut [f32]| {
                norm::apply(frame.isa, &x[column + at..], factor, weight.map(|w| &w[at..]), out);
            };
            in_chunks(frame, x.len() - column, out, compute);
        }
        Source::Glu(gate, up, gating) => {
            let (gate, up) = (&row_of(gate)[column..], &row_of(up)[column..]);
            let compute = |at: usize, out: &mut [f32]| {
                let range = at..at + out.len();
                Map::Glu(&gate[range.clone()], &up[range], gating).apply(frame.isa, out);
            };
            in_chunks(frame, gate.len(), out, compute);
        }
    }
}

/// Rounds `len` entries that `compute(first, out)` yields, as far as `out` has blocks for them.
fn in_chunks(frame: &Frame<'_>, len: usize, out: &mut [QBlock], compute: impl Fn(usize, &mut [f32])) {
    let mut buffer = [0.0; CHUNK * QBlock::LEN];
    for (i, blocks) in out.chunks_mut(CHUNK).enumerate() {
        let at = i * buffer.len();
        let entries = &mut buffer[..(blocks.len() * QBlock::LEN).min(len - at)];
        compute(at, entries);
        quantize_row(frame.isa, entries, blocks);
    }
}
