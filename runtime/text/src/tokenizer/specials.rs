//! Finding special tokens in text.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::spec::TokenType;
use super::vocab::Vocabulary;
use crate::TokenizerError;

/// Most bytes of a special token. Real ones have a few dozen; the search's tables take the square of a length.
const MAX_BYTES: usize = 1024;

/// A token that is looked for in the text itself, before any normalizing.
pub(crate) struct Special {
    pub(crate) id: u32,
    pub(crate) text: String,
    /// Only recognised where the text is trusted.
    pub(crate) control: bool,
    /// Takes the white space before it.
    pub(crate) strips_left: bool,
    /// Takes the white space behind it.
    pub(crate) strips_right: bool,
    /// Must not touch letters or digits.
    pub(crate) whole_word: bool,
}

impl Special {
    pub(crate) fn new(id: u32, text: String, control: bool) -> Self {
        Self { id, text, control, strips_left: false, strips_right: false, whole_word: false }
    }
}

/// Where a special token was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) range: Range<usize>,
    pub(crate) id: u32,
}

/// Searches for all special tokens at once: leftmost first, the longest of those that begin at one place.
pub(crate) struct SpecialTokens {
    automaton: AhoCorasick,
    tokens: Vec<Special>,
    /// The texts of the control tokens, sorted.
    controls: Vec<String>,
}

impl SpecialTokens {
    pub(crate) fn new(mut tokens: Vec<Special>) -> Result<Self, TokenizerError> {
        tokens.retain(|token| !token.text.is_empty());
        if let Some(token) = tokens.iter().find(|token| token.text.len() > MAX_BYTES) {
            return Err(TokenizerError::LongSpecial { id: token.id, bytes: token.text.len(), most: MAX_BYTES });
        }
        let mut controls: Vec<String> =
            tokens.iter().filter(|token| token.control).map(|token| token.text.clone()).collect();
        controls.sort_unstable();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|token| token.text.as_bytes()))
            .map_err(|error| TokenizerError::Library { what: "indexing special tokens", reason: error.to_string() })?;
        Ok(Self { automaton, tokens, controls })
    }

    /// The control, unknown and user-defined tokens of `vocabulary`. User-defined tokens with spaces are left to
    /// [`spaced`](Self::spaced) where the engine spells spaces `▁`.
    pub(crate) fn of(vocabulary: &Vocabulary, spells_spaces: bool) -> Result<Self, TokenizerError> {
        let tokens = texts(vocabulary).filter(|(_, text, control)| *control || !spells_spaces || !text.contains(' '));
        Self::new(tokens.map(|(id, text, control)| Special::new(id, text.to_owned(), control)).collect())
    }

    /// The user-defined tokens of `vocabulary` with spaces in them (runs of spaces, mostly), as they are to be found in
    /// text whose spaces are spelled `▁`: there a `▁` that was typed is a space too. `None` if there are none.
    pub(crate) fn spaced(vocabulary: &Vocabulary) -> Result<Option<Self>, TokenizerError> {
        let tokens = texts(vocabulary).filter(|(_, text, control)| !*control && text.contains(' '));
        let tokens: Vec<_> = tokens.map(|(id, text, _)| Special::new(id, text.replace(' ', "▁"), false)).collect();
        if tokens.is_empty() { Ok(None) } else { Self::new(tokens).map(Some) }
    }

    /// The special tokens in `text`, in order. Control tokens that overlap a range of `untrusted`, which are in order and
    /// do not overlap, are not taken.
    pub(crate) fn find(&self, text: &str, untrusted: &[Range<usize>]) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        let mut from = 0;
        while let Some((token, range)) = self.next(text, from) {
            // The first that ends behind the token's start is the only one that can begin the overlap.
            let part = untrusted.get(untrusted.partition_point(|part| part.end <= range.start));
            let part = part.filter(|part| token.control && part.start < range.end);
            let refused = part.is_some();
            if part.is_some_and(|part| range.start < part.start || part.end < range.end) {
                // Half typed by the user: a trusted token may begin inside it.
                from = next_character(text, range.start);
                continue;
            }
            from = range.end;
            let is_taken = !refused && (!token.whole_word || !touches_word(text, &range));
            if is_taken {
                let earliest = found.last().map_or(0, |last| last.range.end);
                found.push(Found { range: token.stripped(text, &range, earliest), id: token.id });
                from = found.last().map_or(from, |last| last.range.end);
            }
        }
        found
    }

    fn next(&self, text: &str, from: usize) -> Option<(&Special, Range<usize>)> {
        if from > text.len() {
            return None;
        }
        let found = self.automaton.find(Input::new(text).span(from..text.len()))?;
        Some((self.tokens.get(found.pattern().as_usize())?, found.range()))
    }

    /// Ranges of `text` that spell a control token or could become one together with what follows the text.
    pub(crate) fn control_spellings(&self, text: &str) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        while let Some((token, range)) = self.next(text, from) {
            from = next_character(text, range.start);
            if token.control {
                push_merged(&mut ranges, range);
            }
        }
        if let Some(start) = self.started_token(text) {
            push_merged(&mut ranges, start..text.len());
        }
        ranges
    }

    /// Where the longest end of `text` begins that is the beginning of a control token. Letters and digits alone are not
    /// taken for one: they are in every word, and the names of markers are never all there is to them.
    fn started_token(&self, text: &str) -> Option<usize> {
        let longest = self.controls.iter().map(String::len).max()?;
        let earliest = text.len().saturating_sub(longest);
        let starts = text.char_indices().rev().map(|(at, _)| at).take_while(|at| *at >= earliest);
        let begins_token = |at: &usize| {
            let end = text.get(*at..).unwrap_or_default();
            let first = self.controls.partition_point(|control| control.as_str() < end);
            let is_bare = end.chars().all(char::is_alphanumeric);
            !is_bare && self.controls.get(first).is_some_and(|control| control.starts_with(end))
        };
        starts.filter(begins_token).last()
    }
}

