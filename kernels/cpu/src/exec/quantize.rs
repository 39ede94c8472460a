//! Rounding of activations to 8 bits, with what can be computed on the way.

use std::ops::Range;

use super::{elementwise::Map, frame::Frame, norm, turn::Turn};
use crate::{
    compile::ir::{Gating, RunNorm, Source, ValueId},
    isa::Isa,
    linear::{QBlock, quantize_row},
};

/// Blocks that are computed before they are rounded.
const CHUNK: usize = 4;
/// Blocks that members share out in multiples of.
const GRAIN: usize = 16;

/// Writes this member's share of the blocks, or all of them where each has its own.
pub(super) fn quantize(turn: &Turn<'_>, source: Source) {
    let (per_row, runs) = (turn.width(), Runs::new(turn, source));
    let share = turn.share(turn.rows() * per_row, GRAIN.min(per_row));
    let mut start = share.start;
    while start < share.end {
        let (row, block) = (start / per_row, start % per_row);
        let len = (per_row - block).min(share.end - start);
        runs.round(row, block * QBlock::LEN, turn.own(start..start + len, 1));
        start += len;
    }
}

/// Writes the blocks of columns `columns` of some runs.
pub(super) fn columns(turn: &Turn<'_>, source: Source, rows: impl Iterator<Item = usize>, columns: &Range<usize>) {
    let (per_row, runs, out) = (turn.width(), Runs::new(turn, source), turn.out(0));
    let blocks = columns.start / QBlock::LEN..columns.end.div_ceil(QBlock::LEN);
    for row in rows {
        // SAFETY: this member alone takes these columns.
        let out = unsafe { out.part(row * per_row + blocks.start..row * per_row + blocks.end) };
        runs.round(row, columns.start, out);
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

/// What is rounded, in runs of `len` entries.
struct Runs<'a> {
    frame: &'a Frame<'a>,
    entries: Entries<'a>,
    len: usize,
}

/// [`Source`], to be read.
enum Entries<'a> {
    Plain(&'a [f32]),
    Norm(&'a [f32], RunNorm),
    Glu(&'a [f32], &'a [f32], Gating),
}

impl<'a> Runs<'a> {
    fn new(turn: &Turn<'a>, source: Source) -> Self {
        let (entries, all) = match source {
            Source::Plain(x) => (Entries::Plain(turn.read(x)), turn.read::<f32>(x).len()),
            Source::Norm(x, norm) => (Entries::Norm(turn.read(x), norm), turn.read::<f32>(x).len()),
            Source::Glu(gate, up, gating) => {
                (Entries::Glu(turn.read(gate), turn.read(up), gating), turn.read::<f32>(gate).len())
            }
        };
        Runs { frame: turn.frame, entries, len: all / turn.rows() }
    }

    /// Writes the blocks of run `run` from column `column` on.
    fn round(&self, run: usize, column: usize, out: &mut [QBlock]) {
        let (frame, isa) = (self.frame, self.frame.isa);
        let row = run * self.len..(run + 1) * self.len;
        let part = row.start + column..(row.start + column + out.len() * QBlock::LEN).min(row.end);
        match self.entries {
            Entries::Plain(x) => quantize_row(isa, &x[part], out),
            Entries::Norm(x, norm) => {
                let weight = norm.weight.map(|w| &frame.weights.vectors[w][column..]);
                let (factor, x) = (norm::factor(isa, &x[row], &norm), &x[part]);
                let compute = |at: usize, out: &mut [f32]| {
                    norm::apply(isa, &x[at..], factor, weight.map(|w| &w[at..]), out);
                };
                in_chunks(isa, x.len(), out, compute);
            }
            Entries::Glu(gate, up, gating) => {
                let (gate, up) = (&gate[part.clone()], &up[part]);
                let compute = |at: usize, out: &mut [f32]| {
                    let range = at..at + out.len();
                    Map::Glu(&gate[range.clone()], &up[range], gating).apply(isa, out);
                };
                in_chunks(isa, gate.len(), out, compute);
            }
        }
    }
}

/// Rounds `len` entries that `compute(first, out)` yields, as far as `out` has blocks for them.
fn in_chunks(isa: Isa, len: usize, out: &mut [QBlock], compute: impl Fn(usize, &mut [f32])) {
    let mut buffer = [0.0; CHUNK * QBlock::LEN];
    for (i, blocks) in out.chunks_mut(CHUNK).enumerate() {
        let at = i * buffer.len();
        let entries = &mut buffer[..(blocks.len() * QBlock::LEN).min(len - at)];
        compute(at, entries);
        quantize_row(isa, entries, blocks);
    }
}
