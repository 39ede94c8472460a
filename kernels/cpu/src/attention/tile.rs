//! One tile: the queries of a sequence that read one head of keys together.

use std::ops::Range;

use bantam_backend::{KvType, Step};

use super::{
    SEGMENT, TILE_QUERIES,
    element::{Element, with_element},
    kernels::{QUERY_GROUP, Row, Scores, Soften, Softmax, Values, padded},
};
use crate::{
    compile::ir::Attend,
    exec::frame::Shared,
    isa::Isa,
    pool::{PAGE_TOKENS, Pool, StateSlot},
    simd::{Floats, Kernel, LANES, math, with_floats},
    step::RowMap,
};

/// Queries of one sequence: a run in the list of all rows' queries for one head of keys, `row × group + query head`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tile {
    sequence: usize,
    queries: Range<usize>,
}

/// The tiles of a step's rows.
#[derive(Clone, Debug)]
pub(crate) struct Tiles {
    /// Query heads per head of keys.
    pub(crate) group: usize,
    tiles: Vec<Tile>,
}

impl Tiles {
    /// No tiles yet, but room for those of any step of up to `rows` rows.
    pub(crate) fn with_capacity(group: usize, rows: usize) -> Self {
        Tiles { group, tiles: Vec::with_capacity(rows * (group / TILE_QUERIES + 1)) }
    }

    /// Cuts the rows of a step.
    pub(crate) fn cut(&mut self, rows: &RowMap) {
        self.tiles.clear();
        let mut first = 0;
        for run in rows.sequences.chunk_by(|a, b| a == b) {
            let end = first + run.len() * self.group;
            while first < end {
                let queries = first..end.min(first + TILE_QUERIES);
                first = queries.end;
                self.tiles.push(Tile { sequence: run[0] as usize, queries });
            }
        }
    }
}

/// What a member needs to work on a tile, for the largest of a program's attentions.
#[derive(Debug)]
pub(crate) struct TileScratch {
    queries: Vec<f32>,
    scores: Vec<Row>,
    softmax: Vec<Softmax>,
    corrections: Vec<f32>,
    visible: Vec<Range<usize>>,
    positions: Vec<usize>,
    sums: Vec<f32>,
    total: Total,
}

/// What the finished segments of each query come to.
#[derive(Debug)]
struct Total {
    greatest: Vec<f32>,
    weight: Vec<f32>,
    sums: Vec<f32>,
}

impl TileScratch {
    /// Scratch for heads of at most these numbers of entries.
    pub(crate) fn new(k_dim: usize, v_dim: usize) -> Self {
        let sums = vec![0.0; TILE_QUERIES * padded(v_dim)];
        TileScratch {
            queries: vec![0.0; TILE_QUERIES * k_dim],
            scores: vec![[0.0; PAGE_TOKENS]; TILE_QUERIES],
            softmax: vec![Softmax::EMPTY; TILE_QUERIES],
            corrections: vec![1.0; TILE_QUERIES],
            visible: vec![0..0; TILE_QUERIES],
            positions: vec![0; TILE_QUERIES],
            total: Total { greatest: vec![0.0; TILE_QUERIES], weight: vec![0.0; TILE_QUERIES], sums: sums.clone() },
            sums,
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
    pub(crate) tiles: &'a Tiles,
    pub(crate) isa: Isa,
    /// Queries, `[row][head][entry]`.
    pub(crate) q: &'a [f32],
    /// Results, `[row][head][entry]`.
    pub(crate) out: Shared<'a, f32>,
}

impl Attention<'_> {
    /// Pieces of work: a tile and a head of keys each.
    pub(crate) fn units(&self) -> usize {
        self.tiles.tiles.len() * self.attend.k.heads
    }

    /// Does a piece of work.
    ///
    /// # Safety
    /// The step must have been checked against the pool, nobody may write to it, and no two may do the same unit.
    pub(crate) unsafe fn run(&self, unit: usize, scratch: &mut TileScratch) {
        // The last tiles of a prompt see the most keys: they go first, so that no member is left with one at the end.
        let unit = self.units() - 1 - unit;
        let (tile, head) = (unit / self.attend.k.heads, unit % self.attend.k.heads);
        let tile = TileRun { of: self, tile: &self.tiles.tiles[tile], head, scratch };
        // SAFETY: as this function's.
        unsafe { tile.run() }
    }
}

struct TileRun<'a> {
    of: &'a Attention<'a>,
    tile: &'a Tile,
    head: usize,
    scratch: &'a mut TileScratch,
}

