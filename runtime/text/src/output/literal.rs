//! Arguments written in a language like JSON, but for its texts, its keys and its words: they become JSON as they come.
//! Whatever brackets and separators a model leaves out or mixes up, brackets and separators of the JSON are right.

use super::escapes::{self, Unescape};
use super::scan::{Input, Match, Step, gap, literal, settle};
use super::values;

/// How arguments are written.
#[derive(Clone, Debug)]
pub(super) struct Style {
    /// Stands before and behind a text in which nothing is escaped.
    pub(super) quote: Option<String>,
    /// Stand before and behind texts with escapes.
    pub(super) quotes: &'static [char],
    /// Stands between the name of an argument and its value.
    pub(super) assign: char,
    /// What ends a word.
    pub(super) ends: &'static [char],
    /// Ends the call wherever it is, texts without escapes aside.
    pub(super) close: Option<String>,
}

/// Reads an object of arguments behind its opening bracket.
#[derive(Clone, Debug)]
pub(super) struct Literal {
    style: Style,
    /// What is open, the innermost last.
    open: Vec<Container>,
    state: State,
}

/// An object or a list that is open.
#[derive(Clone, Copy, Debug)]
struct Container {
    is_object: bool,
    is_empty: bool,
    /// What follows in an object.
    next: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Key,
    /// What stands between key and value, which may be missing.
    Colon,
    Value,
}

#[derive(Clone, Debug)]
enum State {
    /// Between two items.
    Between,
    /// In a word or a number.
    Word(String),
    /// In a text without escapes.
    Raw,
    /// In a text that this stands before and behind.
    Text(char, Unescape),
}

impl Literal {
    /// Behind the opening bracket.
    pub(super) fn new(style: Style, out: &mut String) -> Self {
        let mut new = Self { style, open: Vec::new(), state: State::Between };
        new.enter(true, out);
        new
    }

    /// Adds what is here of it to `out`, as JSON; tells whether it ended well.
    pub(super) fn read(&mut self, input: &mut Input<'_>, out: &mut String) -> Step<bool> {
        while !self.open.is_empty() {
            let text = input.text();
            match &mut self.state {
                State::Raw => self.raw(input, out)?,
                _ if settle(self.style.closed(text))?.is_some() => return Step::Continue(false),
                State::Between => self.between(input, out)?,
                State::Word(_) => self.word(input, out)?,
                State::Text(..) => self.text(input, out)?,
            }
        }
        Step::Continue(true)
    }

    fn between(&mut self, input: &mut Input<'_>, out: &mut String) -> Step {
        let c = input.peek()?;
        let quote = self.style.quote.as_ref().map_or(Match::No, |quote| literal(input.text(), quote));
        if input.accept(quote)? {
            self.begin(out);
            out.push('"');
            self.state = State::Raw;
            return Step::Continue(());
        }
        match c {
            c if c.is_ascii_whitespace() => {}
            ',' => self.separate(out),
            '}' | ']' | ')' => self.leave(out),
            '{' | '[' | '(' => {
                if self.begin(out) {
                    out.push_str("\"\"");
                    self.end(out);
                }
                self.end(out);
                self.enter(c == '{', out);
            }
            c if c == ':' || c == self.style.assign => self.assign(),
            c if self.style.quotes.contains(&c) => {
                self.begin(out);
                out.push('"');
                self.state = State::Text(c, Unescape::default());
            }
            _ => {
                self.state = State::Word(String::new());
                return Step::Continue(());
            }
        }
        input.advance(c.len_utf8());
        Step::Continue(())
    }

