//! Calls between tags: the name, and each argument's name and value.

use std::sync::Arc;

use bantam_family_api::TaggedCalls;

use super::escapes;
use super::scan::{Input, Match, Read, Step, any_of, gap, literal, name, read_name, sequence, settle, tags};
use super::sink::Sink;
use super::syntax::CallReader;
use super::tools::Tools;
use super::values::{Types, ValueWriter};

/// The tags inside of a call.
#[derive(Clone, Debug)]
pub(super) struct Tagged {
    named: Vec<String>,
    /// Before an argument's name.
    argument: String,
    /// Between it and a value: whose type the tool says, that is JSON, before whose type the model says.
    text: Vec<String>,
    json: Option<Vec<String>>,
    typed: Option<[Vec<String>; 2]>,
    /// Behind a value.
    value_end: String,
    /// What the end of a value may begin with.
    value_ends: Vec<char>,
    /// Whether a line break before and behind a value belongs to the tags.
    own_line: [bool; 2],
    /// What a value is of which nobody says it.
    untyped: Types,
    /// Behind the call.
    close: Vec<String>,
    /// Behind all calls, and before another one.
    beyond: Vec<String>,
}

impl Tagged {
    pub(super) fn new(calls: &TaggedCalls) -> Self {
        let argument = &calls.argument;
        let (text, open, close) = (tags(&argument.text), tags(&calls.open), tags(&calls.close));
        let (before, value_end) = (argument.open.trim_ascii().to_owned(), argument.close.trim_ascii().to_owned());
        let typed = argument.kind.as_ref().map(|[before, behind]| {
            let behind = tags(behind).into_iter().chain(text.iter().skip(1).cloned());
            [text.iter().take(1).cloned().chain(tags(before)).collect(), behind.collect()]
        });
        let value_ends = [&value_end, &before].into_iter().chain(close.first());
        let block = calls.block.iter().flatten().flat_map(|mark| tags(mark));
        Self {
            named: tags(&calls.named),
            json: argument.json.as_ref().map(|mark| tags(mark)),
            own_line: [argument.text.ends_with('\n'), argument.close.starts_with('\n')],
            untyped: if argument.text_by_default { Types::TEXT } else { Types::JSON },
            value_ends: value_ends.filter_map(|tag| tag.chars().next()).collect(),
            beyond: block.chain(open.first().cloned()).chain(open.last().cloned()).collect(),
            argument: before,
            value_end,
            typed,
            text,
            close,
        }
    }

    /// Whether another argument or the end of the call stands here.
    fn next(&self, text: &str) -> Match {
        any_of(text, std::iter::once(&self.argument).chain(&self.close).chain(&self.beyond))
    }
}

/// Reads one call.
#[derive(Debug)]
pub(super) struct TaggedReader {
    tags: Arc<Tagged>,
    tools: Tools,
    name: String,
    /// Of the arguments so far.
    keys: Vec<String>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// In the name.
    Name,
    /// Behind it.
    Named,
    /// Between arguments.
    Between,
    /// In an argument's name.
    Key(String),
    /// In the type of the value that belongs to this name.
    Type(String, String),
    /// At the beginning of a value.
    Front(ValueWriter),
    /// In a value; behind a line break that may belong to the closing tag.
    Value(ValueWriter, bool),
}

impl TaggedReader {
    pub(super) fn new(tags: Arc<Tagged>, tools: Tools) -> Self {
        Self { tags, tools, name: String::new(), keys: Vec::new(), state: State::Name }
    }

    fn step(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        match &mut self.state {
            State::Name => self.name(input),
            State::Named => self.begin(input, sink),
            State::Between => self.between(input, sink),
            State::Key(_) => self.key(input, sink),
            State::Type(..) => self.type_of_value(input, sink),
            State::Front(_) => self.front(input),
            State::Value(..) => self.value(input, sink),
        }
    }