impl TileRun<'_> {
    unsafe fn run(mut self) {
        let attend = self.of.attend;
        self.gather();
        let queries = self.tile.queries.len();
        let positions = &self.scratch.positions[..queries];
        let first = positions.iter().map(|p| attend.first_key(*p)).min().unwrap_or(0) / PAGE_TOKENS;
        let end = positions.iter().max().map_or(0, |p| p / PAGE_TOKENS + 1);
        self.scratch.total.greatest.fill(f32::NEG_INFINITY);
        let mut block = first;
        while block < end {
            let segment = block..end.min((block / SEGMENT + 1) * SEGMENT);
            block = segment.end;
            // SAFETY: as this function's.
            unsafe { self.segment(segment, end) };
            self.merge();
        }
        // SAFETY: the queries' places in the result belong to this tile alone.
        unsafe { self.write() };
    }

    /// Where query `i` of the tile lies: its row, and its head among all query heads.
    fn place(&self, i: usize) -> (usize, usize) {
        let group = self.of.tiles.group;
        let query = self.tile.queries.start + i;
        (query / group, self.head * group + query % group)
    }

    /// Scales the queries and lays them out as the kernels read them.
    fn gather(&mut self) {
        let attend = self.of.attend;
        let dim = attend.k.dim;
        for i in 0..self.tile.queries.len() {
            let (row, head) = self.place(i);
            self.scratch.positions[i] = self.of.rows.positions[row] as usize;
            let query = &self.of.q[(row * attend.heads + head) * dim..][..dim];
            let target = &mut self.scratch.queries[i / QUERY_GROUP * QUERY_GROUP * dim..];
            for (d, q) in query.iter().enumerate() {
                target[d * QUERY_GROUP + i % QUERY_GROUP] = q * attend.scale;
            }
        }
    }

    /// The softmax over some blocks of one segment. `end` is the end of the tile's blocks.
    unsafe fn segment(&mut self, blocks: Range<usize>, end: usize) {
        let attend = self.of.attend;
        let queries = self.tile.queries.len();
        self.scratch.softmax.fill(Softmax::EMPTY);
        self.scratch.sums[..queries * padded(attend.v.dim)].fill(0.0);
        for block in blocks {
            self.look(block);
            let ahead = if block + 1 < end { block + 1 } else { block };
            // SAFETY: as `Attention::run`: pages exist, hold whole heads, and nobody writes to them.
            unsafe {
                with_element!(attend.k.ty, E => self.score::<E>(self.page(&attend.k, block), self.page(&attend.k, ahead)));
                self.soften();
                with_element!(attend.v.ty, E => self.add::<E>(self.page(&attend.v, block), self.page(&attend.v, ahead)));
            }
        }
    }

    /// Notes which keys of a block each query sees.
    fn look(&mut self, block: usize) {
        let start = block * PAGE_TOKENS;
        let queries = self.tile.queries.len();
        for (visible, position) in self.scratch.visible.iter_mut().zip(&self.scratch.positions[..queries]) {
            let first = self.of.attend.first_key(*position).max(start);
            let end = (position + 1).min(start + PAGE_TOKENS);
            *visible = if first < end { first - start..end - start } else { 0..0 };
        }
    }

    fn page(&self, slot: &StateSlot, block: usize) -> *const u8 {
        let table = &self.of.step.sequences[self.tile.sequence].tables[slot.group];
        self.of.pool.head(slot, table[block], self.head)
    }

    unsafe fn score<E: Element>(&mut self, page: *const u8, ahead: *const u8) {
        let dim = self.of.attend.k.dim;
        let queries = self.tile.queries.len();
        // SAFETY: a page holds a whole head, aligned, and nobody writes to it.
        let keys = unsafe { std::slice::from_raw_parts(page.cast::<E::Bits>(), dim * PAGE_TOKENS) };
        let scores = &mut self.scratch.scores[..queries];
        with_floats(self.of.isa, Scores::<E> { queries: &self.scratch.queries, keys, scores, ahead });
    }

    fn soften(&mut self) {
        let queries = self.tile.queries.len();
        let TileScratch { scores, visible, softmax, corrections, .. } = &mut *self.scratch;
        let rows = &mut scores[..queries];
        with_floats(self.of.isa, Soften { rows, visible, softmax, corrections });
    }

    unsafe fn add<E: Element>(&mut self, page: *const u8, ahead: *const u8) {
        let dim = self.of.attend.v.dim;
        // SAFETY: a page holds a whole head, aligned, and nobody writes to it.
        let values = unsafe { std::slice::from_raw_parts(page.cast::<E::Bits>(), dim * PAGE_TOKENS) };
        let mut first = 0;
        for alike in self.scratch.visible[..self.tile.queries.len()].chunk_by(|a, b| a == b) {
            let queries = first..first + alike.len();
            first = queries.end;
            let visible = alike[0].clone();
            if visible.is_empty() {
                continue;
            }
            let rows = &self.scratch.scores[queries.clone()];
            let corrections = &self.scratch.corrections[queries.clone()];
            let sums = &mut self.scratch.sums[queries.start * padded(dim)..queries.end * padded(dim)];
            with_floats(self.of.isa, Values::<E> { rows, corrections, visible, values, dim, sums, ahead });
        }
    }

    /// Adds the finished segment to the total.
    fn merge(&mut self) {
        let stride = padded(self.of.attend.v.dim);
        let TileScratch { softmax, sums, total, .. } = &mut *self.scratch;
        let queries = self.tile.queries.len();
        with_floats(self.of.isa, Merge { softmax: &softmax[..queries], sums, total, stride });
    }

    /// Divides the totals and writes them to the result.
    unsafe fn write(&mut self) {
        let attend = self.of.attend;
        let dim = attend.v.dim;
        for i in 0..self.tile.queries.len() {
            let (row, head) = self.place(i);
            let start = (row * attend.heads + head) * dim;
            // SAFETY: as the caller promises.
            let out = unsafe { self.of.out.part(start..start + dim) };
            let sums = &self.scratch.total.sums[i * padded(dim)..][..dim];
            let weight = self.scratch.total.weight[i];
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum / weight;
            }
        }
    }
}

