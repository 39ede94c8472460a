//! Finds marks in what a model writes, token by token, however they are cut into tokens.

use std::collections::VecDeque;

/// How far the text at its end has come into the marks. A number that is cheap to keep and to go back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress(usize);

impl Progress {
    /// Its number among all there can be.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// What a token brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No mark yet.
    On(Progress),
    /// A mark is complete.
    Found {
        /// Its number.
        mark: usize,
        /// How many bytes of the token stand behind it.
        behind: usize,
    },
}

/// The marks that count at one place, as a trie of their prefixes with links to the longest suffix that is a prefix too.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    marks: Vec<Vec<u8>>,
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    depth: usize,
    /// A mark on whose way it is.
    mark: usize,
    children: Vec<(u8, usize)>,
    fallback: usize,
    found: Option<usize>,
}

impl Watch {
    /// Looks for these; empty ones are never found.
    pub(crate) fn new(marks: &[&[u8]]) -> Self {
        let mut watch = Self { marks: marks.iter().map(|mark| mark.to_vec()).collect(), nodes: vec![Node::default()] };
        for (number, mark) in marks.iter().enumerate() {
            watch.insert(number, mark);
        }
        watch.link();
        watch
    }

    fn insert(&mut self, number: usize, mark: &[u8]) {
        let mut place = 0;
        for &byte in mark {
            place = self.child(place, byte).unwrap_or_else(|| self.grow(place, byte, number));
        }
        if let Some(node) = self.nodes.get_mut(place).filter(|node| node.depth > 0) {
            node.found = node.found.or(Some(number));
        }
    }

    fn grow(&mut self, parent: usize, byte: u8, mark: usize) -> usize {
        let new = self.nodes.len();
        let depth = self.node(parent).depth + 1;
        if let Some(node) = self.nodes.get_mut(parent) {
            node.children.push((byte, new));
        }
        self.nodes.push(Node { depth, mark, ..Node::default() });
        new
    }

    /// Sets the fallbacks, nearest to the root first: that of a child is found from that of its parent.
    fn link(&mut self) {
        let mut ahead = VecDeque::from([0]);
        while let Some(place) = ahead.pop_front() {
            for (byte, child) in self.node(place).children.clone() {
                let fallback = if place == 0 { 0 } else { self.step(self.node(place).fallback, byte) };
                let found = self.node(fallback).found;
                if let Some(node) = self.nodes.get_mut(child) {
                    node.fallback = fallback;
                    node.found = node.found.or(found);
                }
                ahead.push_back(child);
            }
        }
    }

    fn node(&self, place: usize) -> &Node {
        self.nodes.get(place).unwrap_or_else(|| self.root())
    }

    fn root(&self) -> &Node {
        const NONE: &Node = &Node { depth: 0, mark: 0, children: Vec::new(), fallback: 0, found: None };
        self.nodes.first().unwrap_or(NONE)
    }

    fn child(&self, place: usize, byte: u8) -> Option<usize> {
        self.node(place).children.iter().find(|(edge, _)| *edge == byte).map(|(_, child)| *child)
    }

    fn step(&self, mut place: usize, byte: u8) -> usize {
        loop {
            match self.child(place, byte) {
                Some(child) => return child,
                None if place == 0 => return 0,
                None => place = self.node(place).fallback,
            }
        }
    }

    /// Goes through the bytes of a token, to the first mark that they complete.
    pub(crate) fn feed(&self, progress: Progress, bytes: &[u8]) -> Seen {
        let mut place = progress.0;
        for (index, &byte) in bytes.iter().enumerate() {
            place = self.step(place, byte);
            if let Some(mark) = self.node(place).found {
                return Seen::Found { mark, behind: bytes.len() - index - 1 };
            }
        }
        Seen::On(Progress(place))
    }

    /// All there can be.
    pub(crate) fn all_progress(&self) -> impl Iterator<Item = Progress> + use<> {
        (0..self.nodes.len()).map(Progress)
    }

    /// What of a mark may follow to complete it: the rest of each mark that the text ends with a part of, with its number.
    pub(crate) fn rests(&self, progress: Progress) -> Vec<(usize, &[u8])> {
        let mut rests = Vec::new();
        let mut place = progress.0;
        while place != 0 {
            let node = self.node(place);
            let prefix = self.marks.get(node.mark).and_then(|mark| mark.get(..node.depth)).unwrap_or_default();
            let ways =
                self.marks.iter().enumerate().filter_map(|(number, mark)| Some((number, mark.strip_prefix(prefix)?)));
            rests.extend(ways);
            place = node.fallback;
        }
        rests
    }

    /// What of this mark is missing at least.
    pub(crate) fn rest_of(&self, mark: usize, progress: Progress) -> &[u8] {
        let begun = self.rests(progress).into_iter().find(|(number, _)| *number == mark);
        begun.map_or_else(|| self.marks.get(mark).map(Vec::as_slice).unwrap_or_default(), |(_, rest)| rest)
    }

    pub(crate) fn marks(&self) -> &[Vec<u8>] {
        &self.marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Where the first of the marks ends in a text, and which it is, by looking everywhere.
    fn naive(marks: &[&[u8]], text: &[u8]) -> Option<(usize, usize)> {
        (0..=text.len()).find_map(|end| {
            let ends = |mark: &&[u8]| !mark.is_empty() && text[..end].ends_with(mark);
            marks.iter().position(ends).map(|mark| (marks[mark].len(), end))
        })
    }

    proptest! {
        #[test]
        fn marks_are_found_where_they_first_end_however_the_text_is_cut(
            marks in prop::collection::vec("[ab]{1,4}", 1..4),
            tokens in prop::collection::vec("[abc]{0,3}", 0..12),
        ) {
            let marks: Vec<&[u8]> = marks.iter().map(String::as_bytes).collect();
            let watch = Watch::new(&marks);
            let (mut progress, mut read, mut found) = (Progress::default(), 0, None);
            for token in &tokens {
                read += token.len();
                match watch.feed(progress, token.as_bytes()) {
                    Seen::On(next) => progress = next,
                    Seen::Found { behind, .. } => {
                        found = Some(read - behind);
                        break;
                    }
                }
            }
            prop_assert_eq!(found, naive(&marks, tokens.concat().as_bytes()).map(|(_, end)| end));
        }

        #[test]
        fn what_is_missing_completes_the_mark(mark in "[ab]{1,6}", text in "[ab]{0,12}") {
            let watch = Watch::new(&[mark.as_bytes()]);
            if let Seen::On(progress) = watch.feed(Progress::default(), text.as_bytes()) {
                let rest = watch.rest_of(0, progress);
                prop_assert_eq!(watch.feed(progress, rest), Seen::Found { mark: 0, behind: 0 });
                for (_, rest) in watch.rests(progress) {
                    let found = matches!(watch.feed(progress, rest), Seen::Found { .. });
                    prop_assert!(found);
                }
            }
        }
    }
}
