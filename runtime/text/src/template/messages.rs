//! What transformers does to a conversation before the template sees it.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use minijinja::Value;
use minijinja::value::ValueKind;
use serde_json::{Map, Value as Json};

use super::{RenderInput, json};
use crate::tokenizer::Tokenizer;

/// Names under which clients send what an assistant thought; the first that is set is the one that counts.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Marks in the strings that come from outside. See [`marked`](super::marked).
pub(super) struct Marks<'a> {
    how: Option<(&'a Tokenizer, char, char)>,
    spare_assistants: bool,
    set: Cell<bool>,
}

impl<'a> Marks<'a> {
    /// No marks.
    pub(super) fn none() -> Self {
        Self { how: None, spare_assistants: false, set: Cell::new(false) }
    }

    /// Marks around what spells a control token of `tokenizer`, except in assistants' messages if these are spared.
    pub(super) fn new(tokenizer: &'a Tokenizer, open: char, close: char, spare_assistants: bool) -> Self {
        Self { how: Some((tokenizer, open, close)), spare_assistants, set: Cell::new(false) }
    }

    /// Whether there was anything to mark.
    pub(super) fn were_set(&self) -> bool {
        self.set.get()
    }

    pub(super) fn mark<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some((tokenizer, open, close)) = self.how else { return Cow::Borrowed(text) };
        let spellings = tokenizer.control_spellings(text);
        if spellings.is_empty() {
            return Cow::Borrowed(text);
        }
        self.set.set(true);
        let mut marked = String::with_capacity(text.len() + 8 * spellings.len());
        let mut done = 0;
        for range in spellings {
            marked.push_str(text.get(done..range.start).unwrap_or_default());
            marked.push(open);
            marked.push_str(text.get(range.clone()).unwrap_or_default());
            marked.push(close);
            done = range.end;
        }
        marked.push_str(text.get(done..).unwrap_or_default());
        Cow::Owned(marked)
    }
}

/// The variables of a template.
pub(super) fn context(input: &RenderInput, marks: &Marks<'_>) -> BTreeMap<String, Value> {
    let none = Value::from(());
    let messages: Value = input.messages.iter().map(|message| self::message(message, input, marks)).collect();
    let mut context = BTreeMap::from([
        ("messages".to_owned(), messages),
        ("tools".to_owned(), input.tools.as_ref().map_or(none.clone(), |tools| json::to_value(tools, marks))),
        ("documents".to_owned(), none),
        ("add_generation_prompt".to_owned(), Value::from(false)),
    ]);
    context.extend(input.special_tokens.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str()))));
    context.extend(input.kwargs.iter().map(|(name, value)| (name.clone(), json::to_value(value, marks))));
    context
}

/// One message: nulls dropped, reasoning under both of the names that templates ask for.
fn message(message: &Json, input: &RenderInput, marks: &Marks<'_>) -> Value {
    let unmarked = Marks::none();
    let is_assistant = message.get("role").is_some_and(|role| role == "assistant");
    let marks = if is_assistant && marks.spare_assistants { &unmarked } else { marks };
    let Json::Object(fields) = message else { return json::to_value(message, marks) };
    let mut fields: Map<String, Json> = fields.clone();
    fields.retain(|_, value| !value.is_null());
    if let Some(reasoning) = REASONING.iter().find_map(|name| fields.get(*name)).cloned() {
        fields.insert("reasoning_content".to_owned(), reasoning.clone());
        fields.entry("thinking").or_insert(reasoning);
    }
    json::map(&fields, marks, |name, value| match value {
        Json::Array(calls) if input.parse_arguments && name == "tool_calls" => {
            calls.iter().map(|call| tool_call(call, marks)).collect()
        }
        value => json::to_value(value, marks),
    })
}

/// A tool call with its arguments as an object, where they are one in JSON: in `function`, or in the call itself.
fn tool_call(call: &Json, marks: &Marks<'_>) -> Value {
    let Json::Object(fields) = call else { return json::to_value(call, marks) };
    json::map(fields, marks, |name, value| match (name, value) {
        ("function", function) => tool_call(function, marks),
        ("arguments", Json::String(text)) => {
            let object = json::parse(text, marks).filter(|parsed| parsed.kind() == ValueKind::Map);
            object.unwrap_or_else(|| json::to_value(value, marks))
        }
        (_, value) => json::to_value(value, marks),
    })
}
