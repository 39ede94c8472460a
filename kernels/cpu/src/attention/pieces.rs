//! Cuts a step's attention into pieces of work.
//!
//! A *tile* is a run of queries of one sequence that share a head of keys. A piece is a tile, some heads of keys, and some
//! blocks of keys. Tiles of few queries wait for memory: they take all heads together, whose keys lie side by side. Tiles
//! of many queries take one head, whose keys then stay in the nearest cache. A tile that sees so many keys that others
//! would wait for it is cut at segments; whoever finishes its last piece merges them. How work is cut changes no bit of
//! the result.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};

use bantam_backend::Step;

use super::{
    SLOTS, TILE_QUERIES,
    kernels::QUERY_GROUP,
    sight::{Sight, Spans, Stand},
};
use crate::{compile::ir::Attend, step::RowMap};

/// Pieces per member to aim for, so that none waits long for the last.
const PIECES_PER_MEMBER: usize = 4;

/// What the cut of an attention depends on. Attentions that are alike in it share the pieces of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Query heads per head of keys.
    group: usize,
    /// Heads of keys.
    kv_heads: usize,
    /// What a query sees.
    sight: Sight,
}

impl Cut {
    /// Of an attention.
    pub(crate) fn of(attend: &Attend) -> Self {
        Cut { group: attend.group(), kv_heads: attend.k.heads, sight: attend.sight }
    }

    /// What a query sees.
    pub(crate) fn sight(&self) -> &Sight {
        &self.sight
    }
}

/// Queries of one sequence: a run in the list of all rows' queries for one head of keys, `row × group + query head`.
#[derive(Clone, Debug)]
struct Tile {
    sequence: usize,
    queries: Range<usize>,
    /// Blocks of keys that some query sees.
    spans: Spans,
}

impl Tile {
    /// Heads of keys that a piece can take at once.
    fn heads_at_once(&self, kv_heads: usize) -> usize {
        if self.queries.len() <= QUERY_GROUP { kv_heads.min(SLOTS / QUERY_GROUP) } else { 1 }
    }
}

/// A piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The step's sequence.
    pub(crate) sequence: usize,
    /// The tile's queries.
    pub(crate) queries: Range<usize>,
    /// Heads of keys.
    pub(crate) heads: Range<usize>,
    /// Blocks of keys of the tile.
    pub(crate) spans: Spans,
    /// Segments of them.
    pub(crate) segments: Range<usize>,
    /// Where the segments of a tile meet that was cut.
    pub(crate) shared: Option<SharedTile>,
}

/// A tile with some heads that several pieces work on.
#[derive(Clone, Debug)]
pub(crate) struct SharedTile {
    /// First of the places for its segments' results: `[segment][head][query]`.
    pub(crate) first_place: usize,
    /// Index of the count of its pieces.
    count: usize,
    pieces: u32,
}

/// The pieces of a step. Made once with room for any step.
#[derive(Debug)]
pub(crate) struct Pieces {
    cut: Cut,
    members: usize,
    /// Places for results of segments.
    places: usize,
    tiles: Vec<Tile>,
    pieces: Vec<Piece>,
    /// Unfinished pieces of each shared tile.
    unfinished: Vec<AtomicU32>,
}

