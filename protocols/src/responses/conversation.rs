//! From items to the messages that chat templates read. What a model thought, said and called in one turn are items of
//! their own, and one message.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::input::kind;
use crate::fields::{Field, FieldError, Fields};

/// A conversation as it comes together.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    messages: Vec<Value>,
    /// The model's turn that items are being added to.
    turn: Option<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    reasoning: String,
    content: String,
    calls: Vec<Value>,
}

impl Turn {
    /// Whether it has come so far that what it thinks or says next is another turn's.
    fn has_spoken(&self) -> bool {
        !self.content.is_empty() || !self.calls.is_empty()
    }

    fn message(self) -> Value {
        let mut message = Map::from_iter([
            ("role".to_owned(), Value::from("assistant")),
            ("content".to_owned(), Value::from(self.content)),
        ]);
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), self.reasoning.into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".to_owned(), self.calls.into());
        }
        Value::Object(message)
    }
}

impl Conversation {
    /// One that begins with these instructions.
    pub(super) fn with(instructions: Option<&str>) -> Self {
        let system = instructions.filter(|text| !text.is_empty());
        let messages = system.map(|text| json!({"role": "system", "content": text})).into_iter().collect();
        Conversation { messages, turn: None }
    }

    /// Adds the next item.
    pub(super) fn add(&mut self, field: &Field<'_>) -> Result<(), FieldError> {
        let item = field.object()?;
        match kind(&item)? {
            "message" => self.message(&item),
            "reasoning" => {
                let text = reasoning(&item)?;
                self.turn(true).reasoning.push_str(&text);
                Ok(())
            }
            "function_call" => {
                let arguments = item.required("arguments")?.text()?;
                self.call(&item, item.required("name")?.text()?, arguments.to_owned())
            }
            "custom_tool_call" => {
                let input = json!({"input": item.required("input")?.text()?});
                self.call(&item, item.required("name")?.text()?, input.to_string())
            }
            // Of tools that clients run: what they answered is in an item with the same `call_id`.
            kind if kind.ends_with("_call") && item.get("call_id").is_some() => {
                let given = ["action", "operation"].into_iter().find_map(|key| item.map().get(key));
                let arguments = given.map_or_else(|| "{}".to_owned(), Value::to_string);
                self.call(&item, kind.trim_end_matches("_call"), arguments)
            }
            kind if kind.ends_with("_call_output") => self.result(&item),
            other => {
                tracing::info!("{} is of type {other:?}, which is not supported: passed over", field.path());
                Ok(())
            }
        }
    }

    /// The messages, if anybody but the instructions has said something.
    pub(super) fn end(mut self) -> Vec<Value> {
        self.end_turn();
        self.messages
    }

    fn end_turn(&mut self) {
        self.messages.extend(self.turn.take().map(Turn::message));
    }

    /// The model's turn; another one if this one has spoken and `anew`.
    fn turn(&mut self, anew: bool) -> &mut Turn {
        if anew && self.turn.as_ref().is_some_and(Turn::has_spoken) {
            self.end_turn();
        }
        self.turn.get_or_insert_default()
    }

    fn message(&mut self, item: &Fields<'_>) -> Result<(), FieldError> {
        let role = item.required("role")?;
        let content = item.required("content")?;
        match role.text()? {
            "assistant" => {
                let text = text(&content, "")?;
                self.turn(true).content.push_str(&text);
            }
            known @ ("user" | "system" | "developer") => {
                self.end_turn();
                self.messages.push(json!({"role": known, "content": text(&content, "\n")?}));
            }
            other => {
                let problem = format!("must be one of user, assistant, system, developer, found \"{other}\"");
                return Err(role.error(problem));
            }
        }
        Ok(())
    }

    fn call(&mut self, item: &Fields<'_>, name: &str, arguments: String) -> Result<(), FieldError> {
        let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
        let id = item.required("call_id")?.text()?;
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        self.turn(false).calls.push(call);
        Ok(())
    }

    fn result(&mut self, item: &Fields<'_>) -> Result<(), FieldError> {
        self.end_turn();
        let id = match item.text("call_id")? {
            Some(id) => id,
            None => item.required("id")?.text()?,
        };
        let content = match item.get("output") {
            None => String::new(),
            Some(output) => match output.value() {
                Value::Object(_) => output.value().to_string(),
                _ => text(&output, "\n")?,
            },
        };
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
        Ok(())
    }
}

/// A text, or what of parts can be read; of others a note is left.
fn text(field: &Field<'_>, between: &str) -> Result<String, FieldError> {
    match field.value() {
        Value::String(text) => Ok(text.clone()),
        Value::Array(_) => {
            let parts = field.items()?.iter().map(part).collect::<Result<Vec<_>, _>>()?;
            Ok(parts.join(between))
        }
        _ => Err(field.expected("a string or an array of parts")),
    }
}

