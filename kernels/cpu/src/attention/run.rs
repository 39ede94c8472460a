//! Does pieces of attention.

use std::ops::Range;

use bantam_backend::{KvType, Step};

use super::{
    SEGMENT, SLOTS, TILE_QUERIES,
    element::{Element, Single, with_element},
    kernels::{QUERY_GROUP, Row, Scores, Soften, Softmax, Values, padded},
    merge::{Merge, Partials, Result, Totals, Weight},
    pieces::{Cut, Piece, Pieces, SharedTile},
    quantized::Unpack,
};
use crate::{
    compile::ir::Attend,
    exec::frame::Shared,
    isa::Isa,
    pool::{PAGE_ROWS, Pool, StateSlot},
    simd::with_floats,
    step::RowMap,
};

/// What a member needs to work on a piece, for the largest of a program's attentions.
///
/// Arrays per query have a slot for each head of keys and query of the piece: heads one after another, the queries of
/// each filled up to [`QUERY_GROUP`].
#[derive(Debug)]
pub(crate) struct PieceScratch {
    queries: Vec<f32>,
    scores: Vec<Row>,
    /// A head of a page as floats.
    unpacked: Vec<f32>,
    softmax: Vec<Softmax>,
    corrections: Vec<f32>,
    sums: Vec<f32>,
    totals: Totals,
    /// Per query of the tile.
    positions: Vec<usize>,
    /// Per query of the tile.
    visible: Vec<Range<usize>>,
}

impl PieceScratch {
    /// Scratch for heads of at most these numbers of entries.
    pub(crate) fn new(k_dim: usize, v_dim: usize) -> Self {
        PieceScratch {
            queries: vec![0.0; SLOTS * k_dim],
            scores: vec![[0.0; PAGE_ROWS]; SLOTS],
            unpacked: vec![0.0; PAGE_ROWS * k_dim.max(v_dim)],
            softmax: vec![Softmax::EMPTY; SLOTS],
            corrections: vec![1.0; SLOTS],
            sums: vec![0.0; SLOTS * padded(v_dim)],
            totals: Totals::new(SLOTS, v_dim),
            positions: vec![0; TILE_QUERIES],
            visible: vec![0..0; TILE_QUERIES],
        }
    }
}

/// An attention in a running step.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) attend: &'a Attend,
    pub(crate) pool: &'a Pool,
    pub(crate) step: &'a Step,
    pub(crate) rows: &'a RowMap,
    pub(crate) pieces: &'a Pieces,
    pub(crate) partials: &'a Partials,
    pub(crate) isa: Isa,
    /// Queries, `[row][head][entry]`.
    pub(crate) q: &'a [f32],
    /// Results, `[row][head][entry]`.
    pub(crate) out: Shared<'a, f32>,
}

impl Attention<'_> {
    /// Does piece `index`.
    ///
    /// # Safety
    /// The step must have been checked against the pool, nobody may write to it, and each piece must be done once.
    pub(crate) unsafe fn run(&self, index: usize, scratch: &mut PieceScratch) {
        let piece = self.pieces.piece(index);
        let slots = piece.queries.len().next_multiple_of(QUERY_GROUP);
        let mut run = PieceRun { of: self, cut: self.pieces.cut(), piece, slots, scratch };
        // SAFETY: as this function's.
        unsafe { run.run() }
    }
}

struct PieceRun<'a> {
    of: &'a Attention<'a>,
    cut: Cut,
    piece: &'a Piece,
    /// Slots per head.
    slots: usize,
    scratch: &'a mut PieceScratch,
}

