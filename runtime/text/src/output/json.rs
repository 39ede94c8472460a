//! Calls as JSON: `{"name": …, "arguments": {…}}`, alone or in a list.

use super::escapes::Unescape;
use super::raw::{RawValue, read_text};
use super::scan::{Input, Read, Step, gap_of, literal, settle};
use super::sink::Sink;
use super::syntax::{CallReader, JsonKeys};
use super::tools::Tools;

/// Key of an object that holds the call itself, or of its name.
const WRAPPER: &str = "function";
/// Other keys of calls.
const BESIDE: [&str; 2] = ["type", "id"];

/// Reads the objects of calls.
#[derive(Debug)]
pub(super) struct JsonReader {
    keys: JsonKeys,
    /// Ends a call that is broken.
    close: Option<String>,
    tools: Tools,
    /// Whether nothing marks the object as a call, so that only one that is a call in every way is one.
    bare: bool,
    in_list: bool,
    state: State,
    call: Call,
    /// Arguments that were read and not yet told.
    arguments: String,
}

/// What is known of a call.
#[derive(Clone, Debug, Default)]
struct Call {
    /// Objects around what is read.
    depth: usize,
    name: Option<String>,
    /// It was told of.
    begun: bool,
    arguments: Progress,
    /// Some of its arguments were told.
    told: bool,
}

/// How much of something was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Nothing,
    Part,
    All,
}

#[derive(Debug)]
enum State {
    /// Before an object.
    Object,
    /// Before a key.
    Key,
    /// In a key, as far as it is spelled.
    InKey(String),
    /// Behind a key.
    Colon(String),
    /// Before the value of a key.
    Value(String),
    /// In the name, as far as it is spelled.
    Name(String),
    /// In arguments that are an object or a list.
    Arguments(RawValue),
    /// In arguments that are neither.
    Scalar(RawValue, String),
    /// In arguments that are the text of an object.
    Unwrap(Unescape),
    /// In a value of no meaning.
    Skip(RawValue),
    /// Behind a value.
    Next,
    /// Behind an object.
    Behind,
}

impl JsonReader {
    /// Objects behind a mark.
    pub(super) fn marked(keys: JsonKeys, close: Option<String>, tools: Tools) -> Self {
        let (state, call) = (State::Object, Call::default());
        Self { keys, close, tools, bare: false, in_list: false, state, call, arguments: String::new() }
    }

    /// An object that no mark announces.
    pub(super) fn bare(keys: JsonKeys, tools: Tools) -> Self {
        Self { bare: true, ..Self::marked(keys, None, tools) }
    }

    /// Objects behind the bracket of a list.
    pub(super) fn in_list(self) -> Self {
        Self { in_list: true, ..self }
    }

    fn step(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        match &mut self.state {
            State::Object => return self.object(input),
            State::Key => return self.key(input, sink),
            State::InKey(spelled) => self.state = State::Colon(read_text(input, spelled)?),
            State::Colon(key) => {
                if input.visible()? != ':' {
                    return self.stop();
                }
                input.advance(1);
                self.state = State::Value(std::mem::take(key));
            }
            State::Value(key) => {
                let first = input.visible()?;
                let key = std::mem::take(key);
                return self.value(&key, first, input, sink);
            }
            State::Name(spelled) => {
                self.call.name = Some(read_text(input, spelled)?.trim().to_owned());
                self.state = State::Next;
                return self.begin(sink);
            }
            State::Arguments(value) => {
                if !value.read(input, self.close.as_ref(), &mut self.arguments)? {
                    return self.stop();
                }
                self.argued();
            }
            State::Scalar(value, text) => {
                value.read(input, None, text)?;
                if text != "null" {
                    self.arguments.push_str(text);
                }
                self.argued();
            }
            State::Unwrap(unescape) => {
                let c = input.peek()?;
                input.advance(c.len_utf8());
                if c != '"' || unescape.is_open() {
                    unescape.push(c, &mut self.arguments);
                } else {
                    self.argued();
                }
            }
            State::Skip(value) => {
                value.read(input, None, &mut String::new())?;
                self.state = State::Next;
            }
            State::Next => return self.next(input, sink),
            State::Behind => return self.behind(input),
        }
        Step::Continue(())
    }

    /// Nothing more is read of this: it is no call, or a broken one.
    fn stop(&self) -> Step {
        Step::Break(if self.call.begun { Read::Done } else { Read::NotACall })
    }