    fn name(&mut self, input: &mut Input<'_>) -> Step {
        if !read_name(input, &mut self.name, &self.tags.named)? {
            return Step::Break(Read::NotACall);
        }
        self.state = State::Named;
        Step::Continue(())
    }

    /// It is a call if the tag of an argument follows or that of the end, or if the first argument's name is part of its own.
    fn begin(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        input.visible()?;
        let is_call = settle(self.tags.next(input.text()))?.is_some();
        let glued = self.tools.glued(&self.name).map(|(tool, key)| (tool.to_owned(), key.to_owned()));
        let (name, key) = glued.map_or((self.name.clone(), None), |(tool, key)| (tool, Some(key)));
        if !self.tools.allow(&name) || !is_call && key.is_none() {
            return Step::Break(Read::NotACall);
        }
        self.name = name;
        sink.call(&self.name);
        sink.arguments("{");
        self.state = State::Between;
        if let Some(key) = key.filter(|_| !is_call) {
            let types = self.types(&key);
            self.begin_value(&key, types, sink);
        }
        Step::Continue(())
    }

    fn types(&self, key: &str) -> Types {
        self.tools.types(&self.name, key).unwrap_or(self.tags.untyped)
    }

    fn between(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        input.visible()?;
        let text = input.text();
        if input.accept(literal(text, &self.tags.argument))? {
            self.state = State::Key(String::new());
            return Step::Continue(());
        }
        if settle(self.tags.next(text))?.is_some() {
            end(sink);
        }
        Step::Break(Read::Done)
    }

    fn key(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        let State::Key(key) = &mut self.state else { return Step::Continue(()) };
        key.push_str(input.take_while(|c| !matches!(c, '<' | '>' | '"')));
        let c = input.peek()?;
        let text = input.text();
        let tags = Arc::clone(&self.tags);
        let json = tags.json.as_deref();
        let typed = tags.typed.as_ref().map(|[before, _]| before.as_slice());
        let ends =
            [Some(tags.text.as_slice()), json, typed].map(|end| end.map_or(Match::No, |end| sequence(text, end)));
        if settle(ends.into_iter().fold(Match::No, Match::better))?.is_none() {
            key.push_str(input.advance(c.len_utf8()));
            return Step::Continue(());
        }
        let key = key.trim_ascii().to_owned();
        let [as_text, as_json, _] = ends;
        if input.accept(as_text)? {
            let types = if json.is_some() { Types::TEXT } else { self.types(&key) };
            self.begin_value(&key, types, sink);
        } else if input.accept(as_json)? {
            self.begin_value(&key, Types::JSON, sink);
        } else {
            input.accept(ends[2])?;
            self.state = State::Type(key, String::new());
        }
        Step::Continue(())
    }

    /// The tool's word counts more than the model's.
    fn type_of_value(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        let (State::Type(key, spelled), Some([_, end])) = (&mut self.state, &self.tags.typed) else {
            return Step::Continue(());
        };
        spelled.push_str(input.take_while(|c| c != '<'));
        let c = input.peek()?;
        if !input.accept(sequence(input.text(), end))? {
            spelled.push_str(input.advance(c.len_utf8()));
            return Step::Continue(());
        }
        let (key, spelled) = (std::mem::take(key), Types::spelled(spelled.trim_ascii()));
        let types = self.tools.types(&self.name, &key).or(spelled).unwrap_or(self.tags.untyped);
        self.begin_value(&key, types, sink);
        Step::Continue(())
    }

    fn begin_value(&mut self, key: &str, types: Types, sink: &mut Sink) {
        let mut json = String::new();
        if !self.keys.is_empty() {
            json.push(',');
        }
        escapes::quote(key, &mut json);
        json.push(':');
        self.state = State::Front(ValueWriter::new(types, &mut json));
        self.keys.push(key.to_owned());
        sink.arguments(&json);
    }

