//! Recorded outputs, and how they are split.

use bantam_text::{OutputFormat, Piece, Tool};
use serde_json::json;

use crate::formats::format;

/// What pieces hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Reasoning(String),
    Content(String),
    /// A complete call.
    Call(String, String),
    /// One that was cut off.
    Cut(String, String),
}

pub(crate) fn reasoning(text: &str) -> Part {
    Part::Reasoning(text.to_owned())
}

pub(crate) fn content(text: &str) -> Part {
    Part::Content(text.to_owned())
}

pub(crate) fn call(name: &str, arguments: &str) -> Part {
    Part::Call(name.to_owned(), arguments.to_owned())
}

pub(crate) fn cut(name: &str, arguments: &str) -> Part {
    Part::Cut(name.to_owned(), arguments.to_owned())
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
    let mut parts = Vec::new();
    let mut calls = 0;
    for piece in pieces {
        match (piece, parts.last_mut()) {
            (Piece::Reasoning(more), Some(Part::Reasoning(text)))
            | (Piece::Content(more), Some(Part::Content(text))) => text.push_str(&more),
            (Piece::Reasoning(text), _) => parts.push(Part::Reasoning(text)),
            (Piece::Content(text), _) => parts.push(Part::Content(text)),
            (Piece::Call { index, name }, _) => {
                assert_eq!(index, calls, "calls are numbered in their order");
                calls += 1;
                parts.push(Part::Cut(name, String::new()));
            }
            (Piece::Arguments { index, json }, Some(Part::Cut(_, arguments))) => {
                assert_eq!(index + 1, calls);
                arguments.push_str(&json);
            }
            (Piece::CallEnd { index }, Some(part)) => {
                assert_eq!(index + 1, calls);
                let Part::Cut(name, arguments) = part else { panic!("a call ends that is not open: {part:?}") };
                *part = Part::Call(std::mem::take(name), std::mem::take(arguments));
            }
            (piece, last) => panic!("{piece:?} behind {last:?}"),
        }
    }
    parts
}
