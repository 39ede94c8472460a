//! Blocks of content: what of them a model that reads text can be told.

use serde_json::{Value, json};

use super::wire::Signature;
use crate::fields::{Field, FieldError, Fields};

/// A block, in what it means to a chat template.
#[derive(Debug)]
pub(super) enum Block {
    Text(String),
    Thinking(String),
    /// A call of a tool, as the chat API has it.
    Call(Value),
    /// What a tool answered, as a message of its own.
    Result(Value),
    /// Something that only its maker can read.
    Sealed,
    /// Something that is not text, by its type.
    Other(String),
}

/// The blocks of `content`; a string is one of text.
pub(super) fn blocks(content: &Field<'_>) -> Result<Vec<Block>, FieldError> {
    match content.value() {
        Value::String(text) => Ok(vec![Block::Text(text.clone())]),
        Value::Array(_) => content.items()?.iter().map(block).collect(),
        _ => Err(content.expected("a string or an array of blocks")),
    }
}

/// All that can be read of `content`, a block a line.
pub(super) fn text(content: &Field<'_>) -> Result<String, FieldError> {
    let lines: Vec<String> = blocks(content)?.into_iter().filter_map(readable).collect();
    Ok(lines.join("\n"))
}

/// The text of a block, or a note of what stood there.
pub(super) fn readable(block: Block) -> Option<String> {
    match block {
        Block::Text(text) | Block::Thinking(text) => Some(text),
        Block::Other(kind) => Some(omitted(&kind)),
        Block::Call(_) | Block::Result(_) | Block::Sealed => None,
    }
}

fn omitted(kind: &str) -> String {
    format!("[{kind} omitted]")
}

fn block(field: &Field<'_>) -> Result<Block, FieldError> {
    let block = field.object()?;
    let text = |key| block.required(key)?.text().map(str::to_owned);
    Ok(match block.required("type")?.text()? {
        "text" => Block::Text(text("text")?),
        "thinking" => Block::Thinking(thought(&block)?),
        "redacted_thinking" => Block::Sealed,
        "tool_use" => Block::Call(call(&block)?),
        "tool_result" => Block::Result(result(&block)?),
        "document" => Block::Text(document(&block)?),
        "search_result" => Block::Text(search_result(&block)?),
        other => Block::Other(other.to_owned()),
    })
}

/// What was thought; where the client was not told, it has it in the signature.
fn thought(block: &Fields<'_>) -> Result<String, FieldError> {
    let text = block.required("thinking")?.text()?;
    let signature = block.text("signature")?;
    let sealed = signature.filter(|_| text.is_empty()).and_then(Signature::opened);
    Ok(sealed.unwrap_or_else(|| text.to_owned()))
}

/// The input goes on as text, as the calls of the other protocols come in.
fn call(block: &Fields<'_>) -> Result<Value, FieldError> {
    let name = block.required("name")?.text()?;
    let arguments = match block.get("input") {
        None => "{}".to_owned(),
        Some(input) => match input.value() {
            Value::String(text) => text.clone(),
            Value::Object(_) => input.value().to_string(),
            _ => return Err(input.expected("an object")),
        },
    };
    let id = block.required("id")?.text()?;
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

fn result(block: &Fields<'_>) -> Result<Value, FieldError> {
    let content = block.get("content").map(|content| text(&content)).transpose()?.unwrap_or_default();
    let failed = block.flag("is_error")?.unwrap_or(false);
    // Templates have no other place for it.
    let content = if failed && !content.starts_with("Error") { format!("Error: {content}") } else { content };
    Ok(json!({"role": "tool", "tool_call_id": block.required("tool_use_id")?.text()?, "content": content}))
}

/// A text document with its title and context; of others a note.
fn document(block: &Fields<'_>) -> Result<String, FieldError> {
    let source = block.required("source")?.object()?;
    let body = match source.required("type")?.text()? {
        "text" => source.required("data")?.text()?.to_owned(),
        "content" => text(&source.required("content")?)?,
        _ => omitted("document"),
    };
    let above = [block.text("title")?, block.text("context")?];
    let lines: Vec<&str> = above.into_iter().flatten().chain([body.as_str()]).collect();
    Ok(lines.join("\n"))
}

fn search_result(block: &Fields<'_>) -> Result<String, FieldError> {
    let body = text(&block.required("content")?)?;
    let above = [block.text("title")?, block.text("source")?];
    let lines: Vec<&str> = above.into_iter().flatten().chain([body.as_str()]).collect();
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(content: &Value) -> Result<String, String> {
        text(&Field::body(content)).map_err(|e| e.to_string())
    }

    #[test]
    fn what_cannot_be_read_leaves_a_note() {
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}});
        let pdf = json!({"type": "document", "title": "a.pdf", "source": {"type": "base64", "data": "AA=="}});
        let content = json!([{"type": "text", "text": "see"}, image, pdf, {"type": "never_seen"}]);
        assert_eq!(told(&content).unwrap(), "see\n[image omitted]\na.pdf\n[document omitted]\n[never_seen omitted]");
    }

    #[test]
    fn documents_of_text_are_read() {
        let plain = json!({"type": "document", "title": "T", "context": "C", "source": {"type": "text", "data": "D"}});
        let parts =
            json!({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "E"}]}});
        let found =
            json!({"type": "search_result", "title": "F", "source": "G", "content": [{"type": "text", "text": "H"}]});
        assert_eq!(told(&json!([plain, parts, found])).unwrap(), "T\nC\nD\nE\nF\nG\nH");
    }

    #[test]
    fn a_failed_tool_says_so() {
        let result = |content: Value, failed: bool| {
            let block = json!([{"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": failed}]);
            let [Block::Result(message)] = &blocks(&Field::body(&block)).unwrap()[..] else { panic!("a result") };
            message["content"].clone()
        };
        assert_eq!(result(json!("no such file"), true), "Error: no such file");
        assert_eq!(result(json!([{"type": "text", "text": "Error 2"}]), true), "Error 2");
        assert_eq!(result(json!([{"type": "text", "text": "a"}, {"type": "image"}]), false), "a\n[image omitted]");
        assert_eq!(result(json!(null), false), "");
    }

    #[test]
    fn inputs_keep_the_order_of_their_keys() {
        let call = |input: Value| {
            let block = json!([{"type": "tool_use", "id": "t", "name": "f", "input": input}]);
            match blocks(&Field::body(&block)).map_err(|e| e.to_string())?.remove(0) {
                Block::Call(call) => Ok::<_, String>(call["function"]["arguments"].clone()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(call(json!({"b": 1, "a": [2.5]})).unwrap(), r#"{"b":1,"a":[2.5]}"#);
        assert_eq!(call(json!(null)).unwrap(), "{}");
        assert_eq!(call(json!([1])).unwrap_err(), "`[0].input` must be an object, found an array");
    }
}
