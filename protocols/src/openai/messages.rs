//! Conversations: from the wire to what chat templates read.
//!
//! Roles and content are checked; whatever else a message has goes along. Fitting it all to the model's template is the
//! runtime's.

use bantam_runtime::engine::ChatPrompt;
use bantam_text::RESERVED_VARIABLES;
use serde_json::{Map, Value, json};

use super::form;
use super::thinking::Thinking;
use crate::fields::{Field, FieldError, Fields};

/// Roles that a message may have. `function` is how results were sent before there were tools.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// `messages`, `tools`, `chat_template_kwargs` and what a request says of thinking.
pub(crate) fn conversation(fields: &Fields<'_>) -> Result<ChatPrompt, FieldError> {
    let messages = fields.required("messages")?;
    let items = messages.items()?;
    if items.is_empty() {
        return Err(messages.error("must have at least one message"));
    }
    let thinking = Thinking::read(fields)?;
    Ok(ChatPrompt {
        messages: items.iter().map(message).collect::<Result<_, _>>()?,
        tools: tools(fields)?,
        kwargs: kwargs(fields)?,
        effort: thinking.effort,
        thinking: thinking.enabled,
        continue_last: fields.flag("continue_final_message")?.unwrap_or(false),
    })
}

/// The template's further variables. Unless the client says otherwise, the prompt ends where an answer begins.
fn kwargs(fields: &Fields<'_>) -> Result<Map<String, Value>, FieldError> {
    let given = fields.object("chat_template_kwargs")?;
    if let Some(given) = &given {
        for name in RESERVED_VARIABLES {
            if given.map().contains_key(name) {
                let problem = "is not a variable of the template: give it beside `chat_template_kwargs`";
                return Err(FieldError::new(given.path_of(name), problem));
            }
        }
        given.flag("enable_thinking")?;
        given.text("reasoning_effort")?;
    }
    let mut kwargs = given.map(|f| f.map().clone()).unwrap_or_default();
    kwargs.entry("add_generation_prompt").or_insert(Value::Bool(true));
    Ok(kwargs)
}

fn message(field: &Field<'_>) -> Result<Value, FieldError> {
    let fields = field.object()?;
    let role = role(&fields)?;
    let Content { told: mut content, thought } = content(&fields)?;
    match role {
        "assistant" => {}
        // A tool that printed nothing.
        "tool" => content = content.or_else(|| Some(Value::from(""))),
        _ if content.is_none() => return Err(FieldError::new(fields.path_of("content"), "is required")),
        _ => {}
    }
    let calls = tool_calls(&fields)?;
    let mut message = Map::new();
    message.insert("role".to_owned(), Value::from(role));
    message.extend(content.map(|content| ("content".to_owned(), content)));
    for (key, value) in fields.map() {
        if !value.is_null() && !matches!(key.as_str(), "role" | "content" | "tool_calls") {
            message.insert(key.clone(), value.clone());
        }
    }
    message.extend(calls.map(|calls| ("tool_calls".to_owned(), Value::Array(calls))));
    if !thought.is_empty() {
        message.entry("reasoning_content").or_insert_with(|| Value::from(thought));
    }
    Ok(Value::Object(message))
}

fn role<'a>(fields: &Fields<'a>) -> Result<&'a str, FieldError> {
    let field = fields.required("role")?;
    match field.text()? {
        "function" => Ok("tool"),
        known if ROLES.contains(&known) => Ok(known),
        other => Err(field.error(format!("must be one of {}, found \"{other}\"", ROLES.join(", ")))),
    }
}

/// What a message says.
#[derive(Default)]
struct Content {
    /// Text, or an array of text parts.
    told: Option<Value>,
    /// What stood among the parts of what was thought.
    thought: String,
}

fn content(fields: &Fields<'_>) -> Result<Content, FieldError> {
    let Some(field) = fields.get("content") else { return Ok(Content::default()) };
    match field.value() {
        Value::String(_) => Ok(Content { told: Some(field.value().clone()), thought: String::new() }),
        Value::Array(_) => {
            let (mut parts, mut thought) = (Vec::new(), String::new());
            for part in field.items()? {
                match thought_part(&part)? {
                    Some(text) => thought.push_str(&text),
                    None => parts.push(text_part(&part)?),
                }
            }
            Ok(Content { told: Some(parts.into()), thought })
        }
        _ => Err(field.expected("a string or an array of parts")),
    }
}

