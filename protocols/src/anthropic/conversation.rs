//! The conversation of a request, as chat templates read it: instructions first, tools' answers as messages of their own.

use serde_json::{Map, Value, json};

use super::blocks::{Block, blocks, readable, text};
use crate::fields::{Field, FieldError, Fields};

/// `system` and `messages`.
pub(super) fn conversation(fields: &Fields<'_>) -> Result<Vec<Value>, FieldError> {
    let messages = fields.required("messages")?;
    let items = messages.items()?;
    if items.is_empty() {
        return Err(messages.error("must have at least one message"));
    }
    let mut told: Vec<Value> = system(fields)?.into_iter().collect();
    for item in &items {
        told.extend(message(item)?);
    }
    Ok(told)
}

fn system(fields: &Fields<'_>) -> Result<Option<Value>, FieldError> {
    let Some(field) = fields.get("system") else { return Ok(None) };
    let text = text(&field)?;
    Ok((!text.is_empty()).then(|| json!({"role": "system", "content": text})))
}

fn message(field: &Field<'_>) -> Result<Vec<Value>, FieldError> {
    let fields = field.object()?;
    let role = fields.required("role")?;
    let content = fields.required("content")?;
    match role.text()? {
        "user" => Ok(user(blocks(&content)?)),
        "assistant" => Ok(vec![assistant(blocks(&content)?, content.path())]),
        "system" => Ok(vec![json!({"role": "system", "content": text(&content)?})]),
        other => Err(role.error(format!("must be one of user, assistant, system, found \"{other}\""))),
    }
}

/// What tools answered comes first, then what the user says.
fn user(blocks: Vec<Block>) -> Vec<Value> {
    let (mut messages, mut lines) = (Vec::new(), Vec::new());
    for block in blocks {
        match block {
            Block::Result(message) => messages.push(message),
            other => lines.extend(readable(other)),
        }
    }
    if !lines.is_empty() || messages.is_empty() {
        messages.push(json!({"role": "user", "content": lines.join("\n")}));
    }
    messages
}

fn assistant(blocks: Vec<Block>, path: &str) -> Value {
    let (mut content, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for block in blocks {
        match block {
            Block::Text(text) => content.push_str(&text),
            Block::Thinking(text) => thinking.push_str(&text),
            Block::Call(call) => calls.push(call),
            Block::Other(kind) => tracing::info!("{path} has a block of type {kind:?}: passed over"),
            Block::Result(_) | Block::Sealed => {}
        }
    }
    let mut message = Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), content.into())]);
    if !thinking.is_empty() {
        message.insert("reasoning_content".to_owned(), thinking.into());
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    Value::Object(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<Value, String> {
        conversation(&Field::body(body).object().unwrap()).map(Value::from).map_err(|e| e.to_string())
    }

    #[test]
    fn instructions_are_a_string_or_blocks() {
        let told = |system: Value| {
            read(&json!({"system": system, "messages": [{"role": "user", "content": "x"}]})).unwrap()[0].clone()
        };
        assert_eq!(told(json!("a")), json!({"role": "system", "content": "a"}));
        let cached = json!({"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}});
        assert_eq!(told(json!([{"type": "text", "text": "a"}, cached]))["content"], "a\nb");
        assert_eq!(told(json!([]))["role"], "user");
    }

    #[test]
    fn a_turn_with_tools_is_taken_apart_in_order() {
        let assistant = json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "…"},
            {"type": "text", "text": "Let me look."},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}},
            {"type": "tool_use", "id": "t2", "name": "pwd", "input": {}},
        ]});
        let results = json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"},
            {"type": "text", "text": "go"},
            {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "x"}]},
            {"type": "text", "text": "on"},
        ]});
        let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let calls = [call("t1", "ls", r#"{"path":"."}"#), call("t2", "pwd", "{}")];
        let expected = json!([
            {"role": "assistant", "content": "Let me look.", "reasoning_content": "hm", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "t1", "content": "a.txt"},
            {"role": "tool", "tool_call_id": "t2", "content": "x"},
            {"role": "user", "content": "go\non"},
        ]);
        assert_eq!(read(&json!({"messages": [assistant, results]})).unwrap(), expected);
    }

    #[test]
    fn a_message_without_text_is_one_still() {
        let told = read(&json!({"messages": [{"role": "user", "content": []}, {"role": "assistant", "content": []}]}));
        let expected = json!([{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]);
        assert_eq!(told.unwrap(), expected);
    }

    #[test]
    fn faults_are_named_by_path() {
        let only = |message: Value| read(&json!({ "messages": [message] })).unwrap_err();
        let cases = [
            (json!({"role": "robot", "content": "x"}), "`messages[0].role` must be one of user, assistant, system"),
            (json!({"role": "user"}), "`messages[0].content` is required"),
            (json!({"role": "user", "content": 5}), "`messages[0].content` must be a string or an array of blocks"),
            (json!({"role": "user", "content": [{"type": "text"}]}), "`messages[0].content[0].text` is required"),
            (
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [3]}]}),
                "`messages[0].content[0].content[0]` must be an object, found an integer",
            ),
        ];
        for (message, problem) in cases {
            let found = only(message);
            assert!(found.starts_with(problem), "{found}");
        }
        assert_eq!(read(&json!({"messages": []})).unwrap_err(), "`messages` must have at least one message");
    }
}
