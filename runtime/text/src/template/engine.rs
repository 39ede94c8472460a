//! The template engine set up as transformers sets up Jinja.

use std::sync::LazyLock;
use std::{io, thread};

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, State, UndefinedBehavior, Value};
use regex::Regex;
use serde_json::Value as Json;

use super::{RenderInput, error, guard, json, python};

/// Steps a template may take for its own sake. A step also pays for 64 bytes, so this bounds the memory as well.
const OWN_STEPS: u64 = 250_000;
/// Most steps for any conversation.
const MAX_STEPS: u64 = 16_000_000;
/// Steps for each value of the conversation and the tools: ten times what the known templates need.
const STEPS_PER_VALUE: u64 = 1_000;
/// Steps for each pair of messages: Gemma 4's template looks from each tool result back for its call.
const STEPS_PER_PAIR: u64 = 8;
/// Stack to read and render templates on. The engine recurses without a bound where expressions are chained and values
/// nested; the longest source and the steps bound how often.
const STACK: usize = 128 << 20;
/// How deep macros may call each other.
const RECURSION: usize = 200;

/// Jinja's syntax, with the white space around blocks handled as transformers has it.
pub(super) fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap_or_default()
}

/// What templates are rendered in.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // Only errors are dearer for it, and they name what was undefined.
    environment.set_debug(true);
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(python::call_method);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("trim", python::trim);
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_test("number", python::is_number);
    environment.add_test("integer", python::is_integer);
    environment.add_test("float", python::is_float);
    environment.add_function("raise_exception", raise);
    // It shows the whole state.
    environment.remove_global("debug");
    guard::install(&mut environment);
    environment
}

fn raise(state: &State<'_, '_>, reason: &Value) -> Result<Value, Error> {
    guard::pay(state, reason)?;
    Err(error::raised(&reason.to_string()))
}

/// The steps that a template may take for a conversation.
pub(super) fn allowance(input: &RenderInput) -> u64 {
    let values: u64 = input.messages.iter().chain(&input.tools).chain(input.kwargs.values()).map(weight).sum();
    let messages = input.messages.len() as u64;
    OWN_STEPS
        .saturating_add(values.saturating_mul(STEPS_PER_VALUE))
        .saturating_add(messages.saturating_mul(messages).saturating_mul(STEPS_PER_PAIR))
        .min(MAX_STEPS)
}

/// How many values there are in `json`, with a kilobyte of text for another one.
fn weight(json: &Json) -> u64 {
    match json {
        Json::Array(items) => 1 + items.iter().map(weight).sum::<u64>(),
        Json::Object(fields) => 1 + fields.values().map(weight).sum::<u64>(),
        Json::String(text) => 1 + text.len() as u64 / 1024,
        _ => 1,
    }
}

/// Runs `run` where there is stack for whatever a template asks for.
pub(super) fn on_deep_stack<T: Send>(run: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread =
            thread::Builder::new().name("chat template".to_owned()).stack_size(STACK).spawn_scoped(scope, run)?;
        thread.join().map_err(|_| io::Error::other("the template engine panicked"))
    })
}

/// `source` as the engine takes it. Line ends become `\n`, as in Jinja. transformers' tag pair `generation`, which marks
/// what an assistant said, becomes the engine's `with`: both render their body in a scope of its own.
pub(super) fn rewrite(source: &str) -> String {
    static TAGS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})").ok());
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    match &*TAGS {
        Some(tags) => tags.replace_all(&source, "${1}${2}with${3}").into_owned(),
        None => source,
    }
}
