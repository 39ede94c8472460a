//! A family's chat format as data: what in a model's output is reasoning, a call of a tool, or the end.
//!
//! How conversations are written into a prompt is the checkpoint's own template's business; this is the way back.
//! All texts are as a model spells them, control tokens included.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a model marks the parts of its turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChatFormat {
    /// Spellings of further tokens that end the generation, beside those that the vocabulary declares; those that it
    /// lacks are passed over.
    pub stop_tokens: Vec<String>,
    /// Texts that end the generation however they are put together of tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_texts: Vec<String>,
    /// Texts that are neither answer nor reasoning nor call wherever they stand: headers of messages, stray marks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<String>,
    /// What each message of a turn begins with, where a turn is several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<MessageHeader>,
    /// What encloses reasoning, the usual first; none: the model does not reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasoning: Vec<Reasoning>,
    /// Efforts that the family's templates know, least first. A checkpoint's own template may know fewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub efforts: Vec<Effort>,
    /// How tools are called, the usual syntax first; none: the model was not taught to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallSyntax>,
    /// Kinds of syntax that a plugin named and that nobody here knows: such calls stay text.
    #[serde(skip)]
    pub unknown_calls: Vec<String>,
}

/// The header of a message, which says to whom it goes: `before RECIPIENT behind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MessageHeader {
    /// Stands before the recipient.
    pub before: String,
    /// Stands behind it.
    pub behind: String,
    /// The recipient of answers; nothing in them is a call.
    pub answer: String,
}

/// What encloses reasoning. Where a prompt ends with `open`, the output starts inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Reasoning {
    /// Begins it.
    pub open: String,
    /// Ends it.
    pub close: String,
    /// Whether the beginning of a call ends it too: models leave out the closing text there.
    pub ended_by_calls: bool,
}

/// How much a model is asked to reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// The level, as APIs call it.
    pub level: String,
    /// The template's variable.
    pub variable: String,
    /// Its value at this level.
    pub value: Value,
}

/// How a call of a tool is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallSyntax {
    /// A JSON object for each call.
    Json(JsonCalls),
    /// The name, and each argument's name and value, between tags.
    Tagged(TaggedCalls),
    /// The name, and a JSON object of arguments behind it.
    Named(NamedCalls),
    /// A list of calls as Python writes them, `[name(key='text', other=1), …]`, between these two texts.
    Python {
        /// Begins the list.
        open: String,
        /// Ends it.
        close: String,
    },
    /// `name{key:value,…}` with bare keys, lists in brackets, objects in braces, numbers, true, false and null.
    Braced {
        /// Stands before the name.
        open: String,
        /// Stands behind the last brace.
        close: String,
        /// Stands before and behind a text, in which nothing is escaped.
        quote: String,
    },
    /// In a form that a grammar describes.
    Lark(LarkCalls),
}

impl CallSyntax {
    /// Names of the kinds, as JSON has them.
    pub const KINDS: &[&str] = &["json", "tagged", "named", "python", "braced", "lark"];
}

/// Calls as JSON objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JsonCalls {
    /// Encloses all calls of a turn, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[String; 2]>,
    /// Stands before an object; empty: the turn begins with it.
    pub open: String,
    /// Stands behind it; empty: the turn ends with it.
    pub close: String,
    /// Key of the tool's name.
    pub name: String,
    /// Keys of the object of arguments, the usual first.
    pub arguments: Vec<String>,
}

/// Calls between tags. Models may write white space between any two tags, those of one text here too, beside what these
/// texts have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaggedCalls {
    /// Encloses all calls of a turn, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[String; 2]>,
    /// Stands before a call.
    pub open: String,
    /// Stands between a call's name and its first argument; empty: white space or the first argument's tag.
    pub named: String,
    /// Stands behind a call.
    pub close: String,
    /// Encloses an argument.
    pub argument: ArgumentTags,
}

/// Calls as a name and a JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NamedCalls {
    /// Encloses all calls of a turn, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[String; 2]>,
    /// Stands before the name.
    pub open: String,
    /// Stands between name and object; models may leave it out.
    pub named: String,
    /// Stands behind the object.
    pub close: String,
}

/// Calls in a form of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LarkCalls {
    /// Stands before a call.
    pub open: String,
    /// Stands behind it; not empty.
    pub close: String,
    /// What stands between, in llguidance's form of Lark, from the rule `start`. It has the rules `name` and `arguments`
    /// without defining them: they stand for the tool's name, and for a JSON object of its arguments.
    pub grammar: String,
}

/// An argument between tags: `open KEY text VALUE close`, or `open KEY json VALUE close`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ArgumentTags {
    /// Stands before the name.
    pub open: String,
    /// Stands between name and value. The value is text as it stands, unless `json` says otherwise.
    pub text: String,
    /// Stands there instead where the value is JSON. None: the tool's schema says which values are texts, and all others
    /// are JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// Encloses the value's type, where the model writes one between name and value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<[String; 2]>,
    /// Stands behind the value.
    pub close: String,
    /// Whether a value of which nobody says the type is a text; otherwise it is JSON if it can be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text_by_default: bool,
}
