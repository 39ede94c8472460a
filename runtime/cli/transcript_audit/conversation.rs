//! What a client sent, in one form whatever its protocol.

use serde_json::Value;

/// Something that a conversation has.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// The model was shown this.
    Text(String),
    /// It called a tool.
    Call { id: String, name: String, arguments: Value },
    /// The tool answered.
    Result { id: String, text: String, failed: bool },
}

impl Event {
    /// Whether this is the answer to the call of this name.
    pub(super) fn answers(&self, call: &str) -> bool {
        matches!(self, Event::Result { id, .. } if id == call)
    }
}

/// The conversation of a request, in its order.
pub(super) fn events(request: &Value) -> Vec<Event> {
    let mut events = Vec::new();
    for key in ["system", "instructions", "prompt"] {
        add_text(&mut events, &request[key]);
    }
    for message in request["messages"].as_array().into_iter().flatten() {
        add_message(&mut events, message);
    }
    match &request["input"] {
        Value::Array(items) => items.iter().for_each(|item| add_item(&mut events, item)),
        text => add_text(&mut events, text),
    }
    events
}

/// A message of OpenAI's or Anthropic's.
fn add_message(events: &mut Vec<Event>, message: &Value) {
    if message["role"] == "tool" {
        let text = text_of(&message["content"]);
        return events.push(Event::Result { id: word(&message["tool_call_id"]), text, failed: false });
    }
    match &message["content"] {
        Value::Array(blocks) => blocks.iter().for_each(|block| add_block(events, block)),
        text => add_text(events, text),
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        events.push(call_of(&call["id"], &function["name"], &function["arguments"]));
    }
}

fn add_block(events: &mut Vec<Event>, block: &Value) {
    match block["type"].as_str() {
        Some("tool_use") => events.push(call_of(&block["id"], &block["name"], &block["input"])),
        Some("tool_result") => events.push(Event::Result {
            id: word(&block["tool_use_id"]),
            text: text_of(&block["content"]),
            failed: block["is_error"] == true,
        }),
        _ => add_text(events, block),
    }
}

/// An item of OpenAI's responses.
fn add_item(events: &mut Vec<Event>, item: &Value) {
    match item["type"].as_str() {
        Some("function_call") => events.push(call_of(&item["call_id"], &item["name"], &item["arguments"])),
        Some("function_call_output") => {
            events.push(Event::Result { id: word(&item["call_id"]), text: text_of(&item["output"]), failed: false });
        }
        _ => add_text(events, &item["content"]),
    }
}

fn call_of(id: &Value, name: &Value, arguments: &Value) -> Event {
    let arguments = match arguments {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        other => other.clone(),
    };
    Event::Call { id: word(id), name: word(name), arguments }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn add_text(events: &mut Vec<Event>, value: &Value) {
    let text = text_of(value);
    if !text.is_empty() {
        events.push(Event::Text(text));
    }
}

/// A text, however it is wrapped.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => fields.get("text").map(text_of).unwrap_or_default(),
        _ => String::new(),
    }
}