/// The text of a part that was thought, as other servers tell it; empty of what only its maker can read.
fn thought_part(field: &Field<'_>) -> Result<Option<String>, FieldError> {
    let part = field.object()?;
    match part.required("type")?.text()? {
        "thinking" => match part.required("thinking")? {
            parts if parts.value().is_array() => {
                let text = |part: &Field<'_>| part.object()?.required("text")?.text().map(str::to_owned);
                parts.items()?.iter().map(text).collect::<Result<_, _>>().map(Some)
            }
            text => Ok(Some(text.text()?.to_owned())),
        },
        "reasoning" => Ok(Some(part.text("text")?.or(part.text("reasoning")?).unwrap_or_default().to_owned())),
        "redacted_thinking" => Ok(Some(String::new())),
        _ => Ok(None),
    }
}

fn text_part(field: &Field<'_>) -> Result<Value, FieldError> {
    let part = field.object()?;
    let kind = part.required("type")?;
    let text = match kind.text()? {
        "text" => part.required("text")?.text()?,
        "input_text" | "output_text" => part.required("text")?.text()?,
        "refusal" => part.required("refusal")?.text()?,
        other => omitted(other).ok_or_else(|| kind.error(format!("must be a kind of part, found \"{other}\"")))?,
    };
    Ok(json!({"type": "text", "text": text}))
}

/// Stands for a part that no loaded model can see or hear.
fn omitted(kind: &str) -> Option<&'static str> {
    match kind {
        "image_url" | "input_image" | "image" => Some("[image omitted]"),
        "input_audio" | "audio_url" | "audio" => Some("[audio omitted]"),
        "video_url" | "video" => Some("[video omitted]"),
        "file" | "input_file" => Some("[file omitted]"),
        _ => None,
    }
}

/// Calls of an earlier turn. The arguments, JSON in a string, are the renderer's to parse, as are those that were cut off
/// and are none.
fn tool_calls(fields: &Fields<'_>) -> Result<Option<Vec<Value>>, FieldError> {
    let Some(calls) = fields.items("tool_calls")? else { return Ok(None) };
    if calls.is_empty() {
        return Ok(None);
    }
    calls.iter().map(tool_call).collect::<Result<_, _>>().map(Some)
}

fn tool_call(field: &Field<'_>) -> Result<Value, FieldError> {
    let call = field.object()?;
    if let Some(custom) = call.object("custom")? {
        let name = custom.required("name")?.text()?;
        let arguments = json!({"input": custom.required("input")?.text()?}).to_string();
        let mut told = json!({"type": "function", "function": {"name": name, "arguments": arguments}});
        if let Some(id) = call.text("id")? {
            told["id"] = id.into();
        }
        return Ok(told);
    }
    let function = call.required("function")?.object()?;
    function.required("name")?.text()?;
    let arguments = match function.get("arguments") {
        None => Value::from("{}"),
        Some(given) => match given.value() {
            Value::String(text) if text.trim().is_empty() => Value::from("{}"),
            Value::String(_) | Value::Object(_) => given.value().clone(),
            _ => return Err(given.expected("a string of JSON or an object")),
        },
    };
    let mut told = call.map().clone();
    let mut function = function.map().clone();
    function.insert("arguments".to_owned(), arguments);
    told.insert("function".to_owned(), Value::Object(function));
    Ok(Value::Object(told))
}

/// The declared functions. Tools of other kinds are run by other servers and mean nothing here: they are passed over.
/// With `tool_choice: "none"` the model is not told of any, nor with an empty list.
fn tools(fields: &Fields<'_>) -> Result<Option<Vec<Value>>, FieldError> {
    let Some(items) = fields.items("tools")? else { return Ok(None) };
    let mut tools = Vec::new();
    for item in &items {
        let tool = item.object()?;
        match tool.text("type")? {
            None | Some("function") => tools.push(function(&tool)?),
            Some(kind) => tracing::info!("{} is of type {kind:?}, which is not supported: passed over", item.path()),
        }
    }
    if let Some(allowed) = form::allowed_names(fields)? {
        tools.retain(|tool| tool["function"]["name"].as_str().is_some_and(|name| allowed.contains(name)));
    }
    Ok((!tools.is_empty() && !form::wants_none(fields)).then_some(tools))
}

