//! Reading text that is not all there yet. A question about it has three answers, and more text changes neither a yes nor
//! a no: so it makes no difference how the text is cut into pieces.

use std::ops::ControlFlow;

/// Longest white space between two tags of a mark, in bytes: what follows is not looked for without end.
const LONGEST_GAP: usize = 256;

/// Longest name of a tool, in bytes; a longer one is none.
const LONGEST_NAME: usize = 256;

/// Whether a text begins with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// It does not.
    No,
    /// The text ends too early to tell.
    Maybe,
    /// It does, with this many bytes.
    Yes(usize),
}

impl Match {
    /// What follows, where this matches the beginning of `text`.
    pub(super) fn then(self, text: &str, next: impl FnOnce(&str) -> Match) -> Match {
        let Match::Yes(length) = self else { return self };
        match next(text.get(length..).unwrap_or_default()) {
            Match::Yes(more) => Match::Yes(length + more),
            other => other,
        }
    }

    /// Another, where this does not match.
    pub(super) fn or(self, other: impl FnOnce() -> Match) -> Match {
        if self == Match::No { other() } else { self }
    }

    /// The same with another length.
    pub(super) fn with_length(self, length: usize) -> Match {
        if matches!(self, Match::Yes(_)) { Match::Yes(length) } else { self }
    }

    /// The more certain of two.
    pub(super) fn better(self, other: Match) -> Match {
        match (self, other) {
            (Match::Yes(_), _) | (_, Match::No) => self,
            _ => other,
        }
    }
}

/// Whether a text begins with `tag`.
pub(super) fn literal(text: &str, tag: &str) -> Match {
    if text.starts_with(tag) {
        Match::Yes(tag.len())
    } else if tag.starts_with(text) {
        Match::Maybe
    } else {
        Match::No
    }
}

/// Whether a text begins with one of these tags.
pub(super) fn any_of<'t>(text: &str, tags: impl IntoIterator<Item = &'t String>) -> Match {
    tags.into_iter().map(|tag| literal(text, tag)).fold(Match::No, Match::better)
}

/// White space up to something visible, if it is not endless.
pub(super) fn gap(text: &str) -> Match {
    gap_of(text, |c| c.is_ascii_whitespace())
}

/// The same of other characters.
pub(super) fn gap_of(text: &str, is_such: impl Fn(char) -> bool) -> Match {
    match text.find(|c| !is_such(c)) {
        Some(length) if length <= LONGEST_GAP => Match::Yes(length),
        None if text.len() <= LONGEST_GAP => Match::Maybe,
        _ => Match::No,
    }
}

/// Whether a text begins with these tags, whatever white space lies between them.
pub(super) fn sequence(text: &str, tags: &[String]) -> Match {
    let Some((head, rest)) = tags.split_first() else { return Match::Yes(0) };
    rest.iter().fold(literal(text, head), |found, tag| found.then(text, gap).then(text, |behind| literal(behind, tag)))
}

/// The tags of a mark: each begins with `<`, but for the first, which may begin with anything. White space around them is
/// free in what models write, and left out.
pub(super) fn tags(mark: &str) -> Vec<String> {
    let starts = mark.match_indices('<').map(|(at, _)| at);
    let mut bounds: Vec<usize> = std::iter::once(0).chain(starts).chain([mark.len()]).collect();
    bounds.dedup();
    let tag = |bounds: &[usize]| mark.get(*bounds.first()?..*bounds.last()?).map(|tag| tag.trim_ascii().to_owned());
    bounds.windows(2).filter_map(tag).filter(|tag| !tag.is_empty()).collect()
}

/// Whether names of tools are written with this.
pub(super) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}

/// A name, which more text may still lengthen.
pub(super) fn name(text: &str) -> Match {
    match text.find(|c| !is_name(c)) {
        Some(0) => Match::No,
        Some(length) => Match::Yes(length),
        None => Match::Maybe,
    }
}

/// Reads a name and the tags behind it; tells whether both are there.
pub(super) fn read_name(input: &mut Input<'_>, name: &mut String, behind: &[String]) -> Step<bool> {
    if name.is_empty() {
        input.visible()?;
    }
    name.push_str(input.take_while(is_name));
    let text = input.text();
    let followed = input.accept(gap(text).then(text, |text| sequence(text, behind)))?;
    Step::Continue(followed && (1..=LONGEST_NAME).contains(&name.len()))
}

/// How reading a call stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// More text is needed.
    More,
    /// A call is complete. Another may follow between the same marks.
    Another,
    /// Nothing more belongs to it.
    Done,
    /// It is none, which is known before anything is told of it.
    NotACall,
}

/// A step of reading: goes on with a value, or stops.
pub(super) type Step<T = ()> = ControlFlow<Read, T>;

/// The length of a match, if it is one. What may still become one is waited for.
pub(super) fn settle(found: Match) -> Step<Option<usize>> {
    match found {
        Match::Yes(length) => Step::Continue(Some(length)),
        Match::Maybe => Step::Break(Read::More),
        Match::No => Step::Continue(None),
    }
}

/// Text still to be read.
#[derive(Debug)]
pub(super) struct Input<'a> {
    text: &'a str,
    last: bool,
}

impl<'a> Input<'a> {
    /// `last`: nothing follows.
    pub(super) fn new(text: &'a str, last: bool) -> Self {
        Self { text, last }
    }

    /// All that is here.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Whether nothing follows.
    pub(super) fn is_last(&self) -> bool {
        self.last
    }

    /// Takes this many bytes.
    pub(super) fn advance(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.text.split_at_checked(length).unwrap_or((self.text, ""));
        self.text = rest;
        taken
    }

    /// Takes what matched, telling whether anything did. What may still become a match is waited for.
    pub(super) fn accept(&mut self, found: Match) -> Step<bool> {
        let length = settle(found)?;
        self.advance(length.unwrap_or_default());
        Step::Continue(length.is_some())
    }

    /// The next character, which stays.
    pub(super) fn peek(&self) -> Step<char> {
        self.text.chars().next().map_or(Step::Break(Read::More), Step::Continue)
    }

    /// Skips white space, and gives the next character, which stays.
    pub(super) fn visible(&mut self) -> Step<char> {
        self.text = self.text.trim_ascii_start();
        self.peek()
    }

    /// Takes characters as long as they are such.
    pub(super) fn take_while(&mut self, is_such: impl Fn(char) -> bool) -> &'a str {
        let length = self.text.find(|c| !is_such(c)).unwrap_or(self.text.len());
        self.advance(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_cut_into_tags() {
        assert_eq!(tags("<tool_call>\n<function="), ["<tool_call>", "<function="]);
        assert_eq!(tags("</key><value>"), ["</key>", "<value>"]);
        assert_eq!(tags("\n```<end>"), ["```", "<end>"]);
        assert_eq!(tags("\">\n"), ["\">"]);
        assert_eq!(tags("\n"), Vec::<String>::new());
    }

    #[test]
    fn more_text_changes_no_verdict() {
        let tags = tags("<a>\n<b>");
        for text in ["<a><b>", "<a> \n <b>c", "<a>x", "<c", "<a", ""] {
            let whole = sequence(text, &tags);
            for (end, _) in text.char_indices() {
                let part = sequence(&text[..end], &tags);
                assert!(part == Match::Maybe || part == whole, "{text:?} up to {end}: {part:?}, then {whole:?}");
            }
        }
    }
}
