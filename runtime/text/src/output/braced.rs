//! Calls as `name{key:value,…}`.

use super::literal::{Literal, Style};
use super::scan::{Input, Read, Step, read_name};
use super::sink::Sink;
use super::syntax::CallReader;
use super::tools::Tools;

/// Reads one call.
#[derive(Debug)]
pub(super) struct BracedReader {
    style: Style,
    /// Stands behind the name.
    brace: [String; 1],
    tools: Tools,
    state: State,
}

#[derive(Debug)]
enum State {
    /// In the name.
    Name(String),
    /// Between the braces.
    Arguments(Literal),
}

impl BracedReader {
    /// `quote` stands before and behind texts, `close` behind a call.
    pub(super) fn new(quote: String, close: Option<String>, tools: Tools) -> Self {
        let style = Style { quote: Some(quote), quotes: &['"'], assign: ':', ends: &[',', ']', '}'], close };
        Self { style, brace: ["{".to_owned()], tools, state: State::Name(String::new()) }
    }

    fn step(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        let mut json = String::new();
        match &mut self.state {
            State::Name(name) => {
                if !read_name(input, name, &self.brace)? || !self.tools.allow(name) {
                    return Step::Break(Read::NotACall);
                }
                sink.call(name);
                self.state = State::Arguments(Literal::new(self.style.clone(), &mut json));
                sink.arguments(&json);
                Step::Continue(())
            }
            State::Arguments(literal) => {
                let read = literal.read(input, &mut json);
                sink.arguments(&json);
                if read? {
                    sink.end();
                }
                Step::Break(Read::Done)
            }
        }
    }
}

impl CallReader for BracedReader {
    fn read(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Read {
        loop {
            if let Step::Break(read) = self.step(input, sink) {
                return read;
            }
        }
    }
}