/// A function as templates read it; some clients send it flat.
fn function(tool: &Fields<'_>) -> Result<Value, FieldError> {
    let Some(function) = tool.object("function")? else {
        let name = FieldError::new(tool.path_of("function"), "is required");
        tool.text("name")?.ok_or(name)?;
        let keys = ["name", "description", "parameters", "strict"];
        let function: Map<_, _> =
            keys.iter().filter_map(|key| Some(((*key).to_owned(), tool.get(key)?.value().clone()))).collect();
        tool.object("parameters")?;
        return Ok(json!({"type": "function", "function": function}));
    };
    function.required("name")?.text()?;
    function.object("parameters")?;
    let mut told = tool.map().clone();
    told.entry("type").or_insert_with(|| Value::from("function"));
    Ok(Value::Object(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<ChatPrompt, String> {
        let fields = Field::body(body).object().unwrap();
        conversation(&fields).map_err(|e| e.to_string())
    }

    fn only(message: &Value) -> Result<Value, String> {
        read(&json!({"messages": [message]})).map(|chat| chat.messages[0].clone())
    }

    #[test]
    fn roles_are_those_of_the_protocol() {
        let developer = json!({"role": "developer", "content": "x"});
        assert_eq!(only(&developer).unwrap(), developer);
        let result = only(&json!({"role": "function", "name": "f", "content": "x"})).unwrap();
        assert_eq!(result, json!({"role": "tool", "content": "x", "name": "f"}));
        let problem = only(&json!({"role": "robot", "content": "x"})).unwrap_err();
        assert!(problem.starts_with("`messages[0].role` must be one of system, developer"), "{problem}");
    }

    #[test]
    fn parts_keep_their_text_and_nothing_else() {
        let refusal = json!({"type": "refusal", "refusal": "b"});
        let parts = json!([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, refusal]);
        let told = only(&json!({"role": "assistant", "content": parts})).unwrap();
        assert_eq!(told["content"], json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]));
    }

    #[test]
    fn what_no_model_sees_or_hears_leaves_a_note() {
        for (kind, note) in [("image_url", "image"), ("input_audio", "audio"), ("file", "file")] {
            let part = json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": kind}]});
            let told = only(&part).unwrap();
            assert_eq!(told["content"][1], json!({"type": "text", "text": format!("[{note} omitted]")}));
        }
    }

    #[test]
    fn thoughts_among_the_parts_are_thoughts() {
        let said = json!({"type": "text", "text": "t"});
        let nested = json!({"type": "thinking", "thinking": [{"type": "text", "text": "c"}]});
        let parts = json!([{"type": "thinking", "thinking": "a"}, {"type": "reasoning", "text": "b"}, nested, {"type": "redacted_thinking"}, said]);
        let told = only(&json!({"role": "assistant", "content": parts})).unwrap();
        assert_eq!(told, json!({"role": "assistant", "content": [said], "reasoning_content": "abc"}));
        let problem = only(&json!({"role": "assistant", "content": [{"type": "thinking"}]})).unwrap_err();
        assert_eq!(problem, "`messages[0].content[0].thinking` is required");
        let silent = only(&json!({"role": "tool", "tool_call_id": "c", "content": null})).unwrap();
        assert_eq!(silent, json!({"role": "tool", "content": "", "tool_call_id": "c"}));
    }

    #[test]
    fn what_is_no_part_is_refused_by_path() {
        let odd = json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "scent"}]});
        let problem = only(&odd).unwrap_err();
        assert_eq!(problem, "`messages[0].content[1].type` must be a kind of part, found \"scent\"");
        let problem = only(&json!({"role": "user", "content": 5})).unwrap_err();
        assert_eq!(problem, "`messages[0].content` must be a string or an array of parts, found an integer");
        assert_eq!(only(&json!({"role": "user"})).unwrap_err(), "`messages[0].content` is required");
        assert_eq!(read(&json!({"messages": []})).unwrap_err(), "`messages` must have at least one message");
        assert_eq!(read(&json!({})).unwrap_err(), "`messages` is required");
    }

    #[test]
    fn arguments_stay_the_text_they_are_and_are_never_empty() {
        let call = |arguments: Value| json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}});
        let turn = |arguments| json!({"role": "assistant", "content": null, "tool_calls": [call(arguments)]});
        let arguments = |given| only(&turn(given)).map(|m| m["tool_calls"][0]["function"]["arguments"].clone());
        for kept in [json!("{\"b\": 1.0}"), json!("{\"b\": [1,"), json!({"a": 1})] {
            assert_eq!(arguments(kept.clone()).unwrap(), kept);
        }
        for empty in [json!(""), json!(null)] {
            assert_eq!(arguments(empty).unwrap(), "{}");
        }
        assert!(arguments(json!(7)).unwrap_err().starts_with("`messages[0].tool_calls[0].function.arguments` must be"));
        let told = only(&turn(json!("{}"))).unwrap();
        assert_eq!(told.get("content"), None);
        assert_eq!(told["tool_calls"][0]["id"], "c1");
    }

    #[test]
    fn calls_of_custom_tools_are_calls_with_a_text() {
        let call = json!({"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "a\nb"}});
        let told = only(&json!({"role": "assistant", "content": null, "tool_calls": [call]})).unwrap();
        let function = json!({"name": "patch", "arguments": "{\"input\":\"a\\nb\"}"});
        assert_eq!(told["tool_calls"], json!([{"type": "function", "function": function, "id": "c1"}]));
        let nameless = json!({"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"input": "x"}}]});
        assert_eq!(only(&nameless).unwrap_err(), "`messages[0].tool_calls[0].custom.name` is required");
    }

    #[test]
    fn only_tools_that_are_allowed_are_told() {
        let tools: Vec<_> =
            ["f", "g"].iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect();
        let told = |allowed: Value| {
            let choice = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}});
            let body = json!({"messages": [{"role": "user", "content": "x"}], "tools": tools, "tool_choice": choice});
            read(&body).map(|chat| chat.tools)
        };
        assert_eq!(
            told(json!([{"type": "function", "function": {"name": "g"}}])).unwrap(),
            Some(vec![tools[1].clone()])
        );
        assert_eq!(told(json!([{"type": "function", "name": "f"}])).unwrap(), Some(vec![tools[0].clone()]));
        assert_eq!(told(json!([])).unwrap(), None);
        let problem = told(json!([3])).unwrap_err();
        assert_eq!(problem, "`tool_choice.allowed_tools.tools[0]` must be an object, found an integer");
    }

    #[test]
    fn further_fields_of_a_message_reach_the_template() {
        let told = only(&json!({"role": "tool", "tool_call_id": "c1", "content": "42", "name": null})).unwrap();
        assert_eq!(told, json!({"role": "tool", "content": "42", "tool_call_id": "c1"}));
    }

    #[test]
    fn an_answer_is_asked_for_unless_the_client_says_otherwise() {
        let with =
            |kwargs: Value| json!({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": kwargs});
        let kwargs = |given| read(&with(given)).map(|chat| Value::Object(chat.kwargs));
        let thinking = kwargs(json!({"enable_thinking": false})).unwrap();
        assert_eq!(thinking, json!({"enable_thinking": false, "add_generation_prompt": true}));
        assert_eq!(kwargs(json!({"add_generation_prompt": false})).unwrap(), json!({"add_generation_prompt": false}));
    }

    #[test]
    fn variables_are_checked_whether_the_template_reads_them_or_not() {
        let kwargs = |given: Value| {
            read(&json!({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": given})).map(|_| ())
        };
        for name in RESERVED_VARIABLES {
            let problem = kwargs(json!({ name: [] })).unwrap_err();
            assert!(problem.starts_with(&format!("`chat_template_kwargs.{name}` is not a variable")), "{problem}");
        }
        let path = "`chat_template_kwargs.enable_thinking` must be a boolean, found";
        for (wrong, found) in [(json!(5), "an integer"), (json!("x"), "a string"), (json!([]), "an array")] {
            assert_eq!(kwargs(json!({"enable_thinking": wrong})).unwrap_err(), format!("{path} {found}"));
        }
        assert!(kwargs(json!({"reasoning_effort": 3})).is_err());
        assert_eq!(kwargs(json!({"enable_thinking": null, "documents": [], "reasoning_effort": "high"})), Ok(()));
    }

    #[test]
    fn efforts_are_those_of_the_protocol() {
        let with = |effort: Value| json!({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": effort});
        let effort = |given| read(&with(given)).map(|chat| chat.effort);
        assert_eq!(effort(json!("high")).unwrap().as_deref(), Some("high"));
        assert_eq!(effort(json!(null)).unwrap(), None);
        let problem = effort(json!("huge")).unwrap_err();
        assert_eq!(
            problem,
            "`reasoning_effort` must be one of none, minimal, low, medium, high, xhigh, max, found \"huge\""
        );
        assert_eq!(effort(json!(3)).unwrap_err(), "`reasoning_effort` must be a string, found an integer");
    }

    #[test]
    fn tools_of_unknown_kinds_are_passed_over() {
        let function = json!({"type": "function", "function": {"name": "f"}});
        let with = |tools: Value, choice: Value| json!({"messages": [{"role": "user", "content": "x"}], "tools": tools, "tool_choice": choice});
        let mixed = json!([{"type": "web_search"}, function]);
        assert_eq!(read(&with(mixed.clone(), json!("auto"))).unwrap().tools, Some(vec![function.clone()]));
        assert_eq!(read(&with(mixed, json!("none"))).unwrap().tools, None);
        assert_eq!(read(&with(json!([{"type": "custom"}]), json!(null))).unwrap().tools, None);
        let flat = json!([{"name": "f", "parameters": {"type": "object"}}]);
        let nested = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
        assert_eq!(read(&with(flat, json!(null))).unwrap().tools, Some(vec![nested]));
        let nameless = json!([{"type": "function", "function": {}}]);
        assert_eq!(read(&with(nameless, json!(null))).unwrap_err(), "`tools[0].function.name` is required");
    }
}
