//! What a request allows, as the grammar is told it.

use bantam_family_api::{CallSyntax, MessageHeader, Reasoning};
use bantam_text::Tool;

use crate::{ResponseFormat, ToolChoice};

/// Everything that a request and its model's format say about an answer's form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// The marks of reasoning. Empty: the model does not reason in this answer.
    pub reasoning: Vec<Reasoning>,
    /// Which of them the prompt has opened already.
    pub starts_in_reasoning: Option<usize>,
    /// How many tokens of reasoning there may be before its end is written for the model.
    pub reasoning_budget: Option<usize>,
    /// Where a turn is several messages, how each begins: the texts that may stand between two of them, and the header.
    pub header: Option<(Vec<String>, MessageHeader)>,
    /// How calls may be written, first the syntax that the prompt shows; it is the one of calls that are required. A call in
    /// any other of these is held to the tools too.
    pub calls: Vec<CallSyntax>,
    /// The tools declared.
    pub tools: Vec<Tool>,
    /// Whether they are to be called.
    pub choice: ToolChoice,
    /// Whether an answer may have several calls.
    pub parallel: bool,
    /// How many tokens a call may have. One that is not complete then is cut off and ends the answer.
    pub max_call_tokens: Option<usize>,
    /// The form of an answer that is no call.
    pub response: ResponseFormat,
}
