//! The response as an object: what was asked, how far it is, what came of it.

use std::time::{SystemTime, UNIX_EPOCH};

use bantam_runtime::engine::{ModelInfo, Outcome};
use serde_json::{Value, json};

use super::request::ResponsesRequest;
use crate::error::ApiError;

/// A response with nothing in it yet.
pub(super) fn begun(id: &str, asked: &ResponsesRequest<'_>, resident: &ModelInfo) -> Value {
    let map = asked.fields.map();
    let given = |key: &str| map.get(key).filter(|value| !value.is_null());
    let or = |key: &str, value: Value| given(key).cloned().unwrap_or(value);
    let (text, reasoning) = (&or("text", json!({})), &or("reasoning", json!({})));
    // What is out of range is refused before anybody sees this.
    let sampling = resident.sampling.with(&asked.request.sampling).unwrap_or_default();
    json!({
        "id": id, "object": "response", "created_at": now(), "completed_at": null, "status": "in_progress",
        "background": asked.background, "error": null, "incomplete_details": null,
        "instructions": or("instructions", Value::Null),
        "max_output_tokens": or("max_output_tokens", Value::Null),
        "max_tool_calls": or("max_tool_calls", Value::Null),
        "model": resident.name,
        "output": [],
        "parallel_tool_calls": asked.request.parallel_tool_calls,
        "previous_response_id": or("previous_response_id", Value::Null),
        "prompt_cache_key": or("prompt_cache_key", Value::Null),
        "reasoning": {"effort": reasoning["effort"], "summary": reasoning["summary"]},
        "safety_identifier": or("safety_identifier", Value::Null),
        "service_tier": "default",
        "store": asked.store,
        "temperature": sampling.temperature, "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty, "frequency_penalty": sampling.frequency_penalty,
        "text": {
            "format": text.get("format").filter(|format| !format.is_null()).unwrap_or(&json!({"type": "text"})),
            "verbosity": text.get("verbosity").unwrap_or(&json!("medium")),
        },
        "tool_choice": or("tool_choice", json!("auto")),
        "tools": given("tools").and_then(Value::as_array).into_iter().flatten().map(tool).collect::<Value>(),
        "top_logprobs": or("top_logprobs", json!(0)),
        "truncation": or("truncation", json!("disabled")),
        "usage": null,
        "user": or("user", Value::Null),
        "metadata": or("metadata", json!({})),
    })
}

/// A function with all the fields that clients look for.
fn tool(given: &Value) -> Value {
    let mut told = given.clone();
    if let Some(fields) =
        told.as_object_mut().filter(|fields| fields.get("type").is_some_and(|kind| kind == "function"))
    {
        for key in ["description", "parameters", "strict"] {
            fields.entry(key).or_insert(Value::Null);
        }
    }
    told
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// How a response ends.
#[derive(Debug)]
pub(super) enum End<'a> {
    Completed(&'a Outcome),
    /// The limit of tokens was reached.
    Incomplete(&'a Outcome),
    Failed(&'a ApiError),
    /// By a request to do so.
    Cancelled,
    /// There was nothing to answer.
    Empty,
}

impl End<'_> {
    pub(super) fn status(&self) -> &'static str {
        match self {
            End::Completed(_) | End::Empty => "completed",
            End::Incomplete(_) => "incomplete",
            End::Failed(_) => "failed",
            End::Cancelled => "cancelled",
        }
    }

    /// Puts the end and this output into the object.
    pub(super) fn put(&self, object: &mut Value, output: Vec<Value>) {
        object["status"] = self.status().into();
        object["output"] = output.into();
        match self {
            End::Completed(outcome) => object["usage"] = usage(outcome),
            End::Incomplete(outcome) => {
                object["usage"] = usage(outcome);
                object["incomplete_details"] = json!({"reason": "max_output_tokens"});
            }
            End::Failed(error) => {
                object["error"] = json!({"code": error.code.unwrap_or("server_error"), "message": error.message});
            }
            End::Empty => object["usage"] = usage_of([0; 4]),
            End::Cancelled => {}
        }
        if matches!(self, End::Completed(_) | End::Empty) {
            object["completed_at"] = now().into();
        }
    }
}

fn usage(outcome: &Outcome) -> Value {
    usage_of([outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens, outcome.reasoning_tokens])
}

fn usage_of([input, cached, output, reasoning]: [usize; 4]) -> Value {
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output, "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input.saturating_add(output),
    })
}
