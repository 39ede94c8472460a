//! What a model says, taken apart: reasoning, answer, calls of tools.
//!
//! A family says as data how its models mark these parts, and a checkpoint's template which of its ways the checkpoint
//! uses: [`OutputFormat`]. A [`Splitter`] for each turn finds the marks in the text and has what stands between those of a
//! call read by the reader of its syntax. There is one reader for each way in which calls are written, whatever their tags.

mod braced;
mod escapes;
mod format;
mod json;
mod lark;
mod literal;
mod marks;
mod named;
mod python;
mod raw;
mod scan;
mod sink;
mod splitter;
mod syntax;
mod tagged;
mod tools;
mod turn;
mod values;

pub use format::OutputFormat;
pub use splitter::Splitter;
pub use tools::Tool;
pub use turn::{Call, Part, Turn};

/// A piece of a model's turn, in the order in which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// More of what it thinks.
    Reasoning(String),
    /// More of what it answers.
    Content(String),
    /// It begins to call a tool. The calls of a turn are numbered from 0.
    Call {
        /// Number of the call.
        index: usize,
        /// The tool.
        name: String,
    },
    /// More of the arguments of the call that began last. Together they are the text of a JSON object, unless the model wrote
    /// something else.
    Arguments {
        /// Number of the call.
        index: usize,
        /// The text.
        json: String,
    },
    /// The call is complete. One that was cut off by the end of the turn never is.
    CallEnd {
        /// Number of the call.
        index: usize,
    },
}
