//! The template engine set up as transformers sets up Jinja.

use std::io;
use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use regex::Regex;

use super::{error, json, python};

/// Steps a template may take; ten times what the longest of the known ones needs for a conversation of a thousand turns.
const FUEL: u64 = 50_000_000;
/// How deep macros may call each other.
const RECURSION: usize = 200;

/// An environment without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // Only errors are dearer for it, and they name what was undefined.
    environment.set_debug(true);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(python::call_method);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("trim", python::trim);
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_test("number", python::is_number);
    environment.add_test("integer", python::is_integer);
    environment.add_test("float", python::is_float);
    environment.add_function("raise_exception", |reason: &Value| -> Result<Value, _> {
        Err(error::raised(&reason.to_string()))
    });
    environment
}

/// transformers' tag pair `generation` marks what an assistant said; its body is rendered in a scope of its own, which
/// is what the engine's `with` does.
pub(super) fn rewrite_tags(source: &str) -> String {
    static TAGS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})").ok());
    match &*TAGS {
        Some(tags) => tags.replace_all(source, "${1}${2}with${3}").into_owned(),
        None => source.to_owned(),
    }
}

/// Text up to a bound.
pub(super) struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl Bounded {
    pub(super) fn new(most: usize) -> Self {
        Self { text: Vec::new(), most }
    }

    pub(super) fn into_text(self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.most - self.text.len() {
            return Err(io::Error::other("the output is too long"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
