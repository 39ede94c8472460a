//! What a request asks for, in no protocol's words.

use serde_json::Value;

/// Whether tools are to be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// What form an answer must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    /// Any.
    #[default]
    Text,
    /// An object of JSON.
    JsonObject,
    /// JSON that this schema describes.
    JsonSchema(Value),
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// A text of this grammar, in llguidance's form of Lark.
    Lark(String),
    /// A text of this grammar, in llama.cpp's form of BNF.
    Gbnf(String),
}
