//! Reads calls in the syntax of each family, as plainly as can be.

use bantam_family_api::{CallSyntax, JsonCalls, NamedCalls, TaggedCalls};
use bantam_grammar::Tool;
use serde_json::{Map, Value};

/// A text and how far it is read. Everything that does not fit is a panic with what is left.
struct Reader<'t> {
    rest: &'t str,
}

/// All calls of a text that has nothing else.
pub(crate) fn calls(text: &str, syntax: &CallSyntax, tools: &[Tool]) -> Vec<(String, Value)> {
    let mut reader = Reader { rest: text };
    let mut calls = Vec::new();
    while !reader.is_done() {
        match syntax {
            CallSyntax::Json(json) => reader.block(json.block.as_ref(), |reader| calls.push(reader.object(json))),
            CallSyntax::Named(named) => reader.block(named.block.as_ref(), |reader| calls.push(reader.named(named))),
            CallSyntax::Tagged(tags) => {
                reader.block(tags.block.as_ref(), |reader| calls.push(reader.tagged(tags, tools)));
            }
            CallSyntax::Python { open, close } => {
                reader.tags(open);
                reader.expect("[");
                while !reader.takes("]") {
                    calls.push(reader.python_call());
                    reader.takes(",");
                }
                reader.tags(close);
            }
            CallSyntax::Braced { open, close, quote } => {
                reader.expect(open);
                let name = reader.until("{").to_owned();
                let arguments = reader.braces(quote);
                reader.expect(close);
                calls.push((name, arguments));
            }
            // The one form of its own that the tests have.
            CallSyntax::Lark(lark) => {
                reader.expect(&lark.open);
                reader.takes("please ");
                reader.blank();
                let name = reader.until(" with ").to_owned();
                let arguments = reader.json();
                reader.expect("!");
                reader.expect(&lark.close);
                calls.push((name, arguments));
            }
        }
    }
    calls
}

impl<'t> Reader<'t> {
    fn is_done(&self) -> bool {
        self.rest.trim().is_empty()
    }

    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn takes(&mut self, text: &str) -> bool {
        self.blank();
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, text: &str) {
        assert!(self.takes(text), "expected {text:?} at {:?}", self.rest);
    }