    fn object(&mut self, input: &mut Input<'_>) -> Step {
        match input.visible()? {
            '{' => {
                self.call = Call { depth: 1, ..Call::default() };
                self.state = State::Key;
            }
            '[' if !self.in_list && !self.bare => self.in_list = true,
            _ => return self.stop(),
        }
        input.advance(1);
        Step::Continue(())
    }

    fn key(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        match input.visible()? {
            '"' => self.state = State::InKey(String::new()),
            '}' => return self.close(input, sink),
            ',' => {}
            _ => return self.stop(),
        }
        input.advance(1);
        Step::Continue(())
    }

    /// Before the value of `key`, which begins with `first`.
    fn value(&mut self, key: &str, first: char, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        let is_name = key == self.keys.name || key == WRAPPER && first == '"';
        if is_name && self.call.name.is_none() {
            if first != '"' {
                return self.stop();
            }
            input.advance(1);
            self.state = State::Name(String::new());
        } else if key == WRAPPER && first == '{' {
            input.advance(1);
            self.call.depth += 1;
            self.state = State::Key;
        } else if self.keys.arguments.iter().any(|name| name == key) && self.call.arguments == Progress::Nothing {
            self.call.arguments = Progress::Part;
            self.state = match first {
                '{' | '[' => State::Arguments(RawValue::default()),
                '"' => State::Unwrap(Unescape::default()),
                _ => State::Scalar(RawValue::default(), String::new()),
            };
            input.advance(usize::from(first == '"'));
            return self.begin(sink);
        } else if self.bare && !BESIDE.contains(&key) {
            return self.stop();
        } else {
            self.state = State::Skip(RawValue::default());
        }
        Step::Continue(())
    }

    /// Tells of the call as soon as it is known to be one.
    fn begin(&mut self, sink: &mut Sink) -> Step {
        let Some(name) = self.call.name.as_ref().filter(|_| !self.call.begun) else { return Step::Continue(()) };
        if name.is_empty() || !self.tools.allow(name) {
            return self.stop();
        }
        if !self.bare || self.call.arguments != Progress::Nothing {
            self.call.begun = true;
            sink.call(name);
        }
        Step::Continue(())
    }

    fn argued(&mut self) {
        self.call.arguments = Progress::All;
        self.state = State::Next;
    }

    fn next(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        match input.visible()? {
            ',' => self.state = State::Key,
            '}' => return self.close(input, sink),
            // The object's own brace is sometimes left out.
            _ if self.call.begun && self.call.arguments == Progress::All => {
                self.end(sink);
                return Step::Break(Read::Done);
            }
            _ => return self.stop(),
        }
        input.advance(1);
        Step::Continue(())
    }

    fn close(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        input.advance(1);
        self.call.depth = self.call.depth.saturating_sub(1);
        self.state = State::Next;
        if self.call.depth > 0 {
            return Step::Continue(());
        }
        if !self.call.begun {
            return self.stop();
        }
        self.end(sink);
        self.state = State::Behind;
        Step::Break(if self.bare { Read::Done } else { Read::Another })
    }

    /// Between objects: a comma in a list, white space or nothing elsewhere. Braces too many before the mark of the end are
    /// passed over: models lose count.
    fn behind(&mut self, input: &mut Input<'_>) -> Step {
        if let Some(close) = &self.close {
            let text = input.text();
            let slack = gap_of(text, |c| c == '}' || c.is_ascii_whitespace());
            if let Some(length) = settle(slack.then(text, |text| literal(text, close)))? {
                input.advance(length - close.len());
                return Step::Break(Read::Done);
            }
        }
        let next = input.visible()?;
        self.state = State::Object;
        if self.in_list {
            input.advance(usize::from(matches!(next, ',' | ']')));
        }
        let another = if self.in_list { ',' } else { '{' };
        if next == another { Step::Continue(()) } else { Step::Break(Read::Done) }
    }

    fn end(&mut self, sink: &mut Sink) {
        if !self.call.told {
            sink.arguments("{}");
        }
        sink.end();
        self.call = Call::default();
    }

    fn tell(&mut self, sink: &mut Sink) {
        if self.call.begun && !self.arguments.is_empty() {
            sink.arguments(&self.arguments);
            self.call.told |= !self.arguments.trim_ascii().is_empty();
            self.arguments.clear();
        }
    }
}

impl CallReader for JsonReader {
    fn read(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Read {
        loop {
            let step = self.step(input, sink);
            self.tell(sink);
            if let Step::Break(read) = step {
                return read;
            }
        }
    }

    /// All that is missing are the braces around complete arguments.
    fn finish(&mut self, _rest: &str, sink: &mut Sink) {
        if self.call.begun && self.call.arguments == Progress::All {
            self.end(sink);
        }
    }
}
