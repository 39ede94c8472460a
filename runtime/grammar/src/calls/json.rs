//! Calls as JSON objects.

use bantam_family_api::{JsonCalls, NamedCalls};
use serde_json::Value;

use super::{Callable, Writer};
use crate::lark::literal;

/// A call of any of the tools, or a block of them.
pub(super) fn calls(writer: &mut Writer<'_, '_>, calls: &JsonCalls, tools: &[Callable], parallel: bool) -> String {
    let objects: Vec<String> = tools.iter().map(|tool| object(writer, calls, tool)).collect();
    let (open, object, close) = (writer.tags(&calls.open), writer.any(&objects), writer.tags(&calls.close));
    let call = writer.lark.rule(&format!("{open} {object} {close}"));
    writer.block(calls.block.as_ref(), &call, parallel)
}

/// The same where the name stands before the object of arguments.
pub(super) fn named(writer: &mut Writer<'_, '_>, calls: &NamedCalls, tools: &[Callable], parallel: bool) -> String {
    let (open, named, close) = (writer.tags(&calls.open), writer.tags(&calls.named), writer.tags(&calls.close));
    let call = |tool: &Callable| {
        let (name, arguments) = (literal(&tool.name), writer.json(tool.parameters.clone()));
        format!("{open} {name} {named} {arguments} {close}")
    };
    let each: Vec<String> = tools.iter().map(call).collect();
    let any = writer.lark.rule(&each.join(" | "));
    writer.block(calls.block.as_ref(), &any, parallel)
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
