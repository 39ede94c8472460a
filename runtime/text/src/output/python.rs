//! Calls as Python writes them: `[name(key='text', other=1), …]`.

use super::json::JsonReader;
use super::literal::{Literal, Style};
use super::scan::{Input, Read, Step, is_name, read_name};
use super::sink::Sink;
use super::syntax::{CallReader, JsonKeys};
use super::tools::Tools;

/// Reads a list of calls, or one that is not in a list.
#[derive(Debug)]
pub(super) struct PythonReader {
    style: Style,
    /// Stands behind a name.
    parenthesis: [String; 1],
    /// Whether nothing marks the list.
    bare: bool,
    tools: Tools,
    in_list: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Before the list or a call.
    Before,
    /// In a name.
    Name(String),
    /// Between the parentheses of a call.
    Arguments(Literal),
    /// Behind a call.
    Behind,
    /// It is JSON, as some prompts ask for.
    Json(JsonReader),
}

impl PythonReader {
    /// `bare`: no mark stands before the list.
    pub(super) fn new(close: Option<String>, bare: bool, tools: Tools) -> Self {
        let quotes = &['\'', '"'];
        let style = Style { quote: None, quotes, assign: '=', ends: &[',', ')', ']', '}'], close };
        Self { style, parenthesis: ["(".to_owned()], bare, tools, in_list: false, state: State::Before }
    }

    fn step(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        match &mut self.state {
            State::Before => self.before(input),
            State::Name(name) => {
                if !read_name(input, name, &self.parenthesis)? || !self.tools.allow(name) {
                    return Step::Break(Read::NotACall);
                }
                sink.call(name);
                let mut json = String::new();
                self.state = State::Arguments(Literal::new(self.style.clone(), &mut json));
                sink.arguments(&json);
                Step::Continue(())
            }
            State::Arguments(literal) => {
                let mut json = String::new();
                let read = literal.read(input, &mut json);
                sink.arguments(&json);
                if !read? {
                    return Step::Break(Read::Done);
                }
                sink.end();
                self.state = State::Behind;
                Step::Break(if self.in_list { Read::Another } else { Read::Done })
            }
            State::Behind => {
                let separator = input.visible()?;
                input.advance(usize::from(matches!(separator, ',' | ']')));
                self.state = State::Before;
                if separator == ',' { Step::Continue(()) } else { Step::Break(Read::Done) }
            }
            State::Json(json) => Step::Break(json.read(input, sink)),
        }
    }

    fn before(&mut self, input: &mut Input<'_>) -> Step {
        match input.visible()? {
            '[' if !self.in_list => {
                input.advance(1);
                self.in_list = true;
            }
            ']' if self.in_list => {
                input.advance(1);
                return Step::Break(Read::NotACall);
            }
            '{' if !self.bare => self.state = State::Json(self.json()),
            c if is_name(c) => self.state = State::Name(String::new()),
            _ => return Step::Break(Read::NotACall),
        }
        Step::Continue(())
    }

    fn json(&self) -> JsonReader {
        let keys = JsonKeys { name: "name".to_owned(), arguments: vec!["arguments".to_owned()] };
        let reader = JsonReader::marked(keys, self.style.close.clone(), self.tools.clone());
        if self.in_list { reader.in_list() } else { reader }
    }
}

impl CallReader for PythonReader {
    fn read(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Read {
        loop {
            if let Step::Break(read) = self.step(input, sink) {
                return read;
            }
        }
    }

    fn finish(&mut self, rest: &str, sink: &mut Sink) {
        if let State::Json(json) = &mut self.state {
            json.finish(rest, sink);
        }
    }
}