impl Pieces {
    /// Room for any step of up to `rows` rows on a team of `members`, with `places` for results of segments.
    pub(crate) fn with_capacity(cut: Cut, rows: usize, members: usize, places: usize) -> Self {
        let tiles = rows * (cut.group / TILE_QUERIES + 1);
        let extra = PIECES_PER_MEMBER * members;
        Pieces {
            cut,
            members,
            places,
            tiles: Vec::with_capacity(tiles),
            pieces: Vec::with_capacity(tiles * cut.kv_heads + extra),
            unfinished: (0..extra).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// What they are cut by.
    pub(crate) fn cut(&self) -> Cut {
        self.cut
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Piece `index`, the largest first.
    pub(crate) fn piece(&self, index: usize) -> &Piece {
        // The last tiles of a prompt see the most keys.
        &self.pieces[self.pieces.len() - 1 - index]
    }

    /// Notes that a piece of a shared tile is finished; true if it was the last.
    pub(crate) fn finish(&self, shared: &SharedTile) -> bool {
        let unfinished = &self.unfinished[shared.count];
        let last = unfinished.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            // For the next attention of the step.
            unfinished.store(shared.pieces, Ordering::Relaxed);
        }
        last
    }

    /// Cuts the rows of a step.
    pub(crate) fn lay_out(&mut self, rows: &RowMap, step: &Step) {
        self.cut_tiles(rows, step);
        self.pieces.clear();
        let cut = self.cut;
        let cost = |t: &Tile, heads: usize| t.queries.len() * t.spans.blocks() * heads;
        let total: usize = self.tiles.iter().map(|t| cost(t, cut.kv_heads)).sum();
        let target = total.div_ceil(PIECES_PER_MEMBER * self.members).max(1);
        let (mut place, mut count) = (0, 0);
        for i in 0..self.tiles.len() {
            let tile = self.tiles[i].clone();
            let at_once = self.heads_at_once(&tile);
            for first in (0..cut.kv_heads).step_by(at_once) {
                let heads = first..(first + at_once).min(cut.kv_heads);
                let parts = (cost(&tile, heads.len()) / target).min(tile.spans.segments());
                let places = tile.spans.segments() * heads.len() * tile.queries.len();
                let fits = place + places <= self.places && count < self.unfinished.len();
                if self.members > 1 && parts > 1 && fits {
                    self.share(&tile, &heads, parts, place, count);
                    (place, count) = (place + places, count + 1);
                } else {
                    let Tile { sequence, queries, spans } = tile.clone();
                    let segments = 0..spans.segments();
                    self.pieces.push(Piece { sequence, queries, heads, spans, segments, shared: None });
                }
            }
        }
    }

    /// Heads of keys that pieces of a tile take together: fewer where there would be too few pieces for all members.
    fn heads_at_once(&self, tile: &Tile) -> usize {
        let most = tile.heads_at_once(self.cut.kv_heads);
        let pieces = self.tiles.len() * tile.spans.segments() * self.cut.kv_heads.div_ceil(most);
        let wanted = PIECES_PER_MEMBER * self.members;
        if self.members == 1 || pieces >= wanted { most } else { (most * pieces / wanted).max(1) }
    }

    fn cut_tiles(&mut self, rows: &RowMap, step: &Step) {
        self.tiles.clear();
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
                self.tiles.push(Tile { sequence, queries, spans });
            }
        }
    }

    /// Cuts a tile into `parts` pieces, at segments.
    fn share(&mut self, tile: &Tile, heads: &Range<usize>, parts: usize, first_place: usize, count: usize) {
        let bound = |part: usize| tile.spans.segments() * part / parts;
        let shared = SharedTile { first_place, count, pieces: parts as u32 };
        for part in 0..parts {
            let Tile { sequence, queries, spans } = tile.clone();
            let (heads, segments) = (heads.clone(), bound(part)..bound(part + 1));
            self.pieces.push(Piece { sequence, queries, heads, spans, segments, shared: Some(shared.clone()) });
        }
        self.unfinished[count].store(parts as u32, Ordering::Relaxed);
    }
}

impl RowMap {
    /// Where the query of a row stands.
    pub(super) fn stand(&self, row: usize, step: &Step) -> Stand {
        let sequence = &step.sequences[self.sequences[row] as usize];
        Stand { position: self.positions[row] as usize, start: sequence.start, rows: sequence.rows }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bantam_backend::SequenceStep;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        attention::sight::{CompressedSight, Own, Source},
        pool::PAGE_ROWS,
    };

