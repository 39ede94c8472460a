//! Does pieces of attention.

use std::ops::Range;

use bantam_backend::{KvType, Step};

use super::{
    SEGMENT, SLOTS, TILE_QUERIES,
    blocks::{At, BlockScratch, Blocks, Lines},
    coded::{CodeScores, Codes, Weigh},
    element::{Brain, Element, Half, Single},
    integers::Integers,
    kernels::{Interleave, Plain, PlainKeys, QUERY_GROUP, Row, Scores, Soften, Softmax, ValueSource, Values, padded},
    merge::{Merge, Partials, Result, Totals, Weight},
    pieces::{Piece, Pieces, SharedTile},
    quantized::{HeadRoom, rotate},
    sight::{Source, Stand},
    tiles::{Run, Stretch, find_runs},
};
use crate::{
    compile::ir::Attend,
    exec::frame::Shared,
    isa::Isa,
    pool::{PAGE_ROWS, Pool},
    simd::with_floats,
    step::RowMap,
};

/// Queries up to which integers are turned into floats for each few of them, not once for all.
const DIRECT_QUERIES: usize = 2 * QUERY_GROUP;

/// What a member needs to work on a piece, for the largest of a program's attentions.
///
/// Arrays per query have a slot for each head of keys and query of the piece: heads one after another, the queries of
/// each filled up to [`QUERY_GROUP`].
#[derive(Debug)]
pub(crate) struct PieceScratch {
    queries: Vec<f32>,
    scores: Vec<Row>,
    softmax: Vec<Softmax>,
    corrections: Vec<f32>,
    sums: Vec<f32>,
    totals: Totals,
    blocks: BlockScratch,
    /// Per query of the tile.
    stands: Vec<Stand>,
    /// The keys that each query of the tile sees, for each block of a segment.
    visible: Vec<[u32; TILE_QUERIES]>,
    /// Those of the tile's queries that read the block from the same page.
    runs: Vec<Run>,
}

impl PieceScratch {
    /// Scratch for heads of at most these numbers of entries.
    pub(crate) fn new(k_dim: usize, v_dim: usize) -> Self {
        PieceScratch {
            queries: vec![0.0; SLOTS * k_dim],
            scores: vec![[0.0; PAGE_ROWS]; SLOTS],
            softmax: vec![Softmax::EMPTY; SLOTS],
            corrections: vec![1.0; SLOTS],
            sums: vec![0.0; SLOTS * padded(v_dim)],
            totals: Totals::new(SLOTS, v_dim),
            blocks: BlockScratch::new(k_dim, v_dim),
            stands: vec![Stand::default(); TILE_QUERIES],
            visible: vec![[0; TILE_QUERIES]; SEGMENT],
            runs: Vec::with_capacity(TILE_QUERIES),
        }
    }

    /// Room for a head of any of the attentions.
    pub(crate) fn head_room(&mut self) -> &mut HeadRoom {
        &mut self.blocks.row
    }
}

/// An attention in a running step.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) attend: &'a Attend,
    pub(crate) pools: &'a [Pool],
    pub(crate) step: &'a Step,
    pub(crate) rows: &'a RowMap,
    pub(crate) pieces: &'a Pieces,
    pub(crate) partials: &'a Partials,
    pub(crate) isa: Isa,
    /// Queries, `[row][head][entry]`.
    pub(crate) q: &'a [f32],
    /// One more logit per head.
    pub(crate) sinks: Option<&'a [f32]>,
    /// Chosen blocks, a list for each row.
    pub(crate) chosen_blocks: Option<&'a [u32]>,
    /// Chosen rows of the compressed state, a list for each row.
    pub(crate) chosen_rows: Option<&'a [u32]>,
    /// The step's keys and values, where they are read beside the cache: `[token][head][entry]`.
    pub(crate) own: Option<[&'a [f32]; 2]>,
    /// First token row of each sequence.
    pub(crate) first_rows: &'a [usize],
    /// Results, `[row][head][entry]`.
    pub(crate) out: Shared<'a, f32>,
}

