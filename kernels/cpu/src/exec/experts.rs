//! Mixtures of experts: rows are grouped by expert, and each expert's matrix is multiplied with its rows.
//!
//! An *entry* is a row and one of the experts it uses: number `row × used + rank`. An assignment is
//! `[active] [expert; experts] [start; experts + 1] [entry; n] [row; n]`: how many experts have entries, which, where the
//! entries of each of these start, the entries sorted by expert, and their rows.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    frame::PieceRow,
    linear::{activations, columns_of},
    turn::Turn,
};
use crate::{
    compile::{chain::EXPERT_TILES, ir::Op},
    linear::{Batch, Output, matmul},
};

/// Integers of an assignment before its entries.
pub(crate) fn header(experts: usize) -> usize {
    2 + 2 * experts
}

/// Groups entries by expert. `ids` holds the expert of each entry, `used` per row, all below `experts`.
pub(crate) fn assign(ids: &[u32], experts: usize, used: usize, out: &mut [u32]) {
    let (head, entries) = out.split_at_mut(header(experts));
    let Some((active, head)) = head.split_first_mut() else { return };
    let (list, starts) = head.split_at_mut(experts);
    // Counts per expert, then the place of each expert's next entry.
    starts.fill(0);
    for id in ids {
        starts[*id as usize + 1] += 1;
    }
    for e in 0..experts {
        starts[e + 1] += starts[e];
    }
    let (entries, rows) = entries.split_at_mut(ids.len());
    for (entry, id) in ids.iter().enumerate() {
        let place = starts[*id as usize] as usize;
        entries[place] = entry as u32;
        rows[place] = (entry / used) as u32;
        starts[*id as usize] += 1;
    }
    // `starts[e]` is now the end of expert `e`. Keep the experts that have entries.
    let (mut count, mut start) = (0, 0);
    for e in 0..experts {
        let end = starts[e];
        if end > start {
            list[count] = e as u32;
            starts[count] = start;
            count += 1;
        }
        start = end;
    }
    starts[count] = start;
    *active = count as u32;
}

/// How many rows each expert of a plan's mixtures has computed.
pub(crate) struct Tally {
    /// Experts of each mixture.
    mixtures: Vec<usize>,
    /// Of all experts of the first mixture, then of the next.
    rows: Vec<AtomicU64>,
    /// Where the first expert of a node's mixture stands in `rows`.
    places: Vec<usize>,
}

impl Tally {
    /// With nothing computed by these nodes.
    pub(crate) fn new<'a>(ops: impl Iterator<Item = &'a Op>) -> Self {
        let (mut mixtures, mut places, mut next) = (Vec::new(), Vec::new(), 0);
        for op in ops {
            places.push(next);
            if let Op::Assign { experts, .. } = op {
                mixtures.push(*experts);
                next += experts;
            }
        }
        Tally { mixtures, rows: (0..next).map(|_| AtomicU64::new(0)).collect(), places }
    }

    /// Experts of each mixture.
    pub(crate) fn mixtures(&self) -> &[usize] {
        &self.mixtures
    }

    /// Adds what the assignment of a node gives each expert. One member does this alone, so nothing is locked.
    pub(super) fn add(&self, node: usize, assigned: &[u32], experts: usize) {
        let assignment = Assignment::new(assigned, experts);
        let rows = &self.rows[self.places[node]..][..experts];
        for (expert, ends) in assignment.experts.iter().zip(assignment.starts.windows(2)) {
            let total = &rows[*expert as usize];
            total.store(total.load(Ordering::Relaxed) + u64::from(ends[1] - ends[0]), Ordering::Relaxed);
        }
    }

    /// Adds all to `rows`, and begins anew.
    pub(crate) fn take(&mut self, rows: &mut [u64]) {
        for (total, counted) in rows.iter_mut().zip(&mut self.rows) {
            *total += std::mem::take(counted.get_mut());
        }
    }
}

/// An assignment, to be read.
struct Assignment<'a> {
    experts: &'a [u32],
    starts: &'a [u32],
    entries: &'a [u32],
    rows: &'a [u32],
}

impl<'a> Assignment<'a> {
    fn new(assigned: &'a [u32], experts: usize) -> Self {
        let (head, entries) = assigned.split_at(header(experts));
        let active = head[0] as usize;
        let (entries, rows) = entries.split_at(entries.len() / 2);
        Assignment { experts: &head[1..][..active], starts: &head[1 + experts..][..active + 1], entries, rows }
    }
}

/// Some columns of an expert's product.
pub(super) struct Piece<'a> {
    /// The expert.
    id: usize,
    /// Its entries.
    entries: &'a [u32],
    /// Their rows.
    rows: &'a [u32],
    tiles: Range<usize>,
    pub(super) columns: Range<usize>,
}