    fn step(sequences: &[(usize, usize)]) -> (RowMap, Step) {
        let (mut map, mut step) = (RowMap::default(), Step::default());
        for (s, &(start, rows)) in sequences.iter().enumerate() {
            map.positions.extend((start..start + rows).map(|p| p as u32));
            map.sequences.extend(std::iter::repeat_n(s as u32, rows));
            map.tokens.extend(std::iter::repeat_n(0, rows));
            step.sequences.push(SequenceStep { start, rows, ..SequenceStep::default() });
        }
        (map, step)
    }

    fn sight(window: Option<usize>) -> Sight {
        Sight { window, own: Own::Stored, block: None, compressed: None }
    }

    proptest! {
        #[test]
        fn every_query_meets_every_block_once(
            sequences in prop::collection::vec((0usize..20_000, 1usize..40), 1..5),
            (group, kv_heads) in (1usize..40, 1usize..9),
            (window, chosen) in (prop::option::of(1usize..3000), prop::option::of(1usize..700)),
            own in prop::sample::select(vec![Own::Stored, Own::Beside, Own::Missing]),
            (members, places) in (1usize..9, 0usize..4000),
        ) {
            let compressed = Some(CompressedSight { stride: 4, chosen, own: true });
            let cut = Cut { group, kv_heads, sight: Sight { own, compressed, ..sight(window) } };
            let (map, step) = step(&sequences);
            let mut pieces = Pieces::with_capacity(cut, map.len(), members, places);
            let capacity = pieces.pieces.capacity();
            pieces.lay_out(&map, &step);
            prop_assert_eq!(pieces.pieces.capacity(), capacity, "no growth within a step");
            let mut met: HashMap<(usize, usize), Vec<(Source, usize)>> = HashMap::new();
            for i in 0..pieces.len() {
                let piece = pieces.piece(i);
                prop_assert!(piece.heads.len() * piece.queries.len().next_multiple_of(QUERY_GROUP) <= SLOTS);
                if let Some(shared) = &piece.shared {
                    let end = piece.spans.segments() * piece.heads.len() * piece.queries.len();
                    prop_assert!(shared.first_place + end <= places, "results of segments have places");
                }
                for (query, head) in piece.queries.clone().flat_map(|q| piece.heads.clone().map(move |h| (q, h))) {
                    let met = met.entry((query, head)).or_default();
                    for (source, blocks) in piece.segments.clone().map(|segment| piece.spans.segment(segment)) {
                        met.extend(blocks.map(|block| (source, block)));
                    }
                }
            }
            prop_assert_eq!(met.len(), map.len() * group * kv_heads);
            for ((query, _), mut met) in met {
                let at = map.stand(query / group, &step);
                met.sort_by_key(|(source, block)| (*source as usize, *block));
                for source in [Source::Cache, Source::Step, Source::Compressed] {
                    let blocks: Vec<usize> = met.iter().filter(|(s, _)| *s == source).map(|(_, block)| *block).collect();
                    prop_assert!(blocks.windows(2).all(|w| w[0] + 1 == w[1]), "each once, without gaps");
                    let keys = cut.sight.keys(source, at);
                    let ends = blocks.first().copied().zip(blocks.last().copied());
                    let covers = |first: usize, last: usize| {
                        first * PAGE_ROWS <= keys.start && keys.end <= (last + 1) * PAGE_ROWS
                    };
                    prop_assert!(keys.is_empty() || ends.is_some_and(|(first, last)| covers(first, last)));
                }
            }
        }

        #[test]
        fn the_last_piece_of_a_tile_is_told(parts in 2u32..20) {
            let cut = Cut { group: 1, kv_heads: 1, sight: sight(None) };
            let (map, step) = step(&[(100_000, 1)]);
            let mut pieces = Pieces::with_capacity(cut, 1, parts as usize, 10_000);
            pieces.lay_out(&map, &step);
            let shared = pieces.piece(0).shared.clone().unwrap();
            for _layer in 0..2 {
                let told: Vec<bool> = (0..pieces.len()).map(|_| pieces.finish(&shared)).collect();
                prop_assert_eq!(told.iter().filter(|t| **t).count(), 1);
                prop_assert!(told[told.len() - 1]);
            }
        }
    }
}
