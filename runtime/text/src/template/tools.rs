//! Tools for templates that know none: declared in the system message, called and answered in the texts of messages.

use std::fmt::Write as _;

use bantam_family_api::CallSyntax;
use serde_json::{Map, Value as Json, json};

use super::capabilities::Capabilities;

/// Before the declarations.
const INTRODUCTION: &str = "# Tools\n\nThese functions can be called to help with the task. Each line between the tags \
                            describes one, its parameters as a JSON schema:\n<tools>\n";
/// Behind them.
const INSTRUCTION: &str = "</tools>\n\nTo call a function, write a JSON object with its name and arguments between these \
                           tags, and nothing behind the last call:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": \
                           {\"PARAMETER\": \"VALUE\"}}\n</tool_call>\nThe results come back between <tool_response> tags.";

/// `messages` with what the template leaves out of them put into their texts: the declarations of `tools` into the system
/// message, calls into the texts of the assistant, in the model's `syntax`, and results into messages of the user.
pub fn write_out_tools(
    messages: &[Json],
    tools: &[Json],
    capabilities: &Capabilities,
    syntax: Option<&CallSyntax>,
) -> Vec<Json> {
    let mut written: Vec<Json> = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        match message.get("role").and_then(Json::as_str) {
            Some("assistant") if !capabilities.tool_calls => written.push(with_calls(message, syntax)),
            Some("tool") if !capabilities.tool_results => add_result(&mut written, message),
            _ => written.push(message.clone()),
        }
    }
    if !tools.is_empty() && !capabilities.tools {
        declare(&mut written, tools);
    }
    written
}

/// Puts the declarations behind the system message's text, or makes one of them.
fn declare(messages: &mut Vec<Json>, tools: &[Json]) {
    let mut text = INTRODUCTION.to_owned();
    for tool in tools {
        let function = tool.get("function").unwrap_or(tool);
        let _ = writeln!(text, "{function}");
    }
    text.push_str(INSTRUCTION);
    let is_system = |first: &Json| first["role"] == "system" || first["role"] == "developer";
    match messages.first_mut().filter(|first| is_system(first)) {
        Some(first) => append(first, "\n\n", &text),
        None => messages.insert(0, json!({"role": "system", "content": text})),
    }
}

/// An assistant's message with its calls behind its text.
fn with_calls(message: &Json, syntax: Option<&CallSyntax>) -> Json {
    let mut message = message.clone();
    let calls = message.as_object_mut().and_then(|fields| fields.remove("tool_calls"));
    let Some(Json::Array(calls)) = calls else { return message };
    let calls: Vec<(String, Json)> = calls.iter().map(call).collect();
    let text = match syntax {
        Some(CallSyntax::Python { open, close }) => {
            let calls: Vec<_> = calls.iter().map(|(name, arguments)| python_call(name, arguments)).collect();
            format!("{open}[{}]{close}", calls.join(", "))
        }
        Some(CallSyntax::Json(json)) if !json.open.is_empty() => {
            let arguments = json.arguments.first().map_or("arguments", String::as_str);
            let [before, behind] = json.block.as_ref().map_or(["", ""], |marks| marks.each_ref().map(String::as_str));
            format!("{before}{}{behind}", objects(&calls, [&json.open, &json.close], [&json.name, arguments]))
        }
        _ => objects(&calls, ["<tool_call>\n", "\n</tool_call>"], ["name", "arguments"]),
    };
    append(&mut message, "\n", &text);
    message
}

/// Calls as objects between marks.
fn objects(calls: &[(String, Json)], [open, close]: [&str; 2], [name_key, arguments_key]: [&str; 2]) -> String {
    let object = |(name, arguments): &(String, Json)| {
        let call = Map::from_iter([(name_key.to_owned(), json!(name)), (arguments_key.to_owned(), arguments.clone())]);
        format!("{open}{}{close}", Json::Object(call))
    };
    calls.iter().map(object).collect::<Vec<_>>().join("\n")
}

