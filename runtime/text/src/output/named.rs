//! Calls as a name and a JSON object behind it, fenced or not.

use super::raw::RawValue;
use super::scan::{Input, Read, Step, read_name};
use super::sink::Sink;
use super::syntax::CallReader;
use super::tools::Tools;

/// Reads one call.
#[derive(Debug)]
pub(super) struct NamedReader {
    /// May stand between name and arguments.
    named: Vec<String>,
    /// Ends a call that is broken.
    close: Option<String>,
    tools: Tools,
    state: State,
}

#[derive(Debug)]
enum State {
    /// In the name, as far as it is read.
    Name(String),
    /// Behind it, and behind what follows it.
    Named(String),
    /// In the arguments.
    Arguments(RawValue),
}

impl NamedReader {
    pub(super) fn new(named: Vec<String>, close: Option<String>, tools: Tools) -> Self {
        Self { named, close, tools, state: State::Name(String::new()) }
    }

    fn step(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        match &mut self.state {
            State::Name(name) => {
                // What follows a name may be missing: then the arguments begin at once.
                let named = read_name(input, name, &self.named)?;
                if !named && name.is_empty() {
                    return Step::Break(Read::NotACall);
                }
                self.state = State::Named(std::mem::take(name));
            }
            State::Named(name) => {
                if input.visible()? != '{' || !self.tools.allow(name) {
                    return Step::Break(Read::NotACall);
                }
                sink.call(name);
                self.state = State::Arguments(RawValue::default());
            }
            State::Arguments(value) => {
                let mut json = String::new();
                let read = value.read(input, self.close.as_ref(), &mut json);
                sink.arguments(&json);
                if read? {
                    sink.end();
                }
                return Step::Break(Read::Done);
            }
        }
        Step::Continue(())
    }
}

impl CallReader for NamedReader {
    fn read(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Read {
        loop {
            if let Step::Break(read) = self.step(input, sink) {
                return read;
            }
        }
    }
}
