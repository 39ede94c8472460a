//! Calls as JSON objects.

use bantam_family_api::JsonCalls;
use serde_json::Value;

use super::{Callable, Writer};
use crate::lark::literal;

/// A call of any of the tools.
pub(super) fn calls(writer: &mut Writer<'_, '_>, calls: &JsonCalls, tools: &[Callable]) -> String {
    let objects: Vec<String> = tools.iter().map(|tool| object(writer, calls, tool)).collect();
    let (open, object, close) = (writer.tags(&calls.open), writer.any(&objects), writer.tags(&calls.close));
    format!("{open} {object} {close}")
}

fn object(writer: &mut Writer<'_, '_>, calls: &JsonCalls, tool: &Callable) -> String {
    let arguments = writer.json(tool.parameters.clone());
    let keys: Vec<String> = calls.arguments.iter().map(|key| quoted(key)).collect();
    let (name, value) = (quoted(&calls.name), quoted(&tool.name));
    let keys = writer.any(&keys);
    let parts = ["\"{\"", &name, "\":\"", &value, "\",\"", &keys, "\":\"", &arguments, "\"}\""];
    let body = parts.join(&format!(" {} ", writer.space));
    writer.lark.rule(&body)
}

/// A text as JSON has it, as it stands.
fn quoted(text: &str) -> String {
    literal(&Value::from(text).to_string())
}
