//! Tool calls of the chat API in the form that a template takes.

use std::collections::VecDeque;

use serde_json::{Map, Value as Json, json};

use super::capabilities::Capabilities;

/// Brings the tool calls of `messages` to the form that the template takes: arguments that are no JSON object become
/// one where strings are not taken, and calls made at once become calls one after the other, each with its result,
/// where only one is taken at a time.
pub(super) fn prepare(messages: Vec<Json>, capabilities: &Capabilities) -> Vec<Json> {
    let mut prepared = Vec::with_capacity(messages.len());
    let mut rest: VecDeque<Json> = messages.into();
    while let Some(mut message) = rest.pop_front() {
        let Some(calls) = message.get_mut("tool_calls").and_then(Json::as_array_mut) else {
            prepared.push(message);
            continue;
        };
        for call in calls.iter_mut().filter(|_| capabilities.tool_calls) {
            prepare_arguments(call, capabilities);
        }
        if calls.len() < 2 || capabilities.parallel_tool_calls {
            prepared.push(message);
            continue;
        }
        let calls = std::mem::take(calls);
        let count = rest.iter().take_while(|message| is_result(message)).count();
        let results: Vec<Json> = rest.drain(..count).collect();
        prepared.extend(one_by_one(&message, calls, results));
    }
    prepared
}

fn is_result(message: &Json) -> bool {
    message.get("role").is_some_and(|role| role == "tool")
}

/// `message` once per call, each followed by the call's result: the one with its id, else the next.
fn one_by_one(message: &Json, calls: Vec<Json>, mut results: Vec<Json>) -> Vec<Json> {
    let mut turns = Vec::with_capacity(2 * calls.len());
    for (index, call) in calls.into_iter().enumerate() {
        let id = call.get("id").cloned();
        let mut turn = message.clone();
        if let Some(fields) = turn.as_object_mut() {
            fields.insert("tool_calls".to_owned(), json!([call]));
            // What was said and thought belongs to the first.
            if index > 0 {
                fields.retain(|name, _| matches!(name.as_str(), "role" | "tool_calls"));
                fields.insert("content".to_owned(), json!(""));
            }
        }
        turns.push(turn);
        let own = results.iter().position(|result| id.is_some() && result.get("tool_call_id") == id.as_ref());
        if !results.is_empty() {
            turns.push(results.remove(own.unwrap_or(0)));
        }
    }
    turns.extend(results);
    turns
}

/// Arguments that are missing become an empty object. Broken ones, which a template that walks through an object would
/// fail on, become the value of one, so that the conversation goes on with what the model wrote.
fn prepare_arguments(call: &mut Json, capabilities: &Capabilities) {
    let holder = if call.get("function").is_some_and(Json::is_object) { call.get_mut("function") } else { Some(call) };
    let Some(fields) = holder.and_then(Json::as_object_mut) else { return };
    let arguments = match fields.get("arguments") {
        None | Some(Json::Null) => json!({}),
        Some(Json::String(text)) if matches!(text.trim(), "" | "null") => json!({}),
        Some(Json::String(text)) if !capabilities.string_arguments && !is_object(text) => json!({"arguments": text}),
        Some(_) => return,
    };
    fields.insert("arguments".to_owned(), arguments);
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Json>>(text).is_ok()
}
