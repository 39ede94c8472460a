//! Which keys a query sees, and in which blocks they lie.
//!
//! Keys come from three sources, which a query walks one after another. In each they lie in blocks of [`PAGE_ROWS`] on a grid
//! that depends on the query's row alone: the cache's pages, the rows of the step itself from its sequence's first one on,
//! and compressed rows, as their pages or as the list of those that were chosen.

use std::ops::Range;

use bantam_graph::NO_ID;

use super::SEGMENT;
use crate::pool::PAGE_ROWS;

/// Where keys lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the pages of the key state.
    Cache,
    /// Among the step's own rows.
    Step,
    /// In rows that stand for several tokens.
    Compressed,
}

/// All sources, in the order in which they are walked.
const SOURCES: [Source; 3] = [Source::Cache, Source::Step, Source::Compressed];

/// What queries see of the keys of the step itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// They are in the cache: each query sees those up to its own.
    Stored,
    /// The cache is another graph's and holds older ones alone.
    Missing,
    /// Every query sees all of its sequence; the cache holds older ones alone.
    Beside,
}

/// What queries see of compressed keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompressedSight {
    /// Tokens that a row stands for.
    pub(crate) stride: usize,
    /// Most rows that are chosen for a query; none: it sees all.
    pub(crate) chosen: Option<usize>,
    /// Whether the rows of the step itself are there.
    pub(crate) own: bool,
}

impl CompressedSight {
    /// Rows that are complete.
    pub(crate) fn complete(&self, at: Stand) -> usize {
        (if self.own { at.position + 1 } else { at.start }) / self.stride
    }
}

/// What a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Keys of the cache that it sees at most.
    pub(crate) window: Option<usize>,
    /// What it sees of the step itself.
    pub(crate) own: Own,
    /// Tokens of a block, where only chosen blocks are visible.
    pub(crate) block: Option<usize>,
    /// What it sees of compressed keys.
    pub(crate) compressed: Option<CompressedSight>,
}

/// Where a query stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stand {
    /// Its index in the sequence.
    pub(crate) position: usize,
    /// The index of the step's first row of the sequence.
    pub(crate) start: usize,
    /// Rows of the sequence in the step.
    pub(crate) rows: usize,
}

impl Sight {
    /// Tokens whose keys lie in the cache and within the window.
    pub(crate) fn cached(&self, at: Stand) -> Range<usize> {
        let behind = at.position + 1;
        // Before a block stands what its first row sees.
        let (end, window_end) = match self.own {
            Own::Stored => (behind, behind),
            Own::Missing => (behind.min(at.start), behind),
            Own::Beside => (at.start, at.start),
        };
        let first = self.window.map_or(0, |window| window_end.saturating_sub(window));
        first.min(end)..end
    }

    /// Compressed rows that are complete.
    pub(crate) fn complete(&self, at: Stand) -> usize {
        self.compressed.map_or(0, |compressed| compressed.complete(at))
    }

    /// Keys of a source, on its grid.
    pub(super) fn keys(&self, source: Source, at: Stand) -> Range<usize> {
        match source {
            Source::Cache => self.cached(at),
            Source::Step => 0..if self.own == Own::Beside { at.rows } else { 0 },
            Source::Compressed => {
                let complete = self.complete(at);
                0..self.compressed.and_then(|c| c.chosen).map_or(complete, |chosen| complete.min(chosen))
            }
        }
    }

    /// Whether a query sees every key of the cache up to its own, or up to the step, and no other keys.
    pub(super) fn is_causal(&self) -> bool {
        self.window.is_none() && self.own != Own::Beside && self.block.is_none() && self.compressed.is_none()
    }

    /// Whether queries of different rows have different keys at the same place of a grid.
    pub(crate) fn is_by_row(&self) -> bool {
        self.compressed.is_some_and(|c| c.chosen.is_some())
    }

    /// The blocks that queries see that stand from `first` to `last`, of one sequence.
    pub(crate) fn spans(&self, first: Stand, last: Stand) -> Spans {
        Spans(SOURCES.map(|source| {
            // Both ends move on from row to row, so all rows between see keys between.
            let keys = match [first, last].map(|at| self.keys(source, at)) {
                [a, b] if b.is_empty() => a,
                [a, b] if a.is_empty() => b,
                [a, b] => a.start.min(b.start)..a.end.max(b.end),
            };
            if keys.is_empty() { 0..0 } else { keys.start / PAGE_ROWS..keys.end.div_ceil(PAGE_ROWS) }
        }))
    }

    /// The keys of a block that a query sees, a bit for each; of the cache those in the chosen blocks `ids`, if there are
    /// such.
    pub(crate) fn mask(&self, source: Source, block: usize, at: Stand, ids: Option<&[u32]>) -> u32 {
        let block = block * PAGE_ROWS..(block + 1) * PAGE_ROWS;
        let mask = bits(&block, self.keys(source, at));
        match (source, self.block, ids) {
            (Source::Cache, Some(tokens), Some(ids)) => mask & chosen(&block, tokens, at, ids),
            _ => mask,
        }
    }
}

