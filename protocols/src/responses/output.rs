//! The items of an answer as objects.

use bantam_runtime::engine::TokenLogprob;
use serde_json::{Value, json};

use super::conversation::sealed;
use super::custom::Input;
use super::request::Telling;
use crate::openai::finite;

/// An item that is being added to.
#[derive(Debug)]
pub(super) enum Item {
    Message {
        id: String,
        text: String,
        logprobs: Vec<Value>,
    },
    Reasoning {
        id: String,
        text: String,
    },
    Call {
        id: String,
        call_id: String,
        name: String,
        arguments: String,
    },
    /// A call of a tool that takes any text.
    CustomCall {
        id: String,
        call_id: String,
        name: String,
        input: Input,
    },
}

impl Item {
    /// An item of a response that has ended, and how it was told.
    pub(super) fn read(item: &Value) -> Option<(Self, Telling)> {
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        let parts = |key: &str| {
            let texts = item[key].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
            texts.collect::<String>()
        };
        let (id, call_id, name) = (text("id"), text("call_id"), text("name"));
        let mut telling = Telling::default();
        let read = match item["type"].as_str()? {
            "message" => {
                let logprobs = item["content"][0]["logprobs"].as_array().cloned().unwrap_or_default();
                Item::Message { id, text: parts("content"), logprobs }
            }
            "reasoning" => {
                telling.summary = item["summary"] != json!([]);
                telling.sealed = item.get("encrypted_content").is_some();
                Item::Reasoning { id, text: parts(if telling.summary { "summary" } else { "content" }) }
            }
            "function_call" => Item::Call { id, call_id, name, arguments: text("arguments") },
            "custom_tool_call" => Item::CustomCall { id, call_id, name, input: Input::of(&text("input")) },
            _ => return None,
        };
        Some((read, telling))
    }

    pub(super) fn id(&self) -> &str {
        match self {
            Item::Message { id, .. }
            | Item::Reasoning { id, .. }
            | Item::Call { id, .. }
            | Item::CustomCall { id, .. } => id,
        }
    }

    /// The item with all that it holds so far.
    pub(super) fn told(&self, status: &str, telling: &Telling) -> Value {
        match self {
            Item::Message { id, text, logprobs } => json!({
                "id": id, "type": "message", "status": status, "role": "assistant", "content": [text_part(text, logprobs)],
            }),
            Item::Reasoning { id, text } => reasoning(id, text, status, telling),
            Item::Call { id, call_id, name, arguments } => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name,
                "arguments": arguments,
            }),
            Item::CustomCall { id, call_id, name, input } => json!({
                "id": id, "type": "custom_tool_call", "status": status, "call_id": call_id, "name": name,
                "input": input.text(),
            }),
        }
    }

    /// The item as it is when it begins.
    pub(super) fn begun(&self) -> Value {
        let mut told = self.told("in_progress", &Telling::default());
        if matches!(self, Item::Message { .. } | Item::Reasoning { .. }) {
            told["content"] = json!([]);
        }
        told
    }
}

pub(super) fn text_part(text: &str, logprobs: &[Value]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

fn reasoning(id: &str, text: &str, status: &str, telling: &Telling) -> Value {
    let summary = json!([{"type": "summary_text", "text": text}]);
    let content = json!([{"type": "reasoning_text", "text": text}]);
    let (summary, content) = if telling.summary { (summary, json!([])) } else { (json!([]), content) };
    let mut told = json!({"id": id, "type": "reasoning", "status": status, "summary": summary, "content": content});
    if telling.sealed {
        told["encrypted_content"] = sealed(text).into();
    }
    told
}

pub(super) fn logprobs(tokens: &[TokenLogprob]) -> Vec<Value> {
    let told = |token: &TokenLogprob| {
        let text = String::from_utf8_lossy(&token.bytes);
        json!({"token": text, "logprob": finite(token.logprob), "bytes": token.bytes})
    };
    let with_top = |token: &TokenLogprob| {
        let mut with_top = told(token);
        with_top["top_logprobs"] = token.top.iter().map(told).collect();
        with_top
    };
    tokens.iter().map(with_top).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_thought_is_told_as_it_was_asked_for() {
        let item = Item::Reasoning { id: "rs_1".into(), text: "hm".into() };
        let told = |summary, sealed| item.told("completed", &Telling { summary, sealed, ..Telling::default() });
        let plain = json!({
            "id": "rs_1", "type": "reasoning", "status": "completed", "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
        });
        assert_eq!(told(false, false), plain);
        let summed = told(true, true);
        assert_eq!(summed["summary"], json!([{"type": "summary_text", "text": "hm"}]));
        assert_eq!((&summed["content"], &summed["encrypted_content"]), (&json!([]), &json!("aG0=")));
    }
}
