//! Cuts a step's attention into pieces of work.
//!
//! A piece is a tile (`tiles`), some heads of keys, and some blocks of keys. Tiles of few queries wait for memory: they take
//! all heads together, whose keys lie side by side. Tiles of many queries take one head, whose keys then stay in the nearest
//! cache. A tile that takes so long that others would wait for it is cut at segments; whoever finishes its last piece merges
//! them. How work is cut changes no bit of the result.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};

use bantam_backend::Step;

use super::{
    SLOTS,
    kernels::QUERY_GROUP,
    sight::Spans,
    tiles::{Cut, Stretch, Tile, Tiles},
};
use crate::step::RowMap;

/// Pieces per member to aim for, so that none waits long for the last.
const PIECES_PER_MEMBER: usize = 4;

/// A piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The tile's stretches.
    stretches: Range<usize>,
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
    tiles: Tiles,
    pieces: Vec<Piece>,
    /// Unfinished pieces of each shared tile.
    unfinished: Vec<AtomicU32>,
}

impl Pieces {
    /// Room for any step of up to `rows` rows on a team of `members`, with `places` for results of segments.
    pub(crate) fn with_capacity(cut: Cut, rows: usize, members: usize, places: usize) -> Self {
        let tiles = Tiles::with_capacity(cut, rows);
        let extra = PIECES_PER_MEMBER * members;
        Pieces {
            cut,
            members,
            places,
            pieces: Vec::with_capacity(tiles.capacity() * cut.kv_heads + extra),
            tiles,
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

    /// What a piece has of each sequence.
    pub(super) fn stretches(&self, piece: &Piece) -> &[Stretch] {
        self.tiles.stretches(&piece.stretches)
    }

    /// Cuts the rows of a step.
    pub(crate) fn lay_out(&mut self, rows: &RowMap, step: &Step) {
        let Pieces { cut, members, places, ref mut tiles, ref mut pieces, ref mut unfinished } = *self;
        tiles.lay_out(rows, step, members);
        pieces.clear();
        let wanted = PIECES_PER_MEMBER * members;
        let total: usize = tiles.tiles().iter().map(|tile| tile.cost * cut.kv_heads).sum();
        let target = total.div_ceil(wanted).max(1);
        let (mut place, mut count) = (0, 0);
        for tile in tiles.tiles() {
            let at_once = heads_at_once(tile, tiles.tiles().len(), cut.kv_heads, members);
            for first in (0..cut.kv_heads).step_by(at_once) {
                let heads = first..(first + at_once).min(cut.kv_heads);
                let parts = (tile.cost * heads.len() / target).min(tile.spans.segments());
                let end = place + tile.spans.segments() * heads.len() * tile.queries.len();
                let piece = Piece::of(tile, heads);
                if members > 1 && parts > 1 && end <= places && count < unfinished.len() {
                    let shared = SharedTile { first_place: place, count, pieces: parts as u32 };
                    unfinished[count].store(shared.pieces, Ordering::Relaxed);
                    let part = |segments| Piece { segments, shared: Some(shared.clone()), ..piece.clone() };
                    pieces.extend(Parts::of(tile, tiles, parts).map(part));
                    (place, count) = (end, count + 1);
                } else {
                    pieces.push(piece);
                }
            }
        }
    }
}

/// Heads of keys that pieces of one of so many tiles take together: fewer where there would be too few pieces for all members.
fn heads_at_once(tile: &Tile, tiles: usize, kv_heads: usize, members: usize) -> usize {
    let most = if tile.queries.len() <= QUERY_GROUP { kv_heads.min(SLOTS / QUERY_GROUP) } else { 1 };
    let pieces = tiles * tile.spans.segments() * kv_heads.div_ceil(most);
    let wanted = PIECES_PER_MEMBER * members;
    if members == 1 || pieces >= wanted { most } else { (most * pieces / wanted).max(1) }
}

impl Piece {
    /// Some heads of a whole tile.
    fn of(tile: &Tile, heads: Range<usize>) -> Self {
        let Tile { queries, stretches, spans, .. } = tile.clone();
        let segments = 0..spans.segments();
        Piece { stretches, queries, heads, spans, segments, shared: None }
    }
}

/// The parts in which a tile is cut, as runs of segments that take about as long as each other.
struct Parts<'a> {
    tile: &'a Tile,
    tiles: &'a Tiles,
    parts: usize,
    /// Parts that have been told.
    told: usize,
    /// The first segment of the next one, and what those before it take.
    first: usize,
    spent: usize,
}

impl<'a> Parts<'a> {
    /// `parts` of them, no more than there are segments.
    fn of(tile: &'a Tile, tiles: &'a Tiles, parts: usize) -> Self {
        Parts { tile, tiles, parts, told: 0, first: 0, spent: 0 }
    }
}

impl Iterator for Parts<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.told == self.parts {
            return None;
        }
        self.told += 1;
        let start = self.first;
        // Each part has a segment at least, those that are yet to come too.
        let last = self.tile.spans.segments() - (self.parts - self.told);
        while self.first < last {
            self.spent += self.tiles.cost(self.tile, self.first);
            self.first += 1;
            if self.told < self.parts && self.spent * self.parts >= self.told * self.tile.cost {
                break;
            }
        }
        Some(start..self.first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bantam_backend::SequenceStep;
    use proptest::prelude::*;

    use super::{
        super::tiles::{Run, find_runs},
        *,
    };
    use crate::{
        attention::{
            TILE_QUERIES,
            sight::{CompressedSight, Own, Sight, Source},
        },
        pool::PAGE_ROWS,
    };

    /// A sequence of a step: tokens before it, rows, and how many pages it begins with of the sequence before it.
    type Sequence = (usize, usize, usize);

    fn step(sequences: &[Sequence]) -> (RowMap, Step) {
        let (mut map, mut step) = (RowMap::default(), Step::default());
        let (mut pages, mut before) = (0, Vec::new());
        for (s, &(start, rows, shared)) in sequences.iter().enumerate() {
            map.positions.extend((start..start + rows).map(|p| p as u32));
            map.sequences.extend(std::iter::repeat_n(s as u32, rows));
            map.tokens.extend(std::iter::repeat_n(0, rows));
            let own = pages..pages + (start + rows).div_ceil(PAGE_ROWS) as u32;
            pages = own.end;
            let table: Vec<u32> =
                own.enumerate().map(|(i, own)| *before[..shared.min(before.len())].get(i).unwrap_or(&own)).collect();
            before.clone_from(&table);
            step.sequences.push(SequenceStep { start, rows, tables: vec![table], ..SequenceStep::default() });
        }
        (map, step)
    }

    fn sight(window: Option<usize>) -> Sight {
        Sight { window, own: Own::Stored, block: None, compressed: None }
    }

    /// Of sequences that may be joined.
    fn causal(group: usize, kv_heads: usize) -> Cut {
        Cut { group, kv_heads, sight: sight(None), joined_by: Some([0, 0]) }
    }

    /// What a piece reads: blocks, and which of its queries see something of them.
    fn reads(pieces: &Pieces, piece: &Piece, (map, step): (&RowMap, &Step)) -> Vec<(Source, usize, Run)> {
        let cut = pieces.cut();
        let (mut all, mut runs) = (Vec::new(), Vec::new());
        for (source, blocks) in piece.segments.clone().map(|segment| piece.spans.segment(segment)) {
            for block in blocks {
                let mask = |query: usize| cut.sight.mask(source, block, map.stand(query / cut.group, step), None);
                let visible: Vec<u32> = piece.queries.clone().map(mask).collect();
                find_runs(pieces.stretches(piece), block, &visible, &mut runs);
                all.extend(runs.iter().map(|run| (source, block, *run)));
            }
        }
        all
    }

    proptest! {
        #[test]
        fn every_query_meets_every_block_once(
            sequences in prop::collection::vec((0usize..20_000, 1usize..40, 0usize..700), 1..6),
            (group, kv_heads) in (1usize..40, 1usize..9),
            (window, chosen) in (prop::option::of(1usize..3000), prop::option::of(1usize..700)),
            own in prop::sample::select(vec![Own::Stored, Own::Beside, Own::Missing]),
            is_causal in any::<bool>(),
            (members, places) in (1usize..9, 0usize..4000),
        ) {
            let compressed = Some(CompressedSight { stride: 4, chosen, own: true });
            let cut = match is_causal {
                true => causal(group, kv_heads),
                false => Cut { group, kv_heads, sight: Sight { own, compressed, ..sight(window) }, joined_by: None },
            };
            let (map, step) = step(&sequences);
            let mut pieces = Pieces::with_capacity(cut, map.len(), members, places);
            let capacity = pieces.pieces.capacity();
            pieces.lay_out(&map, &step);
            prop_assert_eq!(pieces.pieces.capacity(), capacity, "no growth within a step");
            let mut met: HashMap<(usize, usize), Vec<(Source, usize)>> = HashMap::new();
            for i in 0..pieces.len() {
                let piece = pieces.piece(i);
                prop_assert!(piece.queries.len() <= TILE_QUERIES);
                prop_assert!(piece.heads.len() * piece.queries.len().next_multiple_of(QUERY_GROUP) <= SLOTS);
                if let Some(shared) = &piece.shared {
                    let end = piece.spans.segments() * piece.heads.len() * piece.queries.len();
                    prop_assert!(shared.first_place + end <= places, "results of segments have places");
                }
                for (source, block, run) in reads(&pieces, piece, (&map, &step)) {
                    for query in run.queries().map(|i| piece.queries.start + i) {
                        let sequence = map.sequences[query / group] as usize;
                        let [read, wanted] = [run.sequence, sequence].map(|s| step.sequences[s].tables[0].get(block));
                        let seen = cut.sight.mask(source, block, map.stand(query / group, &step), None) != 0;
                        prop_assert!(source != Source::Cache || !seen || read == wanted, "block {} is another's", block);
                        if seen {
                            piece.heads.clone().for_each(|head| met.entry((query, head)).or_default().push((source, block)));
                        }
                    }
                }
            }
            for (query, head) in (0..map.len() * group).flat_map(|query| (0..kv_heads).map(move |head| (query, head))) {
                let at = map.stand(query / group, &step);
                let mut met = met.remove(&(query, head)).unwrap_or_default();
                met.sort_by_key(|(source, block)| (*source as usize, *block));
                let blocks_of = |source: Source| {
                    let keys = cut.sight.keys(source, at);
                    let blocks = keys.start / PAGE_ROWS..if keys.is_empty() { 0 } else { keys.end.div_ceil(PAGE_ROWS) };
                    blocks.map(move |block| (source, block))
                };
                let wanted: Vec<(Source, usize)> =
                    [Source::Cache, Source::Step, Source::Compressed].into_iter().flat_map(blocks_of).collect();
                prop_assert_eq!(met, wanted, "query {}, head {}", query, head);
            }
        }

        #[test]
        fn what_neighbours_share_is_read_once(
            shared in 4usize..100,
            own in prop::collection::vec(1usize..2000, 2..9),
            (group, kv_heads) in (1usize..5, 1usize..5),
            members in 1usize..4,
        ) {
            let sequences: Vec<Sequence> = own.iter().map(|own| (shared * PAGE_ROWS + own - 1, 1, shared)).collect();
            let (map, step) = step(&sequences);
            let mut pieces = Pieces::with_capacity(causal(group, kv_heads), map.len(), members, 1 << 14);
            pieces.lay_out(&map, &step);
            let blocks: usize = (0..pieces.len()).map(|i| pieces.piece(i)).map(|piece| {
                piece.heads.len() * reads(&pieces, piece, (&map, &step)).len()
            }).sum();
            let own: usize = own.iter().map(|own| own.div_ceil(PAGE_ROWS)).sum();
            let joined = pieces.tiles.tiles().len();
            prop_assert_eq!(blocks, kv_heads * (joined * shared + own));
            prop_assert!(joined == 1 || members > 1, "{} tiles", joined);
            prop_assert!(joined == 1 || pieces.len() >= members, "{} pieces", pieces.len());
        }

        #[test]
        fn the_last_piece_of_a_tile_is_told(parts in 2u32..20) {
            let (map, step) = step(&[(100_000, 1, 0)]);
            let mut pieces = Pieces::with_capacity(causal(1, 1), 1, parts as usize, 10_000);
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
