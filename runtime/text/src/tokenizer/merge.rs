//! Byte-pair merging with a heap: one routine for merges by rank and merges by score.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use super::vocab::Vocabulary;

const NONE: usize = usize::MAX;

/// A stretch of the text that is, or may become, a token.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    /// Where in the text.
    pub(crate) range: Range<usize>,
    /// Its id, if it is a token as it stands.
    pub(crate) id: Option<u32>,
    previous: usize,
    next: usize,
    merged_away: bool,
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
    left: usize,
    right: usize,
    end: usize,
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

    /// Appends a symbol; `range` must begin where the last one ended.
    pub(crate) fn push(&mut self, range: Range<usize>, id: Option<u32>) {
        let index = self.symbols.len();
        let previous = index.checked_sub(1).unwrap_or(NONE);
        if let Some(last) = self.symbols.last_mut() {
            last.next = index;
        }
        self.symbols.push(Symbol { range, id, previous, next: NONE, merged_away: false });
    }

    /// Joins neighbours, best first, until `join` knows no more.
    pub(crate) fn merge(&mut self, join: impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        for left in 0..self.symbols.len() {
            self.propose(left, &join);
        }
        while let Some(Reverse(best)) = self.heap.pop() {
            if self.apply(&best) {
                self.propose(best.left, &join);
                if let Some(previous) = self.symbols.get(best.left).map(|symbol| symbol.previous) {
                    self.propose(previous, &join);
                }
            }
        }
    }

    /// Puts the pair that begins at `left` on the heap, if it can be joined.
    fn propose(&mut self, left: usize, join: &impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        let Some(first) = self.symbols.get(left) else { return };
        let right = first.next;
        let Some(second) = self.symbols.get(right) else { return };
        if let Some(Merge { rank, id }) = join(first, second) {
            self.heap.push(Reverse(Candidate { rank, left, right, end: second.range.end, id }));
        }
    }

    /// Joins the pair unless one of its halves has changed since it was proposed.
    fn apply(&mut self, pair: &Candidate) -> bool {
        let after = match (self.symbols.get(pair.left), self.symbols.get(pair.right)) {
            (Some(left), Some(right))
                if !left.merged_away && left.next == pair.right && right.range.end == pair.end =>
            {
                right.next
            }
            _ => return false,
        };
        if let Some(right) = self.symbols.get_mut(pair.right) {
            right.merged_away = true;
        }
        if let Some(left) = self.symbols.get_mut(pair.left) {
            left.range.end = pair.end;
            left.id = Some(pair.id);
            left.next = after;
        }
        if let Some(after) = self.symbols.get_mut(after) {
            after.previous = pair.left;
        }
        true
    }

    /// What is left, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| !symbol.merged_away)
    }
}

/// Pairs of ids with the rank of their merge and what they become.
pub(crate) struct RankedMerges(HashMap<(u32, u32), (u32, u32)>);

impl RankedMerges {
    /// Reads "left right" lines, best first. The separator is the first space behind the first character, since a left
    /// half may itself be a space. Lines whose halves or result are no tokens can never apply and are left out.
    pub(crate) fn new(lines: &[Vec<u8>], vocabulary: &Vocabulary) -> Self {
        let mut merges = HashMap::with_capacity(lines.len());
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
