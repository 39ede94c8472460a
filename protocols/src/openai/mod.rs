//! OpenAI's protocols: chat completions, completions, models.

pub(crate) mod chat;
mod chat_wire;
pub(crate) mod completions;
mod completions_wire;
mod envelope;
mod form;
mod messages;
pub(crate) mod models;
mod options;
mod thinking;
mod unsupported;
mod usage;

pub(crate) use messages::conversation;

use bantam_runtime::engine::FinishReason;

fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
    }
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

    /// Bodies of both routes that are right apart from one field.
    fn nearly_right() -> impl Strategy<Value = Value> {
        let right = [json!({"messages": [{"role": "user", "content": "x"}]}), json!({"prompt": "x"})];
        (prop::sample::select(right.to_vec()), prop::sample::select(&KEYS[..]), any_json()).prop_map(
            |(mut body, key, value)| {
                body[key] = value;
                body
            },
        )
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