    fn front(&mut self, input: &mut Input<'_>) -> Step {
        let line_break = input.peek()? == '\n' && self.tags.own_line[0];
        input.advance(usize::from(line_break));
        let State::Front(value) = std::mem::replace(&mut self.state, State::Between) else { return Step::Continue(()) };
        self.state = State::Value(value, false);
        Step::Continue(())
    }

    fn value(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Step {
        input.peek()?;
        let text = input.text();
        let plain = text.find(self.tags.value_ends.as_slice()).unwrap_or(text.len());
        let mut json = String::new();
        if plain > 0 {
            self.write(input.advance(plain), &mut json);
        } else if let Some(length) = settle(self.value_end(text, input.is_last()))? {
            input.advance(length);
            if let State::Value(value, _) = std::mem::replace(&mut self.state, State::Between) {
                value.end(&mut json);
            }
        } else {
            let c = input.peek()?;
            self.write(input.advance(c.len_utf8()), &mut json);
        }
        sink.arguments(&json);
        Step::Continue(())
    }

    /// More of the value. Its last line break is held back where it may be the closing tag's.
    fn write(&mut self, text: &str, json: &mut String) {
        let State::Value(value, line_break) = &mut self.state else { return };
        if std::mem::take(line_break) {
            value.push("\n", json);
        }
        let own = text.strip_suffix('\n').filter(|_| self.tags.own_line[1]);
        *line_break = own.is_some();
        value.push(own.unwrap_or(text), json);
    }

    /// Whether the value ends here, and how much of this is its closing tag. Values may hold such tags: what ends one is
    /// followed by another argument or by the end of the call, and where it is missing only an argument that the tool has
    /// and that was not given yet ends it, or the end of a call behind which another one begins, or nothing.
    fn value_end(&self, text: &str, last: bool) -> Match {
        let tags = &self.tags;
        // What may still come does not come any more behind the last text.
        let or_nothing = |found: Match| if last && found == Match::Maybe { Match::Yes(0) } else { found };
        let closed = literal(text, &tags.value_end)
            .then(text, |behind| or_nothing(gap(behind).then(behind, |text| tags.next(text))))
            .with_length(tags.value_end.len());
        let ended = || {
            let found = sequence(text, &tags.close)
                .then(text, |behind| or_nothing(gap(behind).then(behind, |text| any_of(text, &tags.beyond))));
            let begun = tags.close.first().is_some_and(|tag| text.starts_with(tag));
            if begun { or_nothing(found) } else { found }.with_length(0)
        };
        closed.or(|| self.argument(text).with_length(0)).or(ended)
    }

    /// Whether an argument begins here that the tool has and that was not given yet.
    fn argument(&self, text: &str) -> Match {
        let declared = self.tools.keys(&self.name).next().is_some();
        let new = |key: &&str| !self.keys.iter().any(|given| given == key);
        literal(text, &self.tags.argument).then(text, |text| {
            let keys = self.tools.keys(&self.name).filter(new).map(|key| literal(text, key));
            let keys = keys.chain((!declared).then(|| name(text)));
            keys.map(|key| key.then(text, |text| sequence(text, &self.tags.text))).fold(Match::No, Match::better)
        })
    }
}

fn end(sink: &mut Sink) {
    sink.arguments("}");
    sink.end();
}

impl CallReader for TaggedReader {
    fn read(&mut self, input: &mut Input<'_>, sink: &mut Sink) -> Read {
        loop {
            if let Step::Break(read) = self.step(input, sink) {
                return read;
            }
        }
    }

    /// Behind an argument a call is complete if it has all that it needs and no other argument was begun.
    fn finish(&mut self, rest: &str, sink: &mut Sink) {
        let complete = self.tools.required(&self.name).all(|key| self.keys.iter().any(|given| given == key));
        let begun = !rest.is_empty() && self.tags.argument.starts_with(rest);
        if matches!(self.state, State::Between) && complete && !begun {
            end(sink);
        }
    }
}
