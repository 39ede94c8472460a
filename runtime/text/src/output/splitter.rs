//! The splitter: text of a turn in, pieces out.

use std::sync::Arc;

use super::Piece;
use super::marks::{Certainty, Found, Mark, Marks, Meaning, Place};
use super::scan::{Input, Read, Step};
use super::sink::Sink;
use super::syntax::CallInProgress;
use super::tools::{Tool, Tools};

/// Takes a model's turn apart as it comes. How the text is cut makes no difference to what the pieces hold together: what
/// may still turn out to be part of a mark is held back, and what turns out not to be a call is text again.
#[derive(Debug)]
pub struct Splitter {
    marks: Arc<Marks>,
    tools: Arc<[Tool]>,
    mode: Mode,
    /// What stands before the text to come.
    before: Before,
    /// White space held back: it may belong to a mark.
    space: String,
    /// The last character of the text.
    last: Option<char>,
    /// Whether anything was answered.
    answered: bool,
    /// Whether the message is an answer, in which nothing is a call.
    to_user: bool,
    fence: Fence,
    /// Text that may be the beginning of a mark.
    held: String,
    sink: Sink,
}

#[derive(Debug)]
enum Mode {
    Content,
    /// Inside of the marks of this number.
    Reasoning(usize),
    Call(Box<Candidate>),
}

/// What stands before a text, up to which white space belongs to the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// The beginning of a turn or a message.
    Nothing,
    /// A message's header.
    Header,
    /// The opening mark of reasoning.
    Open,
    /// The closing one.
    Close,
    /// A call.
    Call,
    /// Text of the same kind.
    Text,
}

/// A call, or what may be one.
#[derive(Debug)]
struct Candidate {
    call: CallInProgress,
    /// Its text, as long as it may turn out to be none.
    text: Option<String>,
    /// The reasoning in which it stands.
    reasoning: Option<usize>,
    is_bare: bool,
}

/// Whether a text is inside of a fence of three backquotes.
#[derive(Clone, Copy, Debug, Default)]
struct Fence {
    run: usize,
    is_open: bool,
}

impl Splitter {
    pub(super) fn new(marks: Arc<Marks>, tools: &[Tool], prompt: &str) -> Self {
        let trimmed = prompt.trim_ascii_end();
        let ends_with = |mark: &str| !mark.trim_ascii().is_empty() && trimmed.ends_with(mark.trim_ascii());
        let open = marks.reasoning.iter().position(|pair| ends_with(&pair.open));
        let before = match open {
            // The line break behind the mark is in the prompt.
            Some(_) if prompt.ends_with('\n') => Before::Text,
            Some(_) => Before::Open,
            None if marks.reasoning.iter().any(|pair| ends_with(&pair.close)) => Before::Close,
            None => Before::Nothing,
        };
        Self {
            marks,
            tools: tools.into(),
            mode: open.map_or(Mode::Content, Mode::Reasoning),
            before,
            space: String::new(),
            last: None,
            answered: false,
            to_user: false,
            fence: Fence::default(),
            held: String::new(),
            sink: Sink::default(),
        }
    }

