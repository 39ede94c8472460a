//! OpenAI's Responses: answers made of items, which the server keeps and goes on from.

mod archive;
mod conversation;
pub(crate) mod create;
mod custom;
mod events;
mod input;
mod object;
mod output;
mod progress;
mod request;
mod store;
pub(crate) mod stored;
mod tools;

pub(crate) use archive::Archive;
pub(crate) use store::Store;

/// A new name of something of this kind.
fn new_id(kind: &str) -> String {
    format!("{kind}_{}", uuid::Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::Store;
    use super::request::ResponsesRequest;
    use crate::fields::testing::{any_json, is_named, nearly_right};

    const KEYS: &[&str] = &[
        "input",
        "instructions",
        "role",
        "content",
        "type",
        "text",
        "id",
        "call_id",
        "name",
        "arguments",
        "output",
        "action",
        "summary",
        "encrypted_content",
        "tools",
        "tool_choice",
        "parameters",
        "format",
        "schema",
        "reasoning",
        "effort",
        "include",
        "store",
        "background",
        "stream",
        "top_logprobs",
        "max_output_tokens",
        "previous_response_id",
        "metadata",
        "temperature",
        "truncation",
        "conversation",
        "parallel_tool_calls",
    ];

    const WORDS: &[&str] = &[
        "user",
        "assistant",
        "developer",
        "message",
        "input_text",
        "output_text",
        "function",
        "custom",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "local_shell_call",
        "reasoning",
        "item_reference",
        "json_schema",
        "auto",
        "",
        "\u{0}é",
    ];

    fn bodies() -> impl Strategy<Value = Value> {
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
        let right = [json!({"input": "x"}), json!({"input": [{"role": "user", "content": "x"}, call]})];
        prop_oneof![any_json(KEYS, WORDS), nearly_right(right.to_vec(), KEYS, WORDS)]
    }

    proptest! {
        #[test]
        fn whatever_a_body_holds_it_is_read_or_the_fault_is_named(body in bodies()) {
            if let Err(fault) = ResponsesRequest::read(&body, Vec::new(), &Store::default()) {
                prop_assert!(is_named(&fault, KEYS), "{fault}");
            }
        }
    }
}
