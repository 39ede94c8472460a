//! Anthropic's protocol: messages, their tokens, and its form of errors and of the list of models.

mod blocks;
mod conversation;
mod errors;
pub(crate) mod messages;
pub(crate) mod models;
mod request;
mod stream;
mod tools;
mod wire;

pub(crate) use errors::{in_anthropics_form, speaks_it};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::request::MessagesRequest;
    use crate::fields::testing::{any_json, is_named, nearly_right};

    const KEYS: &[&str] = &[
        "messages",
        "system",
        "max_tokens",
        "role",
        "content",
        "type",
        "text",
        "thinking",
        "source",
        "data",
        "tools",
        "name",
        "input",
        "input_schema",
        "description",
        "tool_use_id",
        "tool_choice",
        "disable_parallel_tool_use",
        "stop_sequences",
        "temperature",
        "top_k",
        "budget_tokens",
        "output_config",
        "effort",
        "format",
        "output_format",
        "schema",
        "stream",
    ];

    const WORDS: &[&str] = &[
        "user",
        "assistant",
        "text",
        "thinking",
        "tool_use",
        "tool_result",
        "document",
        "search_result",
        "image",
        "custom",
        "enabled",
        "json_schema",
        "tool",
        "",
        "\u{0}é",
    ];

    fn bodies() -> impl Strategy<Value = serde_json::Value> {
        let blocks = json!([{"type": "text", "text": "x"}, {"type": "tool_result", "tool_use_id": "t"}]);
        let right = json!({"max_tokens": 9, "messages": [{"role": "user", "content": blocks}]});
        prop_oneof![any_json(KEYS, WORDS), nearly_right(vec![right], KEYS, WORDS)]
    }

    proptest! {
        #[test]
        fn whatever_a_body_holds_it_is_read_or_the_fault_is_named(body in bodies()) {
            if let Err(fault) = MessagesRequest::read(&body) {
                prop_assert!(is_named(&fault, KEYS), "{fault}");
            }
        }
    }
}
