//! How values are spelled where they are not JSON.

use serde_json::Value;

use super::Writer;
use super::content::Content;
use crate::lark::{literal, regex};

/// A syntax of values.
pub(super) enum Style {
    /// As Python writes them.
    Python,
    /// With bare keys, and texts between two of these marks, in which nothing is escaped.
    Braced {
        /// The mark.
        quote: String,
    },
}

/// What stands in a text of Python beside characters as they are.
const ESCAPE: &str = r#"\\[nrt\\'"]"#;
/// A name as programs have it.
const IDENTIFIER: &str = "[A-Za-z_][A-Za-z0-9_]{0,63}";

impl Style {
    /// What stands between two items.
    pub(super) fn separator(&self, writer: &Writer<'_, '_>) -> String {
        match self {
            Self::Python => format!("\",\" {}", writer.space),
            Self::Braced { .. } => "\",\"".into(),
        }
    }

    pub(super) fn boolean(&self) -> String {
        match self {
            Self::Python => "(\"True\" | \"False\")".into(),
            Self::Braced { .. } => "(\"true\" | \"false\")".into(),
        }
    }

    /// A text.
    pub(super) fn text(&self, writer: &mut Writer<'_, '_>, content: &Content) -> String {
        match self {
            Self::Braced { quote } => {
                let (open, text) = (writer.lark.mark(quote), writer.until(content, quote));
                format!("{open} {text}")
            }
            Self::Python if *content == Content::any() => {
                let single = regex(&format!("'(?:[^'\\\\\\n]|{ESCAPE})*'"));
                let double = regex(&format!("\"(?:[^\"\\\\\\n]|{ESCAPE})*\""));
                writer.lark.terminal(&format!("{single} | {double}"))
            }
            // A text that has to be of a form is one that needs no escapes.
            Self::Python => {
                let (text, plain) = (&content.expression, regex("[^'\\\\\\n]*"));
                writer.lark.terminal(&format!("\"'\" ({text} & {plain}) \"'\""))
            }
        }
    }

    /// This value.
    pub(super) fn literal(&self, writer: &mut Writer<'_, '_>, value: &Value) -> String {
        match (self, value) {
            (Self::Python, Value::Null) => literal("None"),
            (Self::Python, Value::Bool(true)) => literal("True"),
            (Self::Python, Value::Bool(false)) => literal("False"),
            (Self::Python, Value::String(text)) => format!("({} | {})", quoted(text, '\''), quoted(text, '"')),
            (Self::Braced { quote }, Value::String(text)) => {
                let quote = writer.lark.mark(quote);
                format!("{quote} {} {quote}", literal(text))
            }
            (_, Value::Array(items)) => {
                let items: Vec<String> = items.iter().map(|item| self.literal(writer, item)).collect();
                format!("\"[\" {} \"]\"", items.join(&format!(" {} ", self.separator(writer))))
            }
            (_, Value::Object(members)) => {
                let member = |(name, value): (&String, &Value)| {
                    let value = self.literal(writer, value);
                    format!("{} {value}", self.key(writer, name).unwrap_or_default())
                };
                let members: Vec<String> = members.iter().map(member).collect();
                format!("\"{{\" {} \"}}\"", members.join(&format!(" {} ", self.separator(writer))))
            }
            (_, other) => literal(&other.to_string()),
        }
    }

    /// The name of an object's member and what stands behind it. None: it cannot be written.
    pub(super) fn key(&self, writer: &mut Writer<'_, '_>, name: &str) -> Option<String> {
        match self {
            Self::Python => Some(format!("({} | {}) \":\" {}", quoted(name, '\''), quoted(name, '"'), writer.space)),
            Self::Braced { .. } => {
                let is_bare = |c: char| !c.is_whitespace() && !c.is_control() && !",:{}[]<>|\"'".contains(c);
                (!name.is_empty() && name.chars().all(is_bare)).then(|| literal(&format!("{name}:")))
            }
        }
    }

    /// Any such name.
    pub(super) fn any_key(&self, writer: &mut Writer<'_, '_>) -> String {
        match self {
            Self::Python => format!("{} \":\" {}", self.text(writer, &Content::any()), writer.space),
            Self::Braced { .. } => writer.lark.terminal(&regex(&format!("{IDENTIFIER}:"))),
        }
    }

    /// The name of an argument and what stands behind it. None: it cannot be written.
    pub(super) fn argument(&self, writer: &mut Writer<'_, '_>, name: &str) -> Option<String> {
        let is_part = |(at, c): (usize, char)| c == '_' || c.is_alphabetic() || (at > 0 && c.is_alphanumeric());
        match self {
            Self::Python if name.is_empty() || !name.char_indices().all(is_part) => None,
            Self::Python => Some(literal(&format!("{name}="))),
            Self::Braced { .. } => self.key(writer, name),
        }
    }
}

/// A text in quotes as Python has it.
fn quoted(text: &str, quote: char) -> String {
    let mut written = String::from(quote);
    for c in text.chars() {
        match c {
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            '\\' => written.push_str("\\\\"),
            c if c == quote => written.extend(['\\', c]),
            c => written.push(c),
        }
    }
    written.push(quote);
    literal(&written)
}