    /// Takes more text.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        self.run(false);
        self.sink.take()
    }

    /// Ends the turn. Text that was held back comes out. What is there of a mark does not, nor does a call of which not even
    /// the name is there; a call of which more is there but not all has no end.
    pub fn finish(&mut self) -> Vec<Piece> {
        self.run(true);
        let held = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.mode, Mode::Content) {
            Mode::Call(candidate) => self.cut_off(*candidate, &held),
            mode => self.mode = mode,
        }
        if matches!(self.before, Before::Close | Before::Call) {
            self.space.clear();
        }
        self.flush_space();
        self.sink.take()
    }

    /// The turn ends in a call, or in what may have become one.
    fn cut_off(&mut self, mut candidate: Candidate, held: &str) {
        match candidate.text {
            None => candidate.call.finish(held, &mut self.sink),
            Some(text) if candidate.is_bare => {
                self.absorb(&text);
                self.absorb(held);
            }
            Some(_) => {
                self.space.clear();
                candidate.call.finish(held, &mut self.sink);
                self.mode = candidate.reasoning.map_or(Mode::Content, Mode::Reasoning);
            }
        }
    }

    /// Whether the text to come is reasoning, unless it ends it.
    pub fn is_reasoning(&self) -> bool {
        match &self.mode {
            Mode::Content => false,
            Mode::Reasoning(_) => true,
            Mode::Call(candidate) => candidate.text.is_some() && candidate.reasoning.is_some(),
        }
    }

    /// Whether a call has begun and not yet ended.
    pub fn is_call(&self) -> bool {
        matches!(&self.mode, Mode::Call(candidate) if candidate.text.is_none())
    }

    fn run(&mut self, last: bool) {
        let held = std::mem::take(&mut self.held);
        let mut input = Input::new(&held, last);
        while self.step(&mut input).is_continue() {}
        self.held = input.text().to_owned();
    }

    fn step(&mut self, input: &mut Input<'_>) -> Step {
        match std::mem::replace(&mut self.mode, Mode::Content) {
            Mode::Call(candidate) => self.call(candidate, input),
            mode => {
                self.mode = mode;
                self.text(input)
            }
        }
    }

    /// Reads text up to a mark and past it.
    fn text(&mut self, input: &mut Input<'_>) -> Step {
        let c = input.peek()?;
        let text = input.text();
        let plain = self.marks.plain(text);
        if plain > 0 {
            self.absorb(input.advance(plain));
            return Step::Continue(());
        }
        let marks = Arc::clone(&self.marks);
        let counts = |mark: &Mark| self.counts(mark);
        match if input.is_last() { marks.find_last(text, counts) } else { marks.find(text, counts) } {
            Found::Nothing => self.absorb(input.advance(c.len_utf8())),
            Found::Mark(mark, length) => self.mark(mark.meaning, input.advance(length)),
            Found::Unsure if input.is_last() => {
                self.space.clear();
                input.advance(text.len());
            }
            Found::Unsure => return Step::Break(Read::More),
        }
        Step::Continue(())
    }

    /// Whether a mark counts where it stands.
    fn counts(&self, mark: &Mark) -> bool {
        let begins_part = self.before != Before::Text;
        let place = match mark.place {
            Place::Anywhere => true,
            Place::Line => begins_part || self.last == Some('\n'),
            Place::Part => begins_part,
            Place::Message => self.before == Before::Nothing,
            Place::Turn => begins_part && !self.answered,
        };
        let is_called = !self.tools.is_empty();
        place
            && match (&self.mode, mark.meaning) {
                (_, Meaning::Hidden) => true,
                (Mode::Reasoning(pair), Meaning::Close(other)) => *pair == other,
                (Mode::Reasoning(pair), Meaning::Call(_, Certainty::Marked)) => is_called && self.ends_reasoning(*pair),
                (Mode::Reasoning(_), _) => false,
                // One that is repeated behind the prompt's.
                (_, Meaning::Close(_)) => begins_part,
                (_, Meaning::Call(..)) => is_called && !self.to_user,
                (_, Meaning::Open(_) | Meaning::Header) => true,
            }
    }

    /// Whether a call may end the reasoning here, where it is not quoted.
    fn ends_reasoning(&self, pair: usize) -> bool {
        let is_quoted = self.fence.is_open || matches!(self.last, Some('`' | '"' | '\''));
        !is_quoted && self.marks.reasoning.get(pair).is_some_and(|pair| pair.ended_by_calls)
    }

    /// What a mark does. `spelled`: as it stands in the text.
    fn mark(&mut self, meaning: Meaning, spelled: &str) {
        match meaning {
            Meaning::Hidden => {
                if self.marks.header.is_some() && matches!(self.mode, Mode::Content) {
                    self.before = Before::Nothing;
                    self.to_user = false;
                }
            }
            Meaning::Header => {
                self.space.clear();
                self.before = Before::Header;
                let answer =
                    self.marks.header.as_ref().map(|header| format!("{}{}", header.before.trim_ascii(), header.answer));
                self.to_user = answer.is_some_and(|answer| spelled.starts_with(&answer));
            }
            Meaning::Open(pair) => {
                self.space.clear();
                self.begin(Mode::Reasoning(pair), Before::Open);
            }
            Meaning::Close(_) => {
                self.close();
                self.begin(Mode::Content, Before::Close);
            }
            Meaning::Call(syntax, certainty) => self.candidate(syntax, certainty, spelled),
        }
    }

    fn begin(&mut self, mode: Mode, before: Before) {
        self.mode = mode;
        self.before = before;
        self.last = None;
        self.fence = Fence::default();
    }

    /// Ends reasoning: one line break before its mark belongs to it. In an answer such a mark has nothing to end.
    fn close(&mut self) {
        if !self.is_reasoning() {
            self.space.clear();
            return;
        }
        let space = self.shown_space();
        self.emit(space.strip_suffix('\n').unwrap_or(&space));
    }

    fn candidate(&mut self, syntax: usize, certainty: Certainty, spelled: &str) {
        let reasoning = match self.mode {
            Mode::Reasoning(pair) => Some(pair),
            _ => None,
        };
        let is_bare = certainty == Certainty::Bare;
        let tools = Tools { declared: Arc::clone(&self.tools), only: reasoning.is_some() };
        if let Some(syntax) = self.marks.syntax(syntax) {
            let call = CallInProgress::new(syntax, tools, is_bare);
            self.mode = Mode::Call(Box::new(Candidate { call, text: Some(spelled.to_owned()), reasoning, is_bare }));
        }
    }

    /// Reads a call, or what may be one, and goes back to text behind it.
    fn call(&mut self, mut candidate: Box<Candidate>, input: &mut Input<'_>) -> Step {
        let (calls, text) = (self.sink.calls(), input.text());
        // Its pieces come behind the text before it, of which nothing but white space is held back.
        let read = candidate.call.read(input, &mut self.sink);
        if self.sink.calls() > calls {
            candidate.text = None;
            self.space.clear();
        }
        if let Some(raw) = &mut candidate.text {
            raw.push_str(text.get(..text.len() - input.text().len()).unwrap_or_default());
        }
        match (read, candidate.text.take()) {
            (Read::More, text) => {
                candidate.text = text;
                self.mode = Mode::Call(candidate);
                return Step::Break(Read::More);
            }
            (Read::Another, _) => {
                self.begin(Mode::Content, Before::Call);
                let text = Some(String::new());
                self.mode = Mode::Call(Box::new(Candidate { text, reasoning: None, is_bare: false, ..*candidate }));
            }
            (Read::NotACall, Some(raw)) => {
                self.mode = candidate.reasoning.map_or(Mode::Content, Mode::Reasoning);
                self.absorb(&raw);
            }
            // What is there of text stands between the calls and the marks.
            (Read::Done | Read::NotACall, _) => self.begin(Mode::Content, Before::Call),
        }
        Step::Continue(())
    }

    /// Takes text that is no mark.
    fn absorb(&mut self, text: &str) {
        self.fence.push(text);
        self.last = text.chars().next_back().or(self.last);
        let behind = text.trim_ascii_start();
        let visible = behind.trim_ascii_end();
        self.space.push_str(text.get(..text.len() - behind.len()).unwrap_or_default());
        if !visible.is_empty() {
            self.flush_space();
            self.emit(visible);
            self.before = Before::Text;
            self.answered |= matches!(self.mode, Mode::Content);
            self.space.push_str(behind.get(visible.len()..).unwrap_or_default());
        }
        let is_free = matches!(self.mode, Mode::Content) && self.before == Before::Text && self.tools.is_empty();
        if is_free {
            self.flush_space();
        }
    }

    fn flush_space(&mut self) {
        let space = self.shown_space();
        self.emit(&space);
    }

    /// The white space held back, without what belongs to the mark before.
    fn shown_space(&mut self) -> String {
        let space = std::mem::take(&mut self.space);
        match self.before {
            Before::Nothing | Before::Header | Before::Text => space,
            Before::Open => space.strip_prefix('\n').unwrap_or(&space).to_owned(),
            Before::Close => space.trim_start_matches(['\r', '\n']).to_owned(),
            Before::Call => String::new(),
        }
    }

    fn emit(&mut self, text: &str) {
        match self.mode {
            Mode::Reasoning(_) => self.sink.reasoning(text),
            _ => self.sink.content(text),
        }
    }
}

impl Fence {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            self.run = if byte == b'`' { self.run + 1 } else { 0 };
            self.is_open ^= self.run == 3;
        }
    }
}