impl PieceRun<'_> {
    unsafe fn run(&mut self) {
        self.gather();
        self.scratch.totals.clear();
        let blocks = self.piece.blocks.clone();
        let mut first = blocks.start;
        while first < blocks.end {
            let segment = first..blocks.end.min((first / SEGMENT + 1) * SEGMENT);
            first = segment.end;
            // SAFETY: as `Attention::run`; a shared tile's places of these segments are this piece's.
            unsafe {
                self.segment(segment.clone());
                self.keep(segment.start / SEGMENT);
            }
        }
        match &self.piece.shared {
            Some(shared) if !self.of.pieces.finish(shared) => return,
            // SAFETY: the last piece is finished, so all segments are kept and nobody writes to them.
            Some(shared) => unsafe { self.merge_shared(shared) },
            None => {}
        }
        // SAFETY: the queries' places in the result belong to this piece, or to the last of the pieces of its tile.
        unsafe { self.write() };
    }

    /// The heads of the piece: which, and its first slot.
    fn heads(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let slots = self.slots;
        self.piece.heads.clone().enumerate().map(move |(i, head)| (head, i * slots))
    }

    /// Row and query head of query `i` of the tile, for a head of keys.
    fn place(&self, head: usize, i: usize) -> (usize, usize) {
        let group = self.of.attend.group();
        let query = self.piece.queries.start + i;
        (query / group, head * group + query % group)
    }

    /// Scales the queries and lays them out as the kernels read them.
    fn gather(&mut self) {
        let attend = self.of.attend;
        let dim = attend.k.dim;
        for (head, slot) in self.heads() {
            for i in 0..self.piece.queries.len() {
                let (row, query_head) = self.place(head, i);
                self.scratch.positions[i] = self.of.rows.positions[row] as usize;
                let query = &self.of.q[(row * attend.heads + query_head) * dim..][..dim];
                let target = &mut self.scratch.queries[(slot + i / QUERY_GROUP * QUERY_GROUP) * dim..];
                for (d, q) in query.iter().enumerate() {
                    target[d * QUERY_GROUP + i % QUERY_GROUP] = q * attend.scale;
                }
            }
        }
    }

    /// The softmax over some blocks of one segment.
    unsafe fn segment(&mut self, blocks: Range<usize>) {
        let attend = self.of.attend;
        let used = self.piece.heads.len() * self.slots;
        self.scratch.softmax[..used].fill(Softmax::EMPTY);
        self.scratch.sums[..used * padded(attend.v.dim)].fill(0.0);
        for block in blocks {
            self.look(block);
            for (head, slot) in self.heads() {
                let (next_block, next_head) = self.next(block, head);
                let page = |slot: &StateSlot| (self.page(slot, block, head), self.page(slot, next_block, next_head));
                let (keys, values) = (page(&attend.k), page(&attend.v));
                // SAFETY: as `Attention::run`: pages exist, hold whole heads, and nobody writes to them.
                unsafe {
                    with_element!(attend.k.ty, E => self.score::<E>(slot, keys), quantized => {
                        self.unpacked(&attend.k, keys.0, |this, head| this.score::<Single>(slot, head));
                    });
                    self.soften(slot);
                    with_element!(attend.v.ty, E => self.add::<E>(slot, values), quantized => {
                        self.unpacked(&attend.v, values.0, |this, head| this.add::<Single>(slot, head));
                    });
                }
            }
        }
    }

    /// Notes which keys of a block each query sees.
    fn look(&mut self, block: usize) {
        let start = block * PAGE_ROWS;
        let queries = self.piece.queries.len();
        for (visible, position) in self.scratch.visible.iter_mut().zip(&self.scratch.positions[..queries]) {
            let first = self.cut.first_key(*position).max(start);
            let end = (position + 1).min(start + PAGE_ROWS);
            *visible = if first < end { first - start..end - start } else { 0..0 };
        }
    }

    /// The block and head that come after these.
    fn next(&self, block: usize, head: usize) -> (usize, usize) {
        if head + 1 < self.piece.heads.end {
            (block, head + 1)
        } else {
            ((block + 1).min(self.piece.blocks.end - 1), self.piece.heads.start)
        }
    }

    fn page(&self, slot: &StateSlot, block: usize, head: usize) -> *const u8 {
        let table = &self.of.step.sequences[self.piece.sequence].tables[slot.group];
        self.of.pool.head(slot, table[block], head)
    }

    /// Does something with a head as floats.
    unsafe fn unpacked(
        &mut self,
        slot: &StateSlot,
        page: *const u8,
        read: impl FnOnce(&mut Self, (*const u8, *const u8)),
    ) {
        let mut floats = std::mem::take(&mut self.scratch.unpacked);
        // SAFETY: as `segment`: the page holds a whole head of the slot.
        with_floats(self.of.isa, unsafe { Unpack::new(slot, page, &mut floats) });
        let head = floats.as_ptr().cast();
        read(self, (head, head));
        self.scratch.unpacked = floats;
    }

    unsafe fn score<E: Element>(&mut self, slot: usize, (page, ahead): (*const u8, *const u8)) {
        let dim = self.of.attend.k.dim;
        // SAFETY: a page holds a whole head, aligned, and nobody writes to it.
        let keys = unsafe { std::slice::from_raw_parts(page.cast::<E::Bits>(), dim * PAGE_ROWS) };
        let scores = &mut self.scratch.scores[slot..slot + self.piece.queries.len()];
        let queries = &self.scratch.queries[slot * dim..];
        with_floats(self.of.isa, Scores::<E> { queries, keys, scores, ahead });
    }

    fn soften(&mut self, slot: usize) {
        let range = slot..slot + self.piece.queries.len();
        let PieceScratch { scores, visible, softmax, corrections, .. } = &mut *self.scratch;
        let (rows, softmax) = (&mut scores[range.clone()], &mut softmax[range.clone()]);
        with_floats(self.of.isa, Soften { rows, visible, softmax, corrections: &mut corrections[range] });
    }

    unsafe fn add<E: Element>(&mut self, slot: usize, (page, ahead): (*const u8, *const u8)) {
        let dim = self.of.attend.v.dim;
        // SAFETY: a page holds a whole head, aligned, and nobody writes to it.
        let values = unsafe { std::slice::from_raw_parts(page.cast::<E::Bits>(), dim * PAGE_ROWS) };
        let mut first = slot;
        for alike in self.scratch.visible[..self.piece.queries.len()].chunk_by(|a, b| a == b) {
            let range = first..first + alike.len();
            first = range.end;
            let visible = alike[0].clone();
            if visible.is_empty() {
                continue;
            }
            let rows = &self.scratch.scores[range.clone()];
            let corrections = &self.scratch.corrections[range.clone()];
            let sums = &mut self.scratch.sums[range.start * padded(dim)..range.end * padded(dim)];
            with_floats(self.of.isa, Values::<E> { rows, corrections, visible, values, dim, sums, ahead });
        }
    }

    /// Adds the finished segment to the totals, or keeps it until the tile's other pieces are finished.
    unsafe fn keep(&mut self, segment: usize) {
        let stride = padded(self.of.attend.v.dim);
        for (head, slot) in self.heads() {
            for i in 0..self.piece.queries.len() {
                let index = slot + i;
                let kept = self.piece.shared.as_ref().map(|shared| self.kept(shared, segment, head, i));
                let PieceScratch { softmax, sums, totals, .. } = &mut *self.scratch;
                let weight = with_floats(self.of.isa, Weight(&softmax[index]));
                let sums = &sums[index * stride..(index + 1) * stride];
                let result = Result { greatest: softmax[index].greatest, weight, sums };
                match kept {
                    None => with_floats(self.of.isa, Merge { totals, index, result }),
                    // SAFETY: as the caller promises.
                    Some(place) => unsafe { self.of.partials.put(place, result) },
                }
            }
        }
    }

    /// Where the result of a segment of a shared tile is kept.
    fn kept(&self, shared: &SharedTile, segment: usize, head: usize, i: usize) -> usize {
        let segment = segment - shared.blocks.start / SEGMENT;
        let head = segment * self.piece.heads.len() + head - self.piece.heads.start;
        shared.first_place + head * self.piece.queries.len() + i
    }

    /// Merges all segments of a shared tile, in order.
    unsafe fn merge_shared(&mut self, shared: &SharedTile) {
        let stride = padded(self.of.attend.v.dim);
        for segment in shared.blocks.start / SEGMENT..shared.blocks.end.div_ceil(SEGMENT) {
            for (head, slot) in self.heads() {
                for i in 0..self.piece.queries.len() {
                    // SAFETY: as the caller promises.
                    let result = unsafe { self.of.partials.get(self.kept(shared, segment, head, i), stride) };
                    let totals = &mut self.scratch.totals;
                    with_floats(self.of.isa, Merge { totals, index: slot + i, result });
                }
            }
        }
    }

    /// Writes the totals to the result.
    unsafe fn write(&mut self) {
        let attend = self.of.attend;
        let dim = attend.v.dim;
        for (head, slot) in self.heads() {
            for i in 0..self.piece.queries.len() {
                let (row, query_head) = self.place(head, i);
                let start = (row * attend.heads + query_head) * dim;
                // SAFETY: as the caller promises.
                let out = unsafe { self.of.out.part(start..start + dim) };
                self.scratch.totals.write(slot + i, out);
            }
        }
    }
}
