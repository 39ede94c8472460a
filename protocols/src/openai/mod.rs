//! OpenAI's protocols: chat completions, completions, models.

pub(crate) mod chat;
mod chat_wire;
pub(crate) mod completions;
mod completions_wire;
mod envelope;
mod form;
mod messages;
pub(crate) mod models;
pub(crate) mod options;
mod samplers;
mod thinking;
pub(crate) mod unsupported;
mod usage;

pub(crate) use messages::conversation;
pub(crate) use thinking::Thinking;

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

pub(crate) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LEAST_LOGPROB }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::chat::ChatRequest;
    use super::completions::CompletionsRequest;
    use crate::fields::testing::{any_json, is_named, nearly_right};

    /// The fields that are read, so that made-up bodies get past the first of them.
    const KEYS: &[&str] = &[
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

    const WORDS: &[&str] = &["user", "assistant", "tool", "text", "function", "auto", "", "7", "\u{0}é"];

    fn bodies() -> impl Strategy<Value = Value> {
        let right = [json!({"messages": [{"role": "user", "content": "x"}]}), json!({"prompt": "x"})];
        prop_oneof![any_json(KEYS, WORDS), nearly_right(right.to_vec(), KEYS, WORDS)]
    }

    proptest! {
        #[test]
        fn whatever_a_body_holds_it_is_read_or_the_fault_is_named(body in bodies()) {
            let faults = [ChatRequest::read(&body).err(), CompletionsRequest::read(&body).err()];
            for fault in faults.into_iter().flatten() {
                prop_assert!(is_named(&fault, KEYS), "{fault}");
            }
        }
    }
}
