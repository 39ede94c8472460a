//! The marks of a format: where they count, and what they mean.

use std::collections::BTreeSet;

use bantam_family_api::{MessageHeader, Reasoning};

use super::scan::{Match, gap, literal, name, sequence, tags};
use super::syntax::Syntax;

/// Everything that is looked for in text.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    pub(super) reasoning: Vec<Reasoning>,
    pub(super) header: Option<MessageHeader>,
    syntaxes: Vec<Syntax>,
    /// Where several begin at one place, the first counts.
    marks: Vec<Mark>,
    /// What they begin with.
    begins: Vec<char>,
}

/// A mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) meaning: Meaning,
    pub(super) place: Place,
    tags: Vec<String>,
}

/// What a mark does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Ends reasoning of this number.
    Close(usize),
    /// Begins it.
    Open(usize),
    /// Begins a call in the syntax of this number.
    Call(usize, Certainty),
    /// Says to whom a message goes.
    Header,
    /// Is not shown.
    Hidden,
}

/// How sure a call is where its mark stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// All of the mark is there.
    Marked,
    /// Only its last tag is.
    Shortened,
    /// No mark is there.
    Bare,
}

/// Where a mark counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    /// At the beginning of a line.
    Line,
    /// Where nothing but white space stands between it and the mark before.
    Part,
    /// Where a message begins.
    Message,
    /// Where nothing was said yet.
    Turn,
}

/// What stands at the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'m> {
    Nothing,
    /// More text is needed.
    Unsure,
    /// A mark with this many bytes.
    Mark(&'m Mark, usize),
}

impl Marks {
    pub(super) fn new(
        reasoning: Vec<Reasoning>,
        syntaxes: Vec<Syntax>,
        header: Option<MessageHeader>,
        hidden: &[String],
    ) -> Self {
        let pairs = || reasoning.iter().enumerate();
        let closes = pairs().map(|(at, pair)| Mark::new(Meaning::Close(at), Place::Anywhere, tags(&pair.close)));
        let opens = pairs().map(|(at, pair)| Mark::new(Meaning::Open(at), place_of(&pair.open), tags(&pair.open)));
        let calls = syntaxes.iter().enumerate().flat_map(|(at, syntax)| Mark::of_calls(at, syntax));
        let headers = header.iter().map(|header| Mark::new(Meaning::Header, Place::Message, tags(&header.before)));
        let hidden = hidden.iter().map(|text| Mark::new(Meaning::Hidden, Place::Anywhere, tags(text)));
        // A mark without anything to be seen would be found everywhere.
        let is_visible = |mark: &Mark| !mark.tags.is_empty();
        let around = closes.chain(opens).filter(is_visible);
        let marks: Vec<Mark> = around.chain(calls).chain(headers.chain(hidden).filter(is_visible)).collect();
        let bare = syntaxes.iter().filter_map(Syntax::bare);
        let begins = marks.iter().filter_map(|mark| mark.tags.first()?.chars().next()).chain(bare);
        let begins = BTreeSet::from_iter(begins).into_iter().collect();
        Self { reasoning, header, syntaxes, marks, begins }
    }

    pub(super) fn syntax(&self, at: usize) -> Option<&Syntax> {
        self.syntaxes.get(at)
    }

    /// Length of the text in front of whatever may be a mark.
    pub(super) fn plain(&self, text: &str) -> usize {
        text.find(self.begins.as_slice()).unwrap_or(text.len())
    }

    /// Which of the marks that count here `text` begins with.
    pub(super) fn find(&self, text: &str, counts: impl Fn(&Mark) -> bool) -> Found<'_> {
        for mark in self.marks.iter().filter(|mark| counts(mark)) {
            match self.matches(mark, text) {
                Match::No => {}
                Match::Maybe => return Found::Unsure,
                Match::Yes(length) => return Found::Mark(mark, length),
            }
        }
        Found::Nothing
    }

    /// The same for the last text of a turn. What stands there of a mark is [`Found::Unsure`] if it can hardly be anything
    /// else, and nothing if it is too short to tell.
    pub(super) fn find_last(&self, text: &str, counts: impl Fn(&Mark) -> bool) -> Found<'_> {
        let known = self.find(text, |mark| counts(mark) && self.matches(mark, text) != Match::Maybe);
        let begun = |mark: &&Mark| counts(mark) && self.matches(mark, text) == Match::Maybe && mark.is_half_in(text);
        match known {
            Found::Nothing if self.marks.iter().any(|mark| begun(&mark)) => Found::Unsure,
            known => known,
        }
    }

    fn matches(&self, mark: &Mark, text: &str) -> Match {
        let found = sequence(text, &mark.tags);
        match mark.meaning {
            Meaning::Header => found.then(text, |text| {
                let behind = self.header.as_ref().map(|header| header.behind.trim_ascii()).unwrap_or_default();
                name(text).then(text, |text| literal(text, behind))
            }),
            Meaning::Call(at, certainty) => match (found, self.syntaxes.get(at)) {
                (Match::Yes(length), Some(syntax)) => {
                    let begins =
                        |c| if certainty == Certainty::Bare { syntax.bare() == Some(c) } else { syntax.begins_with(c) };
                    let behind = text.get(length..).unwrap_or_default();
                    found
                        .then(text, gap)
                        .then(text, |text| first_is(text, begins))
                        .with_length(text.len() - behind.len())
                }
                (found, _) => found,
            },
            _ => found,
        }
    }
}

/// Whether the first character is such.
fn first_is(text: &str, is_such: impl Fn(char) -> bool) -> Match {
    match text.chars().next() {
        Some(c) if is_such(c) => Match::Yes(0),
        Some(_) => Match::No,
        None => Match::Maybe,
    }
}

/// Nobody writes a bar into a mark by accident; others are quoted in prose, and count only where a part begins.
fn place_of(mark: &str) -> Place {
    if mark.contains('|') { Place::Anywhere } else { Place::Part }
}

impl Mark {
    fn new(meaning: Meaning, place: Place, tags: Vec<String>) -> Self {
        Self { meaning, place, tags }
    }

    /// The ways in which a call may begin: behind the mark of all calls or without it; with the last tag alone, where there
    /// are several; and with nothing.
    fn of_calls(at: usize, syntax: &Syntax) -> Vec<Self> {
        let mark = |certainty, place, tags| Self::new(Meaning::Call(at, certainty), place, tags);
        let marked = |tags| mark(Certainty::Marked, Place::Anywhere, tags);
        let block = syntax.block.iter().map(|[open, _]| marked([open.as_slice(), &syntax.open].concat()));
        let open = (!syntax.open.is_empty()).then(|| marked(syntax.open.clone()));
        let last = syntax.open.last().filter(|_| syntax.open.len() > 1);
        let last = last.map(|tag| mark(Certainty::Shortened, Place::Anywhere, vec![tag.clone()]));
        let place = if syntax.open.is_empty() { Place::Turn } else { Place::Line };
        let bare = syntax.bare().map(|_| mark(Certainty::Bare, place, Vec::new()));
        block.chain(open).chain(last).chain(bare).collect()
    }

    /// Whether a text that the mark begins with has at least half of its first tag.
    fn is_half_in(&self, text: &str) -> bool {
        self.tags.first().is_some_and(|tag| 2 * text.len() >= tag.len())
    }
}