impl<'a> Attention<'a> {
    /// Does piece `index`.
    ///
    /// # Safety
    /// The step must have been checked against the pools, nobody may write to them, and each piece must be done once.
    pub(crate) unsafe fn run(&self, index: usize, scratch: &mut PieceScratch) {
        let piece = self.pieces.piece(index);
        let slots = piece.queries.len().next_multiple_of(QUERY_GROUP);
        let stretches = self.pieces.stretches(piece);
        let mut run = PieceRun { of: self, piece, stretches, slots, scratch };
        // SAFETY: as this function's.
        unsafe { run.run() }
    }

    /// A row's part of a list.
    pub(super) fn of_row<T>(&self, list: &'a [T], row: usize) -> &'a [T] {
        let width = list.len() / self.rows.len();
        &list[row * width..][..width]
    }
}

/// As [`Interleave`], of queries that are filled up with zeros to the length of `room` and rotated there.
fn interleave_rotated(isa: Isa, sources: [&[f32]; QUERY_GROUP], scale: f32, room: &mut [f32], out: &mut [f32]) {
    for (i, source) in sources.into_iter().enumerate() {
        room.fill(0.0);
        room.iter_mut().zip(source).for_each(|(x, source)| *x = source * scale);
        rotate(isa, room);
        for (out, x) in out.as_chunks_mut::<QUERY_GROUP>().0.iter_mut().zip(&*room) {
            out[i] = *x;
        }
    }
}

struct PieceRun<'a> {
    of: &'a Attention<'a>,
    piece: &'a Piece,
    stretches: &'a [Stretch],
    /// Slots per head.
    slots: usize,
    scratch: &'a mut PieceScratch,
}

/// The queries that meet a head of a block in a page.
#[derive(Clone, Copy)]
struct Meeting {
    run: Run,
    /// First slot of the head.
    slot: usize,
    /// Number of the block in its segment.
    block: usize,
}

impl Meeting {
    /// The queries' slots.
    fn slots(&self) -> Range<usize> {
        self.slot + self.run.first..self.slot + self.run.first + self.run.len
    }
}

/// Corrections of sums that are to stay as they are.
const UNITS: [f32; TILE_QUERIES] = [1.0; TILE_QUERIES];