    fn word(&mut self, input: &mut Input<'_>, out: &mut String) -> Step {
        let is_key = self.is_key();
        let State::Word(word) = &mut self.state else { return Step::Continue(()) };
        let style = &self.style;
        let ends = |c| style.ends.contains(&c) || is_key && (c == ':' || c == style.assign);
        let begun = style.close.as_ref().and_then(|close| close.chars().next());
        let more = input.take_while(|c| !ends(c) && Some(c) != begun);
        word.push_str(more);
        let c = input.peek()?;
        if !ends(c) {
            // It may be what ends the call; if it was looked at and is not, it belongs to the word.
            word.push_str(input.advance(if more.is_empty() { c.len_utf8() } else { 0 }));
            return Step::Continue(());
        }
        let word = std::mem::take(word);
        self.begin(out);
        match values::json(word.trim_ascii()).filter(|_| !is_key) {
            Some(json) => out.push_str(json),
            None => escapes::quote(word.trim_ascii(), out),
        }
        self.end(out);
        Step::Continue(())
    }

    fn raw(&mut self, input: &mut Input<'_>, out: &mut String) -> Step {
        let c = input.peek()?;
        let quote = self.style.quote.as_ref().map_or(Match::No, |quote| literal(input.text(), quote));
        if input.accept(quote)? {
            out.push('"');
            self.end(out);
        } else {
            escapes::escape(input.advance(c.len_utf8()), out);
        }
        Step::Continue(())
    }

    /// A quote that is not followed by what may follow a text belongs to it: models leave out backslashes.
    fn text(&mut self, input: &mut Input<'_>, out: &mut String) -> Step {
        let c = input.peek()?;
        let State::Text(quote, unescape) = &mut self.state else { return Step::Continue(()) };
        if c == *quote && !unescape.is_open() {
            let behind = input.text().get(1..).unwrap_or_default();
            if settle(gap(behind).then(behind, |text| self.style.ends_text(text)))?.is_some() {
                input.advance(1);
                out.push('"');
                self.end(out);
                return Step::Continue(());
            }
        }
        let mut read = String::new();
        unescape.push(c, &mut read);
        escapes::escape(&read, out);
        input.advance(c.len_utf8());
        Step::Continue(())
    }

    fn is_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.is_object && open.next == Part::Key)
    }

    /// Before an item; tells whether it is a key.
    fn begin(&mut self, out: &mut String) -> bool {
        let is_key = self.is_key();
        let Some(open) = self.open.last_mut().filter(|open| is_key || !open.is_object) else { return false };
        if !std::mem::replace(&mut open.is_empty, false) {
            out.push(',');
        }
        is_key
    }

    /// Behind an item.
    fn end(&mut self, out: &mut String) {
        self.state = State::Between;
        let is_key = self.is_key();
        if is_key {
            out.push(':');
        }
        if let Some(open) = self.open.last_mut() {
            open.next = if is_key { Part::Colon } else { Part::Key };
        }
    }

    fn assign(&mut self) {
        if let Some(open) = self.open.last_mut().filter(|open| open.next == Part::Colon) {
            open.next = Part::Value;
        }
    }

    /// A key without a value gets one.
    fn separate(&mut self, out: &mut String) {
        if let Some(open) = self.open.last_mut().filter(|open| open.is_object && open.next != Part::Key) {
            out.push_str("null");
            open.next = Part::Key;
        }
    }

    fn enter(&mut self, is_object: bool, out: &mut String) {
        out.push(if is_object { '{' } else { '[' });
        self.open.push(Container { is_object, is_empty: true, next: Part::Key });
    }

    fn leave(&mut self, out: &mut String) {
        self.separate(out);
        let is_object = self.open.pop().is_some_and(|open| open.is_object);
        out.push(if is_object { '}' } else { ']' });
    }
}

impl Style {
    fn closed(&self, text: &str) -> Match {
        self.close.as_ref().map_or(Match::No, |close| literal(text, close))
    }

    /// Whether this may follow a text.
    fn ends_text(&self, text: &str) -> Match {
        match text.chars().next() {
            Some(c) if c == self.assign || matches!(c, ',' | ':' | '}' | ']' | ')') => Match::Yes(0),
            _ => self.closed(text),
        }
    }
}
