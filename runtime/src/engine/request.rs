//! What a client asks for, in the runtime's own terms. The protocols convert their wire forms into these.

use std::time::Duration;

use bantam_grammar::{ResponseFormat, ToolChoice};
use serde_json::{Map, Value};

use crate::sampling::SamplingOverrides;

/// What to continue.
#[derive(Clone, Debug)]
pub enum Prompt {
    /// A conversation, to be rendered by the model's chat template.
    Chat(ChatPrompt),
    /// Text as it is; the beginning-of-sequence token is added where the vocabulary says so.
    Text(String),
    /// Exactly these tokens.
    Tokens(Vec<u32>),
}

/// A conversation in the shape that chat templates read.
#[derive(Clone, Debug, Default)]
pub struct ChatPrompt {
    /// Messages, each an object with `role`, `content`, ….
    pub messages: Vec<Value>,
    /// Tool declarations; `None` if there are none.
    pub tools: Option<Vec<Value>>,
    /// Further template variables (`enable_thinking`, …).
    pub kwargs: Map<String, Value>,
    /// How much the model is to think: one of [`bantam_text::EFFORT_LEVELS`]. Becomes variables of the template, unless
    /// `kwargs` sets these.
    pub effort: Option<String>,
    /// Whether it is to think at all, where `effort` does not say so. Becomes a variable in the same way.
    pub thinking: Option<bool>,
    /// Whether the last message, the assistant's, is to be gone on with instead of being answered.
    pub continue_last: bool,
}

/// One generation.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to continue.
    pub prompt: Prompt,
    /// Sampling options that the client set; the others come from the server and the model.
    pub sampling: SamplingOverrides,
    /// Most tokens to generate; `None`: the server's `--max-tokens`. Always bounded by what the window leaves.
    pub max_tokens: Option<usize>,
    /// Texts that end the generation and are not part of the answer.
    pub stop: Vec<String>,
    /// Whether end tokens are taken as ordinary ones.
    pub ignore_eos: bool,
    /// Report the log-probability of each token and this many alternatives.
    pub logprobs: Option<usize>,
    /// Requests of a lower number go first, where they would have to wait for each other.
    pub priority: i32,
    /// Time after which nobody wants the answer any more.
    pub deadline: Option<Duration>,
    /// Whether the tools of a conversation are to be called.
    pub tool_choice: ToolChoice,
    /// Whether several of them may be called in one turn.
    pub parallel_tool_calls: bool,
    /// What form the answer must have.
    pub response_format: ResponseFormat,
    /// Whether all of the answer is text, as the model writes it, instead of being taken apart.
    pub plain: bool,
    /// Whether the generation is to tell the text of its prompt.
    pub keep_prompt: bool,
    /// Most tokens that the model may think; `None`: the server's `--thinking-budget`.
    pub reasoning_budget: Option<usize>,
}

impl Request {
    /// A request for this prompt with nothing else set.
    pub fn new(prompt: Prompt) -> Self {
        Request {
            prompt,
            sampling: SamplingOverrides::default(),
            max_tokens: None,
            stop: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            priority: 0,
            deadline: None,
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            response_format: ResponseFormat::Text,
            reasoning_budget: None,
            plain: false,
            keep_prompt: false,
        }
    }
}
