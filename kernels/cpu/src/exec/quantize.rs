//! Rounding of activations to 8 bits, with what can be computed on the way.

use std::ops::Range;

use super::{
    elementwise::Map,
    frame::{Frame, Layout, PieceRow},
    norm,
    turn::Turn,
};
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
    let (per_row, share) = (turn.width(), turn.share(turn.rows() * turn.width(), GRAIN.min(turn.width())));
    let len = match source {
        Source::Plain(x) | Source::Norm(x, _) | Source::Glu(x, ..) => turn.read::<f32>(x).len() / turn.rows(),
    };
    let rounding = Rounding::new(turn, source, |_| Layout::whole(len));
    let mut start = share.start;
    while start < share.end {
        let (row, block) = (start / per_row, start % per_row);
        let blocks = (per_row - block).min(share.end - start);
        let columns = block * QBlock::LEN..((block + blocks) * QBlock::LEN).min(len);
        rounding.round(PieceRow { number: row, row }, &columns, turn.own(start..start + blocks, 1));
        start += blocks;
    }
}

/// Writes the blocks of columns `columns` of some rows.
pub(super) fn columns(turn: &Turn<'_>, source: Source, rows: impl Iterator<Item = PieceRow>, columns: &Range<usize>) {
    let (per_row, out) = (turn.width(), turn.out(0));
    let rounding = Rounding::new(turn, source, |value| turn.frame.layout(value, columns));
    let blocks = columns.start / QBlock::LEN..columns.end.div_ceil(QBlock::LEN);
    for row in rows {
        let first = row.row * per_row;
        // SAFETY: this member alone takes these columns.
        let out = unsafe { out.part(first + blocks.start..first + blocks.end) };
        rounding.round(row, columns, out);
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

/// Rows that are rounded.
struct Rounding<'a> {
    frame: &'a Frame<'a>,
    entries: Entries<'a>,
}

/// [`Source`], to be read.
enum Entries<'a> {
    Plain(Rows<'a>),
    Norm(Rows<'a>, RunNorm),
    Glu(Rows<'a>, Rows<'a>, Gating),
}

/// Rows of floats.
struct Rows<'a> {
    values: &'a [f32],
    layout: Layout,
}

impl<'a> Rows<'a> {
    fn columns(&self, row: PieceRow, columns: &Range<usize>) -> &'a [f32] {
        &self.values[self.layout.entries(row, columns)]
    }
}

impl<'a> Rounding<'a> {
    fn new(turn: &Turn<'a>, source: Source, layout: impl Fn(ValueId) -> Layout) -> Self {
        let rows = |value: ValueId| Rows { values: turn.read(value), layout: layout(value) };
        let entries = match source {
            Source::Plain(x) => Entries::Plain(rows(x)),
            Source::Norm(x, norm) => Entries::Norm(rows(x), norm),
            Source::Glu(gate, up, gating) => Entries::Glu(rows(gate), rows(up), gating),
        };
        Rounding { frame: turn.frame, entries }
    }

    /// Writes the blocks of columns `columns` of a row.
    fn round(&self, row: PieceRow, columns: &Range<usize>, out: &mut [QBlock]) {
        let (frame, isa) = (self.frame, self.frame.isa);
        match &self.entries {
            Entries::Plain(x) => quantize_row(isa, x.columns(row, columns), out),
            Entries::Norm(x, norm) => {
                let weight = norm.weight.map(|w| &frame.weights.vectors[w][columns.start..]);
                let factor = norm::factor(isa, x.columns(row, &(0..norm.group)), norm);
                let x = x.columns(row, columns);
                let compute = |at: usize, out: &mut [f32]| {
                    norm::apply(isa, &x[at..], factor, weight.map(|w| &w[at..]), out);
                };
                in_chunks(isa, x.len(), out, compute);
            }
            Entries::Glu(gate, up, gating) => {
                let (gate, up) = (gate.columns(row, columns), up.columns(row, columns));
                let compute = |at: usize, out: &mut [f32]| {
                    let range = at..at + out.len();
                    Map::Glu(&gate[range.clone()], &up[range], *gating).apply(isa, out);
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