/// Merges a segment into the total of the segments before it.
struct Merge<'a> {
    softmax: &'a [Softmax],
    sums: &'a [f32],
    total: &'a mut Total,
    stride: usize,
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        for (i, softmax) in self.softmax.iter().enumerate() {
            let range = i * self.stride..(i + 1) * self.stride;
            let (total, sums) = (&mut self.total.sums[range.clone()], &self.sums[range]);
            let weight = s.sum(s.load(&softmax.sums));
            let before = self.total.greatest[i];
            if before == f32::NEG_INFINITY {
                total.copy_from_slice(sums);
                self.total.greatest[i] = softmax.greatest;
                self.total.weight[i] = weight;
            } else if softmax.greatest != f32::NEG_INFINITY {
                let greatest = if softmax.greatest > before { softmax.greatest } else { before };
                let old = math::exp(s, s.splat(before - greatest));
                let new = math::exp(s, s.splat(softmax.greatest - greatest));
                for (total, sum) in total.as_chunks_mut::<LANES>().0.iter_mut().zip(sums.as_chunks::<LANES>().0) {
                    let merged = s.fma(s.load(sum), new, s.mul(s.load(total), old));
                    s.store(total, merged);
                }
                let merged = s.fma(s.splat(weight), new, s.mul(s.splat(self.total.weight[i]), old));
                self.total.weight[i] = s.greatest(merged);
                self.total.greatest[i] = greatest;
            }
        }
    }
}