impl Special {
    /// `range` with the white space this token takes; not before `earliest`.
    fn stripped(&self, text: &str, range: &Range<usize>, earliest: usize) -> Range<usize> {
        let (mut start, mut end) = (range.start, range.end);
        if let Some(before) = text.get(earliest..start).filter(|_| self.strips_left) {
            start = earliest + before.trim_end().len();
        }
        if let Some(behind) = text.get(end..).filter(|_| self.strips_right) {
            end += behind.len() - behind.trim_start().len();
        }
        start..end
    }
}

/// Id, text and whether it is a control token, of everything that is looked for in text.
fn texts(vocabulary: &Vocabulary) -> impl Iterator<Item = (u32, &str, bool)> {
    vocabulary.iter().filter_map(|(id, spelling, kind)| {
        let special = kind.is_control() || kind == TokenType::UserDefined;
        let text = std::str::from_utf8(spelling).ok().filter(|_| special)?;
        Some((id, text, kind.is_control()))
    })
}

fn next_character(text: &str, at: usize) -> usize {
    at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
}

fn touches_word(text: &str, range: &Range<usize>) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.get(..range.start).and_then(|part| part.chars().next_back());
    let behind = text.get(range.end..).and_then(|part| part.chars().next());
    before.is_some_and(is_word) || behind.is_some_and(is_word)
}

/// Appends `range`, joined with the last one if they touch.
fn push_merged(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::*;

    fn tokens() -> SpecialTokens {
        let token = |(text, id): (&str, u32)| Special::new(id, text.to_owned(), id < 10);
        let texts = [("<a>", 0), ("<a><b>", 1), ("b>", 2), ("word", 3), ("<think>", 10), ("  ", 11)];
        SpecialTokens::new(texts.into_iter().map(token).collect()).unwrap()
    }

    fn ids(text: &str, untrusted: &[Range<usize>]) -> Vec<u32> {
        tokens().find(text, untrusted).into_iter().map(|found| found.id).collect()
    }

    #[test]
    fn the_leftmost_and_longest_is_found() {
        assert_eq!(ids("<a><b><a>", &[]), [1, 0]);
        assert_eq!(ids("   <think>", &[]), [11, 10]);
    }

    #[test]
    fn only_user_defined_tokens_are_found_in_untrusted_text() {
        assert_eq!(ids("<a><think>", &[0..10]), [10]);
        assert_eq!(ids("<a><think><a>", &[0..3]), [10, 0]);
        // The first half of "<a><b>" is typed by the user, its end is not.
        assert_eq!(ids("<a><b>", &[0..3]), [2]);
        assert_eq!(ids("<a>", &[1..2]), Vec::<u32>::new());
    }

    #[test]
    fn whole_and_begun_spellings_of_control_tokens_are_told() {
        let spellings = |text: &str| tokens().control_spellings(text);
        assert_eq!(spellings("x<a>y"), [1..4]);
        assert!(spellings("x<think>y").is_empty());
        assert_eq!(spellings("<a><b>"), [0..6]);
        assert_eq!(spellings("é<a"), [2..4]);
        assert_eq!(spellings("é<"), [2..3]);
        // "wo" begins "word", as it does many a word.
        assert!(spellings("two wo").is_empty());
        assert_eq!(spellings("a word"), [2..6]);
    }
}
