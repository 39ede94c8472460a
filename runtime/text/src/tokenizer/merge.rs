//! Byte-pair merging with a heap: one routine for merges by rank and merges by score.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::vocab::Vocabulary;

/// No symbol: the index before the first and behind the last.
const NONE: u32 = u32::MAX;

/// A stretch of the text that is, or may become, a token. Positions are 32 bits wide, as a text of a million characters
/// may be one piece and then is as fast as the memory it takes is small.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    start: u32,
    end: u32,
    /// Its id, if it is a token as it stands.
    pub(crate) id: Option<u32>,
    previous: u32,
    next: u32,
}

impl Symbol {
    /// Where in the text.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// A symbol that was joined to the one before it covers nothing.
    fn is_gone(&self) -> bool {
        self.start == self.end
    }
}

/// The outcome of joining two neighbours.
pub(crate) struct Merge {
    /// The lowest is done first; among equals the leftmost.
    pub(crate) rank: u32,
    /// The token they become.
    pub(crate) id: u32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    right: u32,
    end: u32,
    id: u32,
}

/// The symbols of one piece of text, in order.
#[derive(Default)]
pub(crate) struct Symbols {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

impl Symbols {
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.heap.clear();
    }

    /// Appends a symbol. Text beyond 4 GiB is not taken; callers refuse it earlier.
    pub(crate) fn push(&mut self, range: Range<usize>, id: Option<u32>) {
        let index = u32::try_from(self.symbols.len()).unwrap_or(NONE);
        let (Ok(start), Ok(end)) = (u32::try_from(range.start), u32::try_from(range.end)) else { return };
        if let Some(last) = self.symbols.last_mut() {
            last.next = index;
        }
        self.symbols.push(Symbol { start, end, id, previous: index.wrapping_sub(1), next: NONE });
    }

    fn get(&self, index: u32) -> Option<&Symbol> {
        self.symbols.get(index as usize)
    }

    /// Joins neighbours, best first, until `join` knows no more.
    pub(crate) fn merge(&mut self, join: impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        for left in 0..self.symbols.len() as u32 {
            self.propose(left, &join);
        }
        while let Some(Reverse(best)) = self.heap.pop() {
            if self.apply(&best) {
                self.propose(best.left, &join);
                if let Some(previous) = self.get(best.left).map(|symbol| symbol.previous) {
                    self.propose(previous, &join);
                }
            }
        }
    }

    /// Puts the pair that begins at `left` on the heap, if it can be joined.
    fn propose(&mut self, left: u32, join: &impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        let Some(first) = self.get(left) else { return };
        let right = first.next;
        let Some(second) = self.get(right) else { return };
        if let Some(Merge { rank, id }) = join(first, second) {
            self.heap.push(Reverse(Candidate { rank, left, right, end: second.end, id }));
        }
    }

    /// Joins the pair unless one of its halves has changed since it was proposed.
    fn apply(&mut self, pair: &Candidate) -> bool {
        let after = match (self.get(pair.left), self.get(pair.right)) {
            (Some(left), Some(right)) if !left.is_gone() && left.next == pair.right && right.end == pair.end => {
                right.next
            }
            _ => return false,
        };
        if let Some(right) = self.symbols.get_mut(pair.right as usize) {
            right.start = right.end;
        }
        if let Some(left) = self.symbols.get_mut(pair.left as usize) {
            left.end = pair.end;
            left.id = Some(pair.id);
            left.next = after;
        }
        if let Some(after) = self.symbols.get_mut(after as usize) {
            after.previous = pair.left;
        }
        true
    }

    /// What is left, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| !symbol.is_gone())
    }
}

/// Pairs of ids with the rank of their merge and what they become.
pub(crate) struct RankedMerges(FxHashMap<(u32, u32), (u32, u32)>);

impl RankedMerges {
    /// Reads "left right" lines, best first. The separator is the first space behind the first character, since a left
    /// half may itself be a space. Lines whose halves or result are no tokens can never apply and are left out.
    pub(crate) fn new(lines: &[Vec<u8>], vocabulary: &Vocabulary) -> Self {
        let mut merges = FxHashMap::with_capacity_and_hasher(lines.len(), Default::default());
        let mut joined = Vec::new();
        for (line, rank) in lines.iter().zip(0..) {
            let Some(space) = line.iter().skip(1).position(|byte| *byte == b' ').map(|at| at + 1) else { continue };
            let (Some(left), Some(right)) = (line.get(..space), line.get(space + 1..)) else { continue };
            joined.clear();
            joined.extend_from_slice(left);
            joined.extend_from_slice(right);
            if let (Some(l), Some(r), Some(id)) = (vocabulary.id(left), vocabulary.id(right), vocabulary.id(&joined)) {
                merges.entry((l, r)).or_insert((rank, id));
            }
        }
        Self(merges)
    }

    pub(crate) fn join(&self, left: &Symbol, right: &Symbol) -> Option<Merge> {
        let (rank, id) = *self.0.get(&(left.id?, right.id?))?;
        Some(Merge { rank, id })
    }
}