/// The keys in chosen blocks of `tokens` tokens, and those behind the last complete block.
fn chosen(block: &Range<usize>, tokens: usize, at: Stand, ids: &[u32]) -> u32 {
    let open = (at.position + 1) / tokens * tokens;
    let mut mask = bits(block, open..at.position + 1);
    // Ids rise, and those that stand for nothing come last.
    let first = ids.partition_point(|id| (*id as usize + 1) * tokens <= block.start);
    for id in ids[first..].iter().take_while(|id| **id != NO_ID && **id as usize * tokens < block.end) {
        let start = *id as usize * tokens;
        mask |= bits(block, start..start + tokens);
    }
    mask
}

/// Bits for the part of a block that lies in a range.
fn bits(block: &Range<usize>, range: Range<usize>) -> u32 {
    let (start, end) = (range.start.max(block.start), range.end.min(block.end));
    match end.checked_sub(start) {
        None | Some(0) => 0,
        Some(len) => u32::MAX >> (PAGE_ROWS - len) << (start - block.start),
    }
}

/// The blocks that some queries see, source by source. They are walked in segments, counted over all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans([Range<usize>; 3]);

impl Spans {
    /// The block behind the last, of any source.
    pub(super) fn end(&self) -> usize {
        self.0.iter().map(|blocks| blocks.end).max().unwrap_or(0)
    }

    /// Takes in the blocks of other queries that see the same sources from their starts on.
    pub(super) fn include(&mut self, other: &Spans) {
        for (blocks, other) in self.0.iter_mut().zip(&other.0) {
            *blocks = blocks.start.min(other.start)..blocks.end.max(other.end);
        }
    }

    /// Segments of all sources.
    pub(crate) fn segments(&self) -> usize {
        self.0.iter().map(segments).sum()
    }

    /// The blocks of a segment. Segments of a source meet at multiples of [`SEGMENT`].
    pub(crate) fn segment(&self, mut index: usize) -> (Source, Range<usize>) {
        for (source, blocks) in SOURCES.into_iter().zip(&self.0) {
            if index < segments(blocks) {
                let segment = blocks.start / SEGMENT + index;
                return (source, (segment * SEGMENT).max(blocks.start)..((segment + 1) * SEGMENT).min(blocks.end));
            }
            index -= segments(blocks);
        }
        (Source::Cache, 0..0)
    }
}

fn segments(blocks: &Range<usize>) -> usize {
    if blocks.is_empty() { 0 } else { blocks.end.div_ceil(SEGMENT) - blocks.start / SEGMENT }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sight() -> impl Strategy<Value = Sight> {
        let own = prop::sample::select(vec![Own::Stored, Own::Missing, Own::Beside]);
        let compressed = (1usize..200, prop::option::of(1usize..70), any::<bool>())
            .prop_map(|(stride, chosen, own)| CompressedSight { stride, chosen, own });
        (prop::option::of(1usize..90), own, prop::option::of(1usize..70), prop::option::of(compressed))
            .prop_map(|(window, own, block, compressed)| Sight { window, own, block, compressed })
    }

    proptest! {
        #[test]
        fn masks_show_what_the_definition_says(
            sight in sight(),
            (start, rows, row) in (0usize..500, 1usize..90, 0usize..90),
            chosen in prop::collection::btree_set(0u32..40, 0..20),
        ) {
            let at = Stand { position: start + row % rows, start, rows };
            let spans = sight.spans(at, at);
            let mut ids: Vec<u32> = chosen.iter().copied().collect();
            ids.extend([NO_ID; 3]);
            let mut seen: [Vec<usize>; 3] = Default::default();
            for segment in 0..spans.segments() {
                let (source, blocks) = spans.segment(segment);
                for block in blocks {
                    let mask = sight.mask(source, block, at, Some(&ids));
                    seen[source as usize].extend((0..PAGE_ROWS).filter(|i| mask >> i & 1 == 1).map(|i| block * PAGE_ROWS + i));
                }
            }
            let p = at.position;
            let in_window = |t: usize| {
                let end = if sight.own == Own::Beside { start } else { p + 1 };
                sight.window.is_none_or(|w| t + w >= end)
            };
            let held = |t: usize| t <= p && (sight.own == Own::Stored || t < start);
            let shown = |t: usize| sight.block.is_none_or(|b| t / b >= (p + 1) / b || chosen.contains(&((t / b) as u32)));
            let cached: Vec<usize> = (0..=p).filter(|t| held(*t) && in_window(*t) && shown(*t)).collect();
            prop_assert_eq!(&seen[0], &cached);
            let own = if sight.own == Own::Beside { rows } else { 0 };
            prop_assert_eq!(&seen[1], &(0..own).collect::<Vec<_>>());
            let compressed = sight.compressed.map_or(0, |c| {
                let complete = if c.own { p + 1 } else { start } / c.stride;
                c.chosen.map_or(complete, |n| n.min(complete))
            });
            prop_assert_eq!(&seen[2], &(0..compressed).collect::<Vec<_>>());
        }
    }
}
