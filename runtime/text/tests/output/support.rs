//! Recorded outputs, and how they are split.

use bantam_text::{Call, OutputFormat, Part, Piece, Tool, Turn};
use serde_json::json;

use crate::formats::format;

pub(crate) fn reasoning(text: &str) -> Part {
    Part::Reasoning(text.to_owned())
}

pub(crate) fn content(text: &str) -> Part {
    Part::Content(text.to_owned())
}

/// A complete call.
pub(crate) fn call(name: &str, arguments: &str) -> Part {
    Part::Call(Call { name: name.to_owned(), arguments: arguments.to_owned(), complete: true })
}

/// A call that was cut off.
pub(crate) fn cut(name: &str, arguments: &str) -> Part {
    Part::Call(Call { name: name.to_owned(), arguments: arguments.to_owned(), complete: false })
}

/// A recorded output, and what it holds.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) format: &'static str,
    pub(crate) prompt: &'static str,
    pub(crate) output: String,
    pub(crate) parts: Vec<Part>,
}

/// An output behind the end of a prompt.
pub(crate) fn behind(format: &'static str, prompt: &'static str, output: &str, parts: impl Into<Vec<Part>>) -> Case {
    Case { format, prompt, output: output.to_owned(), parts: parts.into() }
}

/// An output whose prompt has no mark at its end.
pub(crate) fn case(format: &'static str, output: &str, parts: impl Into<Vec<Part>>) -> Case {
    behind(format, "", output, parts)
}

/// The tools that all requests declare.
pub(crate) fn tools() -> Vec<Tool> {
    let tool = |name: &str, properties: serde_json::Value, required: &[&str]| Tool {
        name: name.to_owned(),
        parameters: json!({"type": "object", "properties": properties, "required": required}),
    };
    let lookup = json!({"word": {"type": "string"}, "limit": {"type": "integer"}, "deep": {"type": "boolean"}});
    let write = json!({
        "title": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "string"}},
        "mode": {"anyOf": [{"type": "integer"}, {"type": "null"}, {"type": "string"}]},
        "anything": {},
    });
    vec![
        tool("lookup", lookup, &["word"]),
        tool("write_note", write, &["title"]),
        tool("list_files", json!({"path": {"type": "string"}}), &[]),
        tool("get.weather", json!({"city": {"type": "string"}, "days": {"type": "array"}}), &["city"]),
    ]
}

impl Case {
    /// What is wrong with how it is split, if anything is.
    pub(crate) fn wrong(&self) -> Option<String> {
        let parts = split(self.format(), &tools(), self.prompt, [self.output.as_str()]);
        let wrong = || format!("{}: {:?}\n  gives {parts:?}\n  not   {:?}", self.format, self.output, self.parts);
        (parts != self.parts).then(wrong)
    }

    pub(crate) fn format(&self) -> &'static OutputFormat {
        format(self.format)
    }
}

/// Joined pieces of an output that comes in these chunks; checks that they are well-formed.
pub(crate) fn split<'c>(
    format: &OutputFormat,
    tools: &[Tool],
    prompt: &str,
    chunks: impl IntoIterator<Item = &'c str>,
) -> Vec<Part> {
    let mut splitter = format.splitter(tools, prompt);
    let mut pieces: Vec<Piece> = chunks.into_iter().flat_map(|chunk| splitter.push(chunk)).collect();
    pieces.extend(splitter.finish());
    assert!(splitter.finish().is_empty(), "nothing is left behind the end");
    join(pieces)
}

fn join(pieces: Vec<Piece>) -> Vec<Part> {
    let mut turn = Turn::default();
    for piece in pieces {
        let calls = turn.calls().count();
        let is_open = matches!(turn.parts.last(), Some(Part::Call(call)) if !call.complete);
        match &piece {
            Piece::Reasoning(text) | Piece::Content(text) => assert!(!text.is_empty(), "a piece says something"),
            Piece::Call { index, .. } => assert_eq!(*index, calls, "calls are numbered in their order"),
            Piece::Arguments { index, .. } | Piece::CallEnd { index } => {
                assert!(is_open && index + 1 == calls, "{piece:?} belongs to no call: {turn:?}");
            }
        }
        turn.add(piece);
    }
    turn.parts
}