/// A call's name and its arguments; those that are no JSON stay the text that they are.
fn call(call: &Json) -> (String, Json) {
    let holder = call.get("function").unwrap_or(call);
    let name = holder.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
    let arguments = match holder.get("arguments") {
        Some(Json::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Some(Json::Null) | None => json!({}),
        Some(other) => other.clone(),
    };
    (name, arguments)
}

fn python_call(name: &str, arguments: &Json) -> String {
    let arguments = match arguments {
        Json::Object(fields) => fields.iter().map(|(key, value)| format!("{key}={}", python(value))).collect(),
        other => vec![python(other)],
    };
    format!("{name}({})", arguments.join(", "))
}

/// A value as Python writes it.
fn python(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::Bool(true) => "True".to_owned(),
        Json::Bool(false) => "False".to_owned(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => quoted(text),
        Json::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| format!("{}: {}", quoted(key), python(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for character in text.chars() {
        match character {
            '\\' => quoted.push_str("\\\\"),
            '\'' => quoted.push_str("\\'"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

/// A result as part of a user's message; those of one turn share one.
fn add_result(messages: &mut Vec<Json>, result: &Json) {
    let text = match result.get("content") {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Json::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    let text = format!("<tool_response>\n{text}\n</tool_response>");
    match messages.last_mut().filter(|last| last.get(RESULTS).is_some()) {
        Some(last) => append(last, "\n", &text),
        None => messages.push(json!({"role": "user", "content": text, RESULTS: true})),
    }
}

/// Names a message of the user that has results only, and so takes those that follow.
const RESULTS: &str = "tool_results";

fn append(message: &mut Json, between: &str, text: &str) {
    match message.get_mut("content") {
        Some(Json::String(content)) if content.is_empty() => text.clone_into(content),
        Some(Json::String(content)) => *content = format!("{content}{between}{text}"),
        Some(Json::Array(parts)) => parts.push(json!({"type": "text", "text": format!("{between}{text}")})),
        _ => message["content"] = json!(text),
    }
}

#[cfg(test)]
mod tests {
    use bantam_family_api::JsonCalls;

    use super::*;

    fn knows_nothing() -> Capabilities {
        Capabilities { system: true, string_content: true, ..Capabilities::default() }
    }

    fn conversation() -> Vec<Json> {
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}});
        vec![
            json!({"role": "user", "content": "Where?"}),
            json!({"role": "assistant", "content": "See:", "tool_calls": [call("a", "{\"at\": \"it's\", \"n\": [1, null]}"), call("b", "{broken")]}),
            json!({"role": "tool", "tool_call_id": "a", "content": "here"}),
            json!({"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "there"}]}),
            json!({"role": "user", "content": "Thanks"}),
        ]
    }

    #[test]
    fn tools_calls_and_results_become_text() {
        let tools = [json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}})];
        let written = write_out_tools(&conversation(), &tools, &knows_nothing(), None);
        let texts: Vec<_> = written.iter().map(|message| message["content"].as_str().unwrap()).collect();
        assert!(texts[0].contains("<tools>\n{\"name\":\"look\",\"parameters\":{\"type\":\"object\"}}\n</tools>"));
        assert_eq!(
            texts[2],
            "See:\n<tool_call>\n{\"name\":\"look\",\"arguments\":{\"at\":\"it's\",\"n\":[1,null]}}\n</tool_call>\n\
             <tool_call>\n{\"name\":\"look\",\"arguments\":\"{broken\"}\n</tool_call>"
        );
        assert_eq!(texts[3], "<tool_response>\nhere\n</tool_response>\n<tool_response>\nthere\n</tool_response>");
        assert_eq!((texts[4], written[3]["role"].as_str()), ("Thanks", Some("user")));
    }

    #[test]
    fn calls_are_written_as_the_model_writes_them() {
        let told = |syntax: &CallSyntax| {
            let capabilities = Capabilities { tools: true, tool_results: true, ..knows_nothing() };
            write_out_tools(&conversation(), &[], &capabilities, Some(syntax))[1]["content"].clone()
        };
        let python = CallSyntax::Python { open: "<|s|>".into(), close: "<|e|>".into() };
        assert_eq!(told(&python), "See:\n<|s|>[look(at='it\\'s', n=[1, None]), look('{broken')]<|e|>");
        let json = CallSyntax::Json(JsonCalls {
            block: Some(["<b>".into(), "</b>".into()]),
            open: "<c>".into(),
            close: "</c>".into(),
            name: "name".into(),
            arguments: vec!["parameters".into()],
        });
        assert!(told(&json).as_str().unwrap().starts_with("See:\n<b><c>{\"name\":\"look\",\"parameters\":{"));
    }

    #[test]
    fn a_template_that_knows_tools_is_left_alone() {
        let capabilities = Capabilities { tools: true, tool_calls: true, tool_results: true, ..knows_nothing() };
        let tools = [json!({"type": "function", "function": {"name": "look"}})];
        assert_eq!(write_out_tools(&conversation(), &tools, &capabilities, None), conversation());
    }
}