    fn until(&mut self, end: &str) -> &'t str {
        let (before, rest) = self.rest.split_once(end).unwrap_or_else(|| panic!("no {end:?} in {:?}", self.rest));
        self.rest = rest;
        before
    }

    /// White space counts neither between the tags of a text nor around them.
    fn tags(&mut self, text: &str) {
        text.split('\n').flat_map(|line| line.split_inclusive("><")).for_each(|tag| self.expect(tag.trim()));
    }

    fn takes_tags(&mut self, text: &str) -> bool {
        self.takes(text.trim())
    }

    fn json(&mut self) -> Value {
        self.blank();
        if !self.rest.starts_with(['{', '[', '"']) {
            return self.word();
        }
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter();
        let value = values.next().unwrap().unwrap_or_else(|error| panic!("{error}: {:?}", self.rest));
        self.rest = &self.rest[values.byte_offset()..];
        value
    }

    /// One call, or all of a block.
    fn block(&mut self, block: Option<&[String; 2]>, mut call: impl FnMut(&mut Self)) {
        let Some([open, close]) = block else { return call(self) };
        self.tags(open);
        while !self.takes_tags(close) {
            call(self);
        }
    }

    fn object(&mut self, json: &JsonCalls) -> (String, Value) {
        self.tags(&json.open);
        let mut object = self.json();
        self.tags(&json.close);
        let arguments = json.arguments.iter().find_map(|key| object.as_object_mut().unwrap().remove(key)).unwrap();
        (object[&json.name].as_str().unwrap().to_owned(), arguments)
    }

    fn named(&mut self, calls: &NamedCalls) -> (String, Value) {
        self.tags(&calls.open);
        self.blank();
        let name = self.until(calls.named.trim()).trim().to_owned();
        let arguments = self.json();
        self.tags(&calls.close);
        (name, arguments)
    }

    fn tagged(&mut self, tags: &TaggedCalls, tools: &[Tool]) -> (String, Value) {
        self.tags(&tags.open);
        let name = if tags.named.trim().is_empty() {
            let end = self.rest.find(['\n', '<', ' ', '\t']).unwrap();
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            name
        } else {
            self.until(tags.named.trim())
        };
        let tool = tools.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("no tool {name:?}"));
        let mut arguments = Map::new();
        while !self.takes_tags(tags.close.split('\n').next().unwrap()) {
            let (key, value) = self.argument(tags, tool);
            assert!(arguments.insert(key.clone(), value).is_none(), "{key} twice");
        }
        tags.close.split('\n').skip(1).for_each(|tag| self.tags(tag));
        (name.to_owned(), Value::Object(arguments))
    }

    fn argument(&mut self, tags: &TaggedCalls, tool: &Tool) -> (String, Value) {
        let argument = &tags.argument;
        self.tags(&argument.open);
        let end = argument.text.trim_end().split("><").next().unwrap().chars().next().unwrap();
        let key = self.rest.split(end).next().unwrap();
        self.rest = &self.rest[key.len()..];
        let schema = &tool.parameters["properties"][key];
        let says_json = argument.json.as_ref().is_some_and(|json| self.takes(json));
        if !says_json {
            let (first, last) =
                argument.text.split_once("><").map_or(("", argument.text.as_str()), |(first, last)| (first, last));
            if !first.is_empty() {
                self.expect(&format!("{first}>"));
                self.expect(&format!("<{last}"));
            } else {
                self.expect(last);
            }
        }
        let is_text = match &argument.json {
            Some(_) => !says_json,
            None => {
                schema["type"] == "string"
                    || schema["enum"].as_array().is_some_and(|values| values.iter().all(Value::is_string))
            }
        };
        let value = if is_text { self.until(argument.close.trim_end()).into() } else { self.json() };
        if !is_text {
            self.expect(argument.close.trim());
        }
        (key.to_owned(), value)
    }

    fn python_call(&mut self) -> (String, Value) {
        self.blank();
        let name = self.until("(").to_owned();
        let mut arguments = Map::new();
        while !self.takes(")") {
            self.blank();
            let key = self.until("=").to_owned();
            arguments.insert(key, self.python());
            self.takes(",");
        }
        (name, Value::Object(arguments))
    }

    fn python(&mut self) -> Value {
        self.blank();
        for (word, value) in [("True", Value::Bool(true)), ("False", Value::Bool(false)), ("None", Value::Null)] {
            if self.takes(word) {
                return value;
            }
        }
        match self.rest.chars().next().unwrap() {
            quote @ ('\'' | '"') => self.python_text(quote).into(),
            '[' => {
                self.expect("[");
                let mut items = Vec::new();
                while !self.takes("]") {
                    items.push(self.python());
                    self.takes(",");
                }
                items.into()
            }
            '{' => {
                self.expect("{");
                let mut members = Map::new();
                while !self.takes("}") {
                    let Value::String(key) = self.python() else { panic!("a key is a text at {:?}", self.rest) };
                    self.expect(":");
                    members.insert(key, self.python());
                    self.takes(",");
                }
                members.into()
            }
            _ => self.word(),
        }
    }

    /// A number, or a value that is spelled as a word.
    fn word(&mut self) -> Value {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap();
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        serde_json::from_str(word).unwrap_or_else(|error| panic!("{error}: {word:?}"))
    }

    fn python_text(&mut self, quote: char) -> String {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        loop {
            let (at, c) = characters.next().unwrap();
            match c {
                '\\' => text.push(match characters.next().unwrap().1 {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    c => c,
                }),
                c if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return text;
                }
                c => text.push(c),
            }
        }
    }

    /// The members of an object whose brace is open.
    fn braces(&mut self, quote: &str) -> Value {
        let mut members = Map::new();
        while !self.takes("}") {
            let key = self.until(":").to_owned();
            members.insert(key, self.braced(quote));
            self.takes(",");
        }
        members.into()
    }

    fn braced(&mut self, quote: &str) -> Value {
        if self.rest.starts_with(quote) {
            self.rest = &self.rest[quote.len()..];
            self.until(quote).into()
        } else if self.takes("{") {
            self.braces(quote)
        } else if self.takes("[") {
            let mut items = Vec::new();
            while !self.takes("]") {
                items.push(self.braced(quote));
                self.takes(",");
            }
            items.into()
        } else {
            self.word()
        }
    }
}
