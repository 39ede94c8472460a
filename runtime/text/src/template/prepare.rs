//! Bringing a conversation of the chat API to the form that a template takes.

use serde_json::{Map, Value as Json, json};

use super::calls;
use super::capabilities::Capabilities;

/// `messages` in the form that a template with these capabilities takes, such that no text of them is lost and the
/// template does not refuse what its format could hold:
///
/// * lists of text parts become strings, and strings lists, where the template takes only the other;
/// * absent content becomes empty;
/// * role `developer` becomes `system`;
/// * a system message where the template takes none becomes part of the first one, if it follows it, else of the user's
///   next message, or of the last;
/// * tool calls made at once become calls one after the other;
/// * arguments of tool calls that are missing or broken become an object.
///
/// Parts that are no text are left as they are. Arguments that are JSON are parsed by
/// [`RenderInput::parse_arguments`](super::RenderInput::parse_arguments).
pub fn prepare_messages(messages: &[Json], capabilities: &Capabilities) -> Vec<Json> {
    let mut prepared: Vec<Json> = Vec::with_capacity(messages.len());
    let mut waiting: Vec<String> = Vec::new();
    for message in messages {
        let Json::Object(fields) = message else {
            prepared.push(message.clone());
            continue;
        };
        let fields = message_for(fields, capabilities);
        let role = fields.get("role").and_then(Json::as_str).unwrap_or_default();
        let takes_system = if prepared.is_empty() { capabilities.system } else { capabilities.late_system };
        if matches!(role, "system" | "developer") && !takes_system && !is_developer(role, capabilities) {
            let text = text_of(fields.get("content"));
            match prepared.last_mut().filter(|last| is_system(last)) {
                Some(first) => append(first, &text.unwrap_or_default()),
                None => waiting.extend(text),
            }
            continue;
        }
        let is_user = role == "user";
        prepared.push(Json::Object(fields));
        if is_user {
            put_before(&mut prepared, std::mem::take(&mut waiting));
        }
    }
    put_at_end(&mut prepared, &waiting, capabilities);
    calls::prepare(prepared, capabilities)
}

/// `tools` in the form that a template with these capabilities takes: what an API lets a declaration leave out is there,
/// and says nothing.
pub fn prepare_tools(tools: &[Json], capabilities: &Capabilities) -> Vec<Json> {
    let mut tools = tools.to_vec();
    let bare = tools.iter_mut().filter(|_| !capabilities.bare_tools);
    for function in bare.filter_map(|tool| tool.get_mut("function")?.as_object_mut()) {
        function.entry("description").or_insert_with(|| json!(""));
        function.entry("parameters").or_insert_with(|| json!({"type": "object", "properties": {}}));
    }
    tools
}

fn is_system(message: &Json) -> bool {
    message.get("role").is_some_and(|role| role == "system")
}

fn is_developer(role: &str, capabilities: &Capabilities) -> bool {
    role == "developer" && capabilities.developer
}

fn message_for(fields: &Map<String, Json>, capabilities: &Capabilities) -> Map<String, Json> {
    let mut fields = fields.clone();
    if !capabilities.developer && fields.get("role").is_some_and(|role| role == "developer") {
        fields.insert("role".to_owned(), json!("system"));
    }
    let content = fields.get("content").filter(|content| !content.is_null());
    let content = match content {
        None if fields.contains_key("tool_calls") && capabilities.absent_content => None,
        None => Some(json!("")),
        Some(Json::Array(parts)) if !takes_parts(&fields, capabilities) => joined(parts).map(Json::String),
        Some(_) => None,
    };
    if let Some(content) = content {
        fields.insert("content".to_owned(), content);
    }
    if let Some(Json::String(text)) = fields.get("content").filter(|_| takes_only_parts(capabilities)) {
        let parts = json!([{"type": "text", "text": text}]);
        fields.insert("content".to_owned(), parts);
    }
    fields
}

fn takes_only_parts(capabilities: &Capabilities) -> bool {
    capabilities.content_parts && !capabilities.string_content
}

/// Templates that loop over a user's parts are known to write those of a system message as a list, or only the first.
fn takes_parts(fields: &Map<String, Json>, capabilities: &Capabilities) -> bool {
    let is_user = fields.get("role").is_some_and(|role| role == "user");
    capabilities.content_parts && (is_user || takes_only_parts(capabilities))
}

/// The text of `parts`, a part a line; `None` if one of them is no text.
fn joined(parts: &[Json]) -> Option<String> {
    let texts: Option<Vec<&str>> = parts.iter().map(text_of_part).collect();
    texts.map(|texts| texts.join("\n"))
}

fn text_of_part(part: &Json) -> Option<&str> {
    match part {
        Json::String(text) => Some(text),
        Json::Object(fields) => fields.get("text")?.as_str(),
        _ => None,
    }
}

/// The text of a message's content, whatever its form.
fn text_of(content: Option<&Json>) -> Option<String> {
    match content? {
        Json::String(text) => Some(text.clone()),
        Json::Array(parts) => joined(parts),
        _ => None,
    }
}

/// Puts `texts` before the text of the last message.
fn put_before(messages: &mut [Json], texts: Vec<String>) {
    if texts.is_empty() {
        return;
    }
    let Some(content) = messages.last_mut().and_then(|message| message.get_mut("content")) else { return };
    match content {
        Json::String(text) => *text = texts.into_iter().chain([std::mem::take(text)]).collect::<Vec<_>>().join("\n\n"),
        Json::Array(parts) => parts.insert(0, json!({"type": "text", "text": texts.join("\n\n") + "\n\n"})),
        _ => {}
    }
}

/// Puts `text` behind the text of `message`.
fn append(message: &mut Json, text: &str) {
    match message.get_mut("content") {
        Some(Json::String(content)) => *content = format!("{content}\n\n{text}"),
        Some(Json::Array(parts)) => parts.push(json!({"type": "text", "text": format!("\n\n{text}")})),
        _ => {}
    }
}

/// System messages that no user's message follows: behind the last message if that is a user's, else as one of their own.
fn put_at_end(messages: &mut Vec<Json>, texts: &[String], capabilities: &Capabilities) {
    if texts.is_empty() {
        return;
    }
    let text = texts.join("\n\n");
    match messages.last_mut().filter(|message| message.get("role").is_some_and(|role| role == "user")) {
        Some(last) => append(last, &text),
        None => {
            let content =
                if takes_only_parts(capabilities) { json!([{"type": "text", "text": text}]) } else { json!(text) };
            messages.push(json!({"role": "user", "content": content}));
        }
    }
}
