//! What a model says, taken apart: reasoning, answer, calls of tools.

mod turn;

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