fn part(field: &Field<'_>) -> Result<String, FieldError> {
    let part = field.object()?;
    let kind = part.required("type")?.text()?;
    match kind {
        "refusal" => part.required("refusal")?.text().map(str::to_owned),
        _ if kind.ends_with("text") => part.required("text")?.text().map(str::to_owned),
        other => Ok(format!("[{} omitted]", other.trim_start_matches("input_"))),
    }
}

/// What was thought, from whichever of its forms has it.
fn reasoning(item: &Fields<'_>) -> Result<String, FieldError> {
    if let Some(text) = item.text("encrypted_content")?.and_then(opened) {
        return Ok(text);
    }
    for key in ["content", "summary"] {
        if let Some(field) = item.get(key) {
            let parts = field.items()?.iter().map(part).collect::<Result<Vec<_>, _>>()?;
            if !parts.is_empty() {
                return Ok(parts.join("\n"));
            }
        }
    }
    Ok(String::new())
}

/// What `encrypted_content` of this server holds. It hides nothing: what is thought goes to the client anyway.
pub(super) fn sealed(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// `None` of what another server has sealed.
fn opened(sealed: &str) -> Option<String> {
    String::from_utf8(BASE64_STANDARD.decode(sealed).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(items: &Value) -> Result<Value, String> {
        let mut conversation = Conversation::with(None);
        for item in Field::body(items).items().unwrap() {
            conversation.add(&item).map_err(|e| e.to_string())?;
        }
        Ok(conversation.end().into())
    }

    fn user(text: &str) -> Value {
        json!({"type": "message", "role": "user", "content": text})
    }

    fn call(id: &str, name: &str, arguments: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn items_of_one_turn_are_one_message() {
        let told = read(&json!([
            user("look"),
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed("hm")},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{\"path\": \".\"}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
            {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
            {"type": "message", "role": "assistant", "content": "There is one."},
        ]));
        let calls = [call("c1", "ls", "{\"path\": \".\"}"), call("c2", "patch", "{\"input\":\"*** Begin\"}")];
        let expected = json!([
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
            {"role": "tool", "tool_call_id": "c2", "content": "done"},
            {"role": "assistant", "content": "There is one.", "reasoning_content": "so"},
        ]);
        assert_eq!(told.unwrap(), expected);
    }

    #[test]
    fn turns_that_follow_each_other_stay_apart() {
        let says = |text: &str| json!({"type": "message", "role": "assistant", "content": text});
        let told = read(&json!([says("a"), says("b"), {"type": "reasoning", "content": [], "summary": []}, says("c")]));
        let content: Vec<_> = told.unwrap().as_array().unwrap().iter().map(|m| m["content"].clone()).collect();
        assert_eq!(content, ["a", "b", "c"]);
    }

    #[test]
    fn tools_that_clients_have_built_in_are_calls_too() {
        let told = read(&json!([
            {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}, "status": "completed"},
            {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        ]));
        let arguments = r#"{"type":"exec","command":["ls"]}"#;
        let expected = json!([
            {"role": "assistant", "content": "", "tool_calls": [call("c", "local_shell", arguments)]},
            {"role": "tool", "tool_call_id": "c", "content": "a.txt"},
        ]);
        assert_eq!(told.unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_read_leaves_a_note() {
        let parts = json!([
            {"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "x"}, {"type": "input_file"},
            {"type": "refusal", "refusal": "no"},
        ]);
        let told = read(&json!([{"type": "message", "role": "user", "content": parts}])).unwrap();
        assert_eq!(told[0]["content"], "see\n[image omitted]\n[file omitted]\nno");
    }

    #[test]
    fn what_others_have_sealed_is_not_read() {
        let told = |sealed: &str| {
            let item = json!({"type": "reasoning", "encrypted_content": sealed, "summary": [{"type": "summary_text", "text": "s"}]});
            read(&json!([item])).unwrap()[0]["reasoning_content"].clone()
        };
        assert_eq!(told("gAAAAA!"), "s");
        assert_eq!(told(&BASE64_STANDARD.encode([0xff, 0xfe])), "s");
        assert_eq!(told(&sealed("é")), "é");
    }

    #[test]
    fn faults_are_named_by_path() {
        let cases = [
            (json!({"type": "message", "role": "robot", "content": "x"}), "`[0].role` must be one of user, assistant"),
            (json!({"type": "message", "role": "user"}), "`[0].content` is required"),
            (
                json!({"type": "message", "role": "user", "content": [{"type": "input_text"}]}),
                "`[0].content[0].text` is",
            ),
            (json!({"type": "function_call", "call_id": "c", "name": "f"}), "`[0].arguments` is required"),
            (json!({"type": "function_call", "name": "f", "arguments": ""}), "`[0].call_id` is required"),
            (json!({"type": "function_call_output", "call_id": "c", "output": 5}), "`[0].output` must be a string"),
            (json!({"type": "reasoning", "summary": "x"}), "`[0].summary` must be an array, found a string"),
        ];
        for (item, problem) in cases {
            let found = read(&json!([item])).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
    }
}
