//! Bodies that are almost right, on every route: each is answered, in time, and none is a fault of the server.
//!
//! `BANTAM_FUZZ_CASES` says how many are sent (1000).

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::server::Server;

/// Fields that one route or another reads.
const KEYS: [&str; 54] = [
    "messages",
    "prompt",
    "input",
    "role",
    "content",
    "type",
    "text",
    "system",
    "instructions",
    "tools",
    "tool_choice",
    "tool_calls",
    "function",
    "name",
    "parameters",
    "input_schema",
    "arguments",
    "properties",
    "response_format",
    "json_schema",
    "schema",
    "grammar",
    "regex",
    "guided_choice",
    "stop",
    "stop_sequences",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "stream",
    "temperature",
    "top_k",
    "seed",
    "n",
    "thinking",
    "reasoning",
    "reasoning_effort",
    "chat_template_kwargs",
    "previous_response_id",
    "tokens",
    "n_predict",
    "n_probs",
    "n_indent",
    "samplers",
    "response_fields",
    "return_tokens",
    "repeat_last_n",
    "input_prefix",
    "input_suffix",
    "input_extra",
    "filename",
    "prompt_string",
    "id",
    "action",
];

const WORDS: [&str; 16] = [
    "user",
    "assistant",
    "tool",
    "text",
    "function",
    "auto",
    "required",
    "object",
    "string",
    "json_schema",
    "high",
    "",
    "7",
    "\u{0}é",
    "<|eot_id|>",
    "start: \"a\"",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..9_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(&WORDS[..]).prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        let key = prop::sample::select(&KEYS[..]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..8).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Routes with bodies that are right.
fn right() -> Vec<(&'static str, Value)> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let function = json!({"type": "function", "function": {"name": "f", "parameters": schema}});
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"b\"}"}});
    let messages = json!([
        {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": null, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "y"},
    ]);
    let blocks = json!([
        {"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "y"}, {"type": "text", "text": "z"}]},
    ]);
    let items = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "y"},
    ]);
    vec![
        ("/v1/chat/completions", json!({"messages": messages, "tools": [function], "max_tokens": 3})),
        ("/v1/chat/completions", json!({"messages": messages, "stream": true, "max_tokens": 3})),
        ("/v1/completions", json!({"prompt": "x", "max_tokens": 3, "logprobs": 1})),
        (
            "/v1/messages",
            json!({"messages": blocks, "max_tokens": 3, "tools": [{"name": "f", "input_schema": schema}]}),
        ),
        ("/v1/messages", json!({"messages": blocks, "max_tokens": 3, "stream": true})),
        ("/v1/messages/count_tokens", json!({"messages": blocks})),
        (
            "/v1/responses",
            json!({"input": items, "max_output_tokens": 3, "tools": [{"type": "function", "name": "f"}]}),
        ),
        ("/v1/responses", json!({"input": "x", "max_output_tokens": 3, "stream": true})),
        ("/v1/responses/input_tokens", json!({"input": items})),
        ("/v1/chat/completions/x/stop_thinking", json!({})),
        ("/v1/responses/x/cancel", json!({})),
        ("/tokenize", json!({"content": "x"})),
        ("/detokenize", json!({"tokens": [1, 2]})),
        ("/apply-template", json!({"messages": messages})),
        ("/completion", json!({"prompt": [1, "x"], "n_predict": 3, "logit_bias": [["a", false]]})),
        ("/completion", json!({"prompt": ["x", [1, 2]], "n_predict": 3, "n_probs": 1, "stream": true})),
        ("/infill", json!({"input_prefix": "x", "input_suffix": "y", "input_extra": [{"text": "z"}], "n_predict": 3})),
        ("/v1/chat/completions/control", json!({"id": "x", "action": "reasoning_end"})),
        ("/v1/chat/completions/input_tokens", json!({"messages": messages})),
        ("/embeddings", json!({"input": "x"})),
        ("/v1/rerank", json!({"query": "x", "documents": ["y"]})),
    ]
}

/// A body with something else in one place, or all of it something else.
fn bodies() -> impl Strategy<Value = (&'static str, Value)> {
    let key = prop::sample::select(&KEYS[..]);
    (prop::sample::select(right()), key, any_json(), any::<prop::sample::Index>(), 0..20).prop_map(
        |((path, mut body), key, value, at, how)| {
            match how {
                0 => body = value,
                1..10 => body[key] = value,
                _ => replace(&mut body, at.index(12), value),
            }
            (path, body)
        },
    )
}

/// Puts `value` in the place of the part that is met as number `at`, in the order of the text.
fn replace(body: &mut Value, at: usize, value: Value) {
    let mut left = at;
    let mut value = Some(value);
    fn walk(part: &mut Value, left: &mut usize, value: &mut Option<Value>) {
        if *left == 0 {
            if let Some(value) = value.take() {
                *part = value;
            }
            return;
        }
        *left -= 1;
        match part {
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, left, value)),
            Value::Object(fields) => fields.values_mut().for_each(|field| walk(field, left, value)),
            _ => {}
        }
    }
    walk(body, &mut left, &mut value);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_sent_is_answered_and_no_fault_of_the_server() {
    let cases = std::env::var("BANTAM_FUZZ_CASES").map_or(1000, |cases| cases.parse().unwrap());
    let server = Server::with(|engine, _| {
        (engine.context, engine.max_tokens, engine.batch) = (256, 4, 256);
    })
    .await;
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), seed);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..cases {
        let (path, body) = bodies().new_tree(&mut runner).unwrap().current();
        let answered = tokio::time::timeout(Duration::from_secs(30), server.post(path, &body)).await;
        let reply = answered.unwrap_or_else(|_| panic!("no answer to {path} {body}"));
        match reply.status {
            200 => taken += 1,
            400..500 => refused += 1,
            status => panic!("{status} to {path} {body}: {}", reply.body),
        }
        assert!(!reply.body.contains("fault of its own"), "{path} {body}: {}", reply.body);
        let is_stream = reply.header("content-type") == Some("text/event-stream");
        assert!(is_stream || serde_json::from_str::<Value>(&reply.body).is_ok(), "{path} {body}: {}", reply.body);
    }
    assert!(taken * 20 > cases && refused * 20 > cases, "{taken} taken, {refused} refused");
    assert_eq!(server.get("/health").await.json()["status"], "ok");
}