impl PieceRun<'_> {
    unsafe fn run(&mut self) {
        self.gather();
        self.scratch.totals.clear();
        for segment in self.piece.segments.clone() {
            let (source, blocks) = self.piece.spans.segment(segment);
            // SAFETY: as `Attention::run`; a shared tile's places of these segments are this piece's.
            unsafe {
                self.segment(source, blocks);
                self.keep(segment);
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

    /// Scales the queries, rotates them if the keys are, and lays them out as the kernels read them.
    fn gather(&mut self) {
        let attend = self.of.attend;
        let (dim, queries) = (attend.k.dim, self.piece.queries.len());
        for i in 0..queries {
            let row = (self.piece.queries.start + i) / attend.group();
            self.scratch.stands[i] = self.of.rows.stand(row, self.of.step);
        }
        for (head, slot) in self.heads() {
            for first in (0..queries).step_by(QUERY_GROUP) {
                // Places beyond the last query get a copy of it, which nobody reads.
                let sources = std::array::from_fn(|i| {
                    let (row, query_head) = self.place(head, (first + i).min(queries - 1));
                    &self.of.q[(row * attend.heads + query_head) * dim..][..dim]
                });
                let width = attend.key_width();
                let PieceScratch { blocks, queries, .. } = &mut *self.scratch;
                let out = &mut queries[(slot + first) * width..][..QUERY_GROUP * width];
                if attend.k.is_rotated() {
                    interleave_rotated(self.of.isa, sources, attend.scale, &mut blocks.row.entries[..width], out);
                } else {
                    with_floats(self.of.isa, Interleave { sources, scale: attend.scale, out });
                }
            }
        }
    }

    /// The softmax over some blocks of one segment.
    unsafe fn segment(&mut self, source: Source, blocks: Range<usize>) {
        let used = self.piece.heads.len() * self.slots;
        self.scratch.softmax[..used].fill(Softmax::EMPTY);
        self.scratch.sums[..used * padded(self.of.attend.sum_width())].fill(0.0);
        for (i, block) in blocks.clone().enumerate() {
            self.look(source, block, i);
            let PieceScratch { visible, runs, .. } = &mut *self.scratch;
            find_runs(self.stretches, block, &visible[i], runs);
            for (head, slot) in self.heads() {
                for number in 0..self.scratch.runs.len() {
                    let run = self.scratch.runs[number];
                    let at = At { sequence: run.sequence, block, head };
                    let ahead = self.next(at, number, blocks.end);
                    // SAFETY: as this function's.
                    unsafe { self.meet(Meeting { run, slot, block: i }, source, at, ahead) };
                }
            }
        }
    }

    /// Takes the keys and values at `at` into the softmax of the queries that find them there; `ahead` is read next.
    unsafe fn meet(&mut self, meeting: Meeting, source: Source, at: At, ahead: At) {
        let row = self.piece.queries.start / self.of.attend.group();
        let blocks = Blocks { of: self.of, row, direct: meeting.run.len <= DIRECT_QUERIES };
        // SAFETY: as `Attention::run`: pages exist, hold whole heads, and nobody writes to them.
        unsafe {
            let lines = blocks.lines(source, at, ahead, &mut self.scratch.blocks);
            match lines.keys_in {
                KvType::F32 => self.score_plain::<Single>(meeting, &lines),
                KvType::F16 => self.score_plain::<Half>(meeting, &lines),
                KvType::Bf16 => self.score_plain::<Brain>(meeting, &lines),
                KvType::Q8_0 => self.score_integers(meeting, &lines),
                KvType::Turbo4 => self.score_codes::<4>(meeting, &lines),
                KvType::Turbo3 => self.score_codes::<3>(meeting, &lines),
            }
            self.soften(meeting);
            match lines.values_in {
                KvType::F32 => self.add_plain::<Single>(meeting, &lines),
                KvType::F16 => self.add_plain::<Half>(meeting, &lines),
                KvType::Bf16 => self.add_plain::<Brain>(meeting, &lines),
                KvType::Q8_0 => self.add_integers(meeting, &lines),
                KvType::Turbo4 => self.add_codes::<4>(meeting, &lines),
                KvType::Turbo3 => self.add_codes::<3>(meeting, &lines),
            }
        }
    }

    /// Notes which keys of a block, number `i` of the segment, each query sees.
    fn look(&mut self, source: Source, block: usize, i: usize) {
        let group = self.of.attend.group();
        let PieceScratch { visible, stands, .. } = &mut *self.scratch;
        let visible = &mut visible[i];
        for query in 0..self.piece.queries.len() {
            let row = (self.piece.queries.start + query) / group;
            visible[query] = match query.checked_sub(1) {
                // Heads of a row see the same.
                Some(before) if (self.piece.queries.start + before) / group == row => visible[before],
                _ => {
                    let ids = self.of.chosen_blocks.map(|ids| self.of.of_row(ids, row));
                    self.of.attend.sight.mask(source, block, stands[query], ids)
                }
            };
        }
    }

    /// What comes after run `number` of a block and head, in a segment that ends at block `end`.
    fn next(&self, at: At, number: usize, end: usize) -> At {
        let runs = &self.scratch.runs;
        if let Some(run) = runs.get(number + 1) {
            At { sequence: run.sequence, ..at }
        } else if at.head + 1 < self.piece.heads.end {
            At { sequence: runs[0].sequence, head: at.head + 1, ..at }
        } else {
            let block = (at.block + 1).min(end - 1);
            let sees = |stretch: &&Stretch| block < stretch.end;
            let sequence = self.stretches.iter().find(sees).map_or(at.sequence, |stretch| stretch.sequence);
            At { sequence, block, head: self.piece.heads.start }
        }
    }

    unsafe fn score_plain<E: Element>(&mut self, meeting: Meeting, lines: &Lines) {
        let dim = self.of.attend.key_width();
        // SAFETY: the lines are a whole head of a block, aligned, and nobody writes to them.
        let keys = unsafe { std::slice::from_raw_parts(lines.keys.cast::<E::Bits>(), dim * PAGE_ROWS) };
        let PieceScratch { queries, scores, .. } = &mut *self.scratch;
        let (queries, scores) = (&queries[meeting.slot * dim..], &mut scores[meeting.slots()]);
        let keys = PlainKeys::<E>::new(keys);
        with_floats(self.of.isa, Scores { queries, first: meeting.run.first, keys, scores, ahead: lines.keys_ahead });
    }

    unsafe fn score_integers(&mut self, meeting: Meeting, lines: &Lines) {
        let attend = self.of.attend;
        let PieceScratch { queries, scores, blocks, .. } = &mut *self.scratch;
        let (queries, scores) = (&queries[meeting.slot * attend.key_width()..], &mut scores[meeting.slots()]);
        // SAFETY: the lines are a whole head of a block in the cache, and nobody writes to them.
        let keys = unsafe { Integers::new(&attend.k, lines.keys, &blocks.keys) };
        with_floats(self.of.isa, Scores { queries, first: meeting.run.first, keys, scores, ahead: lines.keys_ahead });
    }

    unsafe fn score_codes<const BITS: usize>(&mut self, meeting: Meeting, lines: &Lines) {
        let attend = self.of.attend;
        // SAFETY: the lines are a whole head of a block in the cache, and nobody writes to them.
        let keys = unsafe { Codes::<BITS>::new(&attend.k, lines.keys) };
        let scores = &mut self.scratch.scores[meeting.slots()];
        let queries = &self.scratch.queries[meeting.slot * attend.key_width()..];
        with_floats(
            self.of.isa,
            CodeScores { queries, first: meeting.run.first, keys, scores, ahead: lines.keys_ahead },
        );
    }

    fn soften(&mut self, meeting: Meeting) {
        let range = meeting.slots();
        let PieceScratch { scores, visible, softmax, corrections, .. } = &mut *self.scratch;
        let (rows, softmax) = (&mut scores[range.clone()], &mut softmax[range.clone()]);
        let (visible, corrections) = (&visible[meeting.block][meeting.run.queries()], &mut corrections[range]);
        with_floats(self.of.isa, Soften { rows, visible, softmax, corrections });
    }

    unsafe fn add_plain<E: Element>(&mut self, meeting: Meeting, lines: &Lines) {
        let dim = self.of.attend.sum_width();
        // SAFETY: the lines are a whole head of a block, aligned, and nobody writes to them.
        let values = unsafe { std::slice::from_raw_parts(lines.values.cast::<E::Bits>(), dim * PAGE_ROWS) };
        self.add(meeting, Plain::<E> { values, dim }, lines.values_ahead);
    }

    unsafe fn add_integers(&mut self, meeting: Meeting, lines: &Lines) {
        // Only values that have a state of their own are read as they lie.
        let Some(v) = &self.of.attend.v else { return };
        let scales = std::mem::take(&mut self.scratch.blocks.values);
        // SAFETY: the lines are a whole head of a block in the cache, and nobody writes to them.
        let values = unsafe { Integers::new(v, lines.values, &scales) };
        self.add(meeting, values, lines.values_ahead);
        self.scratch.blocks.values = scales;
    }

    unsafe fn add_codes<const BITS: usize>(&mut self, meeting: Meeting, lines: &Lines) {
        // Only values that have a state of their own are read as they lie.
        let Some(v) = &self.of.attend.v else { return };
        // SAFETY: the lines are a whole head of a block in the cache, and nobody writes to them.
        let values = unsafe { Codes::<BITS>::new(v, lines.values) };
        let rows = &mut self.scratch.scores[meeting.slots()];
        with_floats(self.of.isa, Weigh { rows, values });
        self.add(meeting, values, lines.values_ahead);
    }

    fn add<V: ValueSource>(&mut self, meeting: Meeting, values: V, ahead: *const u8) {
        let dim = values.dim();
        let PieceScratch { scores, visible, corrections, sums, .. } = &mut *self.scratch;
        let mut first = meeting.slots().start;
        for alike in visible[meeting.block][meeting.run.queries()].chunk_by(|a, b| a == b) {
            let range = first..first + alike.len();
            first = range.end;
            let rows = &scores[range.clone()];
            let sums = &mut sums[range.start * padded(dim)..range.end * padded(dim)];
            let mut corrections = &corrections[range];
            let mut rest = alike[0];
            while rest != 0 {
                let start = rest.trailing_zeros() as usize;
                let len = (rest >> start).trailing_ones() as usize;
                let visible = start..start + len;
                with_floats(self.of.isa, Values { rows, corrections, visible, values, sums, ahead });
                // What stands behind a gap is added to sums that have been corrected.
                corrections = &UNITS[..alike.len()];
                rest &= u32::MAX.checked_shl((start + len) as u32).unwrap_or(0);
            }
        }
    }

    /// Adds the finished segment to the totals, or keeps it until the tile's other pieces are finished.
    unsafe fn keep(&mut self, segment: usize) {
        let stride = padded(self.of.attend.sum_width());
        for (head, slot) in self.heads() {
            for i in 0..self.piece.queries.len() {
                let index = slot + i;
                let kept = self.piece.shared.as_ref().map(|shared| self.kept(shared, segment, head, i));
                let PieceScratch { softmax, sums, totals, .. } = &mut *self.scratch;
                let weight = with_floats(self.of.isa, Weight(&softmax[index]));
                let sums = &sums[index * stride..(index + 1) * stride];
                // Comparisons pass over scores that are no numbers; the result must not.
                let greatest = if weight.is_nan() { f32::NAN } else { softmax[index].greatest };
                let result = Result { greatest, weight, sums };
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
        let head = segment * self.piece.heads.len() + head - self.piece.heads.start;
        shared.first_place + head * self.piece.queries.len() + i
    }

    /// Merges all segments of a shared tile, in order.
    unsafe fn merge_shared(&mut self, shared: &SharedTile) {
        let stride = padded(self.of.attend.sum_width());
        for segment in 0..self.piece.spans.segments() {
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

    /// Writes the totals to the result, turned back if the values were rotated.
    unsafe fn write(&mut self) {
        let (attend, isa) = (self.of.attend, self.of.isa);
        let dim = attend.value_dim;
        for (head, slot) in self.heads() {
            for i in 0..self.piece.queries.len() {
                let (row, query_head) = self.place(head, i);
                let start = (row * attend.heads + query_head) * dim;
                // SAFETY: as the caller promises.
                let out = unsafe { self.of.out.part(start..start + dim) };
                let sink = self.of.sinks.map(|sinks| sinks[query_head]);
                let PieceScratch { totals, blocks, .. } = &mut *self.scratch;
                if attend.sums_rotated() {
                    let whole = &mut blocks.row.entries[..attend.sum_width()];
                    totals.write(isa, slot + i, sink, whole);
                    rotate(isa, whole);
                    out.copy_from_slice(&whole[..dim]);
                } else {
                    totals.write(isa, slot + i, sink, out);
                }
            }
        }
    }
}
