//! OpenAI's protocols: chat completions, completions, models.

pub(crate) mod chat;
mod chat_wire;
pub(crate) mod completions;
mod completions_wire;
mod messages;
pub(crate) mod models;
mod options;
mod unsupported;
mod usage;

pub(crate) use messages::conversation;

use std::time::{SystemTime, UNIX_EPOCH};

use bantam_runtime::engine::FinishReason;

use crate::answer::Frame;
use crate::error::ApiError;

/// What ends a successful stream.
const DONE: &str = "[DONE]";

/// What all objects of one answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    id: String,
    created: u64,
    model: String,
}

impl Stamp {
    fn new(prefix: &str, model: &str) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Stamp { id: format!("{prefix}-{}", uuid::Uuid::new_v4().simple()), created, model: model.to_owned() }
    }
}

fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// A frame that carries this object.
fn frame(object: &impl serde::Serialize) -> Frame {
    Frame(serde_json::to_string(object).unwrap_or_else(|error| {
        ApiError::internal(format!("an event could not be written as JSON: {error}")).body().to_string()
    }))
}

/// The least log-probability that is told: JSON has no minus infinity.
const LEAST_LOGPROB: f32 = -9999.0;

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LEAST_LOGPROB }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::chat::ChatRequest;
    use super::completions::CompletionsRequest;

    /// The fields that are read, so that made-up bodies get past the first of them.
    const KEYS: [&str; 24] = [
        "messages",
        "prompt",
        "role",
        "content",
        "type",
        "text",
        "tools",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "stop",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "stream",
        "stream_options",
        "temperature",
        "top_k",
        "seed",
        "max_tokens",
        "tool_choice",
        "chat_template_kwargs",
        "echo",
    ];

    const WORDS: [&str; 9] = ["user", "assistant", "tool", "text", "function", "auto", "", "7", "\u{0}é"];

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(&WORDS[..]).prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            let key = prop::sample::select(&KEYS[..]).prop_map(str::to_owned);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..8).prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    /// A body that is right apart from one field.
    fn nearly_right() -> impl Strategy<Value = Value> {
        (prop::sample::select(&KEYS[..]), any_json()).prop_map(|(key, value)| {
            let mut body = json!({"messages": [{"role": "user", "content": "x"}], "prompt": "x"});
            body[key] = value;
            body
        })
    }

    proptest! {
        #[test]
        fn whatever_a_body_holds_it_is_read_or_the_fault_is_named(body in prop_oneof![any_json(), nearly_right()]) {
            let faults = [ChatRequest::read(&body).err(), CompletionsRequest::read(&body).err()];
            for fault in faults.into_iter().flatten() {
                let named = if fault.path.is_empty() { "The request body".to_owned() } else { format!("`{}`", fault.path) };
                prop_assert!(fault.to_string().starts_with(&named));
                let key = fault.path.split(['.', '[']).next().unwrap_or_default();
                prop_assert!(key.is_empty() || KEYS.contains(&key), "{fault}");
            }
        }
    }
}
