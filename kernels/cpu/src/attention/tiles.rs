//! Cuts a step's queries into tiles.
//!
//! A *tile* is a run of queries that share a head of keys: of one sequence, or of neighbours in the step that begin with the
//! same pages. What a tile has of one sequence is a *stretch*. A block is read once for all stretches that find it in the same
//! page: the beginning that sequences share once for all of them, what each has for itself as if it were alone.

use std::ops::Range;

use bantam_backend::Step;

use super::{
    TILE_QUERIES,
    sight::{Sight, Spans, Stand},
};
use crate::{compile::ir::Attend, step::RowMap};

/// Blocks in the same pages from which on sequences are worth a common tile.
const WORTH_JOINING: usize = 4;

/// Queries that a block is combined with in the time that it takes to read it.
const READING: usize = 4;

/// What the cut of an attention depends on. Attentions that are alike in it share the pieces of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Query heads per head of keys.
    pub(super) group: usize,
    /// Heads of keys.
    pub(super) kv_heads: usize,
    /// What a query sees.
    pub(super) sight: Sight,
    /// The state groups of keys and values, where sequences may be joined.
    pub(super) joined_by: Option<[usize; 2]>,
}

impl Cut {
    /// Of an attention.
    pub(crate) fn of(attend: &Attend) -> Self {
        let groups = [attend.k.group, attend.v.map_or(attend.k.group, |v| v.group)];
        Cut {
            group: attend.group(),
            kv_heads: attend.k.heads,
            sight: attend.sight,
            joined_by: attend.sight.is_causal().then_some(groups),
        }
    }
}

/// Queries with a head of keys in common: a run in the list of all rows' queries for it, `row × group + query head`.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub(super) queries: Range<usize>,
    /// Which of all stretches are its own.
    pub(super) stretches: Range<usize>,
    /// Blocks of keys that some query sees.
    pub(super) spans: Spans,
    /// What a head of these takes.
    pub(super) cost: usize,
}

/// What a tile has of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// The step's sequence.
    pub(super) sequence: usize,
    pub(super) queries: Range<usize>,
    /// Blocks at the start of the cache that lie in the same pages as those of the stretch before it in the tile.
    pub(super) shared: usize,
    /// The block behind the last that its queries see, of any source.
    pub(super) end: usize,
}

impl Stretch {
    /// Blocks of a range that must be read for it beside those that the stretches before it read.
    fn reads(&self, blocks: &Range<usize>) -> usize {
        blocks.end.min(self.end).saturating_sub(blocks.start.max(self.shared))
    }

    /// How often its queries meet a block of a range.
    fn meetings(&self, blocks: &Range<usize>) -> usize {
        self.queries.len() * blocks.end.min(self.end).saturating_sub(blocks.start)
    }
}

/// Neighbouring queries of a tile that find a block in the same page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// A sequence of which it is.
    pub(super) sequence: usize,
    /// Number of the first query in the tile.
    pub(super) first: usize,
    /// Queries.
    pub(super) len: usize,
}

impl Run {
    /// Which queries of the tile it has.
    pub(super) fn queries(&self) -> Range<usize> {
        self.first..self.first + self.len
    }
}

/// Finds the runs of a block in which some query sees a key. `visible` are the keys that each query of the tile sees.
pub(super) fn find_runs(stretches: &[Stretch], block: usize, visible: &[u32], runs: &mut Vec<Run>) {
    runs.clear();
    let mut first = 0;
    for stretch in stretches {
        let len = stretch.queries.len();
        match runs.last_mut() {
            Some(run) if block < stretch.shared => run.len += len,
            _ => runs.push(Run { sequence: stretch.sequence, first, len }),
        }
        first += len;
    }
    runs.retain(|run| visible[run.queries()].iter().any(|mask| *mask != 0));
}

/// The tiles of a step. Made once with room for any step.
#[derive(Debug)]
pub(super) struct Tiles {
    cut: Cut,
    tiles: Vec<Tile>,
    stretches: Vec<Stretch>,
}

impl Tiles {
    /// Room for any step of up to `rows` rows.
    pub(super) fn with_capacity(cut: Cut, rows: usize) -> Self {
        let most = rows * (cut.group / TILE_QUERIES + 1);
        Tiles { cut, tiles: Vec::with_capacity(most), stretches: Vec::with_capacity(most) }
    }