impl Piece<'_> {
    /// The rows of results that the piece yields.
    pub(super) fn results(&self) -> impl Iterator<Item = PieceRow> + Clone {
        self.entries.iter().enumerate().map(|(number, entry)| PieceRow { number, row: *entry as usize })
    }
}

/// Takes as many pieces of a product as this member gets hold of. Of a piece with so many rows `tiles_at_once(rows)` tiles
/// are computed at a time.
pub(super) fn pieces(turn: &Turn<'_>, tiles_at_once: impl Fn(usize) -> usize, compute: impl Fn(&Piece<'_>)) {
    let Op::Experts { assigned, matrix, .. } = *turn.op() else { return };
    let matrix = &turn.frame.weights.matrices[matrix];
    let assignment = Assignment::new(turn.read(assigned), matrix.matrices());
    let pieces = matrix.tiles().div_ceil(EXPERT_TILES);
    while let Some(unit) = turn.claims().next(assignment.experts.len() * pieces) {
        let (expert, piece) = (unit / pieces, unit % pieces);
        let range = assignment.starts[expert] as usize..assignment.starts[expert + 1] as usize;
        let (entries, rows) = (&assignment.entries[range.clone()], &assignment.rows[range]);
        let all = piece * EXPERT_TILES..((piece + 1) * EXPERT_TILES).min(matrix.tiles());
        let step = tiles_at_once(entries.len());
        for first in all.clone().step_by(step) {
            let tiles = first..(first + step).min(all.end);
            let (id, columns) = (assignment.experts[expert] as usize, columns_of(matrix, &tiles));
            compute(&Piece { id, entries, rows, tiles, columns });
        }
    }
}

/// Computes a piece of a product.
pub(super) fn piece(turn: &Turn<'_>, piece: &Piece<'_>) {
    let Op::Experts { x, matrix, scale, own_rows, .. } = *turn.op() else { return };
    let matrix = &turn.frame.weights.matrices[matrix];
    let (out, layout) = (turn.out::<f32>(0), turn.layout(&piece.columns));
    let batch = Batch {
        input: activations(turn, x, matrix.cols()),
        rest: None,
        rows: piece.entries.len(),
        gather: Some(if own_rows { piece.entries } else { piece.rows }),
        scatter: (!layout.is_of_piece()).then_some(piece.entries),
    };
    // SAFETY: the floats are the result's; a piece is claimed once, and entries of experts and tiles of pieces are disjoint.
    let done = unsafe {
        let output = Output::from_raw(out.start(), out.len(), layout.pitch).from_column(layout.first);
        matmul(matrix, piece.id, &batch, &output, piece.tiles.clone(), &mut turn.scratch().linear)
    };
    assert!(done.is_ok(), "{done:?}");
    let Some(factor) = scale.map(|s| turn.frame.weights.vectors[s][piece.id]) else { return };
    for row in piece.results() {
        // SAFETY: what was just written here.
        let out = unsafe { out.part(layout.entries(row, &piece.columns)) };
        out.iter_mut().for_each(|y| *y *= factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_each_mixture_are_counted_apart() {
        let mixture = Op::Assign { ids: 0, experts: 5 };
        let mut tally = Tally::new([&mixture, &Op::Select(0), &mixture].into_iter());
        assert_eq!(tally.mixtures(), [5, 5]);
        let ids = [3, 1, 1, 4, 3, 1];
        let mut out = vec![9; header(5) + 2 * ids.len()];
        assign(&ids, 5, 2, &mut out);
        for node in [2, 0, 2] {
            tally.add(node, &out, 5);
        }
        let mut rows = [0; 10];
        tally.take(&mut rows);
        assert_eq!(rows, [0, 3, 0, 2, 1, 0, 6, 0, 4, 2]);
        tally.take(&mut rows);
        assert_eq!(rows.iter().sum::<u64>(), 18, "what was taken is not counted again");
    }

    #[test]
    fn entries_are_grouped_by_expert_in_order() {
        let (experts, used) = (5, 2);
        let ids = [3, 1, 1, 4, 3, 1];
        let mut out = vec![9; header(experts) + 2 * ids.len()];
        assign(&ids, experts, used, &mut out);
        let a = Assignment::new(&out, experts);
        assert_eq!(a.experts, [1, 3, 4]);
        assert_eq!(a.starts, [0, 3, 5, 6]);
        assert_eq!(a.entries, [1, 2, 5, 0, 4, 3]);
        assert_eq!(a.rows, [0, 1, 2, 0, 2, 1]);
    }
}