    /// Tiles that there can be.
    pub(super) fn capacity(&self) -> usize {
        self.tiles.capacity()
    }

    /// The tiles.
    pub(super) fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// Some of the stretches.
    pub(super) fn stretches(&self, range: &Range<usize>) -> &[Stretch] {
        &self.stretches[range.clone()]
    }

    /// Cuts the rows of a step for a team of `members`.
    pub(super) fn lay_out(&mut self, rows: &RowMap, step: &Step, members: usize) {
        self.cut_sequences(rows, step);
        if let Some(groups) = self.cut.joined_by {
            self.join(step, groups, members);
        }
        for i in 0..self.tiles.len() {
            let tile = &self.tiles[i];
            self.tiles[i].cost = (0..tile.spans.segments()).map(|segment| self.cost(tile, segment)).sum();
        }
    }

    /// Cuts each sequence for itself.
    fn cut_sequences(&mut self, rows: &RowMap, step: &Step) {
        self.tiles.clear();
        self.stretches.clear();
        let Cut { group, sight, .. } = self.cut;
        let mut first = 0;
        for run in rows.sequences.chunk_by(|a, b| a == b) {
            let sequence = run[0] as usize;
            let end = first + run.len() * group;
            while first < end {
                let limit = if sight.is_by_row() { (first / group + 1) * group } else { end };
                let queries = first..limit.min(first + TILE_QUERIES);
                first = queries.end;
                // Positions rise within a sequence.
                let stand = |query: usize| rows.stand(query / group, step);
                let spans = sight.spans(stand(queries.start), stand(queries.end - 1));
                let index = self.stretches.len();
                self.stretches.push(Stretch { sequence, queries: queries.clone(), shared: 0, end: spans.end() });
                self.tiles.push(Tile { queries, stretches: index..index + 1, spans, cost: 0 });
            }
        }
    }

    /// Joins tiles of neighbours that begin with the same pages, as long as pieces for all members are left.
    fn join(&mut self, step: &Step, groups: [usize; 2], members: usize) {
        let segments: usize = self.tiles.iter().map(|tile| tile.spans.segments()).sum();
        let most = segments * self.cut.kv_heads / members;
        let mut last = 0;
        for next in 1..self.tiles.len() {
            let Ok([tile, joining]) = self.tiles.get_disjoint_mut([last, next]) else { continue };
            let fits = tile.queries.len() + joining.queries.len() <= TILE_QUERIES && tile.stretches.len() < most;
            let shared = if fits { shared(&self.stretches[next - 1..=next], step, groups) } else { 0 };
            if shared < WORTH_JOINING {
                last += 1;
                self.tiles.swap(last, next);
                continue;
            }
            self.stretches[next].shared = shared;
            tile.queries.end = joining.queries.end;
            tile.stretches.end = joining.stretches.end;
            tile.spans.include(&joining.spans);
        }
        self.tiles.truncate(last + 1);
    }

    /// What a head of the keys of a segment takes a tile, counted in queries that a block is combined with.
    pub(super) fn cost(&self, tile: &Tile, segment: usize) -> usize {
        let (_, blocks) = tile.spans.segment(segment);
        let of = |stretch: &Stretch| stretch.meetings(&blocks) + READING * stretch.reads(&blocks);
        self.stretches(&tile.stretches).iter().map(of).sum()
    }
}

/// Blocks at the start of the cache that two stretches see in the same pages.
fn shared(pair: &[Stretch], step: &Step, groups: [usize; 2]) -> usize {
    let [a, b] = pair else { return 0 };
    let most = a.end.min(b.end);
    let of_group = |group: usize| {
        let table = |stretch: &Stretch| step.sequences[stretch.sequence].tables.get(group);
        let Some((a, b)) = table(a).zip(table(b)) else { return 0 };
        a.iter().zip(b).take(most).take_while(|(a, b)| a == b).count()
    };
    let [keys, values] = groups;
    if keys == values { of_group(keys) } else { of_group(keys).min(of_group(values)) }
}

impl RowMap {
    /// Where the query of a row stands.
    pub(super) fn stand(&self, row: usize, step: &Step) -> Stand {
        let sequence = &step.sequences[self.sequences[row] as usize];
        Stand { position: self.positions[row] as usize, start: sequence.start, rows: sequence.rows }
    }
}
