//! The objects that `/v1/chat/completions` answers with.

use bantam_runtime::engine::{Call, Piece, TokenLogprob};
use serde::Serialize;

use super::finish_reason;
use crate::answer::Whole;

/// A whole answer.
#[derive(Serialize)]
pub(super) struct Choice {
    index: usize,
    message: Message,
    logprobs: Option<Logprobs>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    /// Null where there are calls and nothing beside them.
    content: Option<String>,
    refusal: Option<String>,
    #[serde(flatten)]
    reasoning: Reasoning,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

/// What the model thought, under both of the names that clients look for.
#[derive(Default, Serialize)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
}

impl Reasoning {
    fn new(text: String) -> Self {
        Reasoning { reasoning_content: Some(text.clone()), reasoning: Some(text) }
    }
}

/// A call, or a piece of one.
#[derive(Serialize)]
struct ToolCall {
    /// In a piece: which call it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: Function,
}

#[derive(Serialize)]
struct Function {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

/// A name for a call, by which its result will refer to it.
fn call_id() -> String {
    format!("call_{}", uuid::Uuid::new_v4().simple())
}

impl Choice {
    pub(super) fn new(index: usize, whole: &Whole, logprobs: bool) -> Self {
        let (reasoning, content) = (whole.turn.reasoning(), whole.turn.content());
        let call = |call: &Call| ToolCall {
            index: None,
            id: Some(call_id()),
            kind: Some("function"),
            function: Function { name: Some(call.name.clone()), arguments: call.arguments.clone() },
        };
        let tool_calls: Vec<_> = whole.turn.calls().map(call).collect();
        Choice {
            index,
            message: Message {
                role: "assistant",
                content: (tool_calls.is_empty() || !content.is_empty()).then_some(content),
                refusal: None,
                reasoning: if reasoning.is_empty() { Reasoning::default() } else { Reasoning::new(reasoning) },
                tool_calls,
            },
            logprobs: logprobs.then(|| Logprobs::new(&whole.tokens)),
            finish_reason: finish_reason(whole.outcome.reason),
        }
    }
}

/// A piece of a streamed answer.
#[derive(Default, Serialize)]
pub(super) struct ChunkChoice {
    pub(super) index: usize,
    pub(super) delta: ChunkDelta,
    pub(super) logprobs: Option<Logprobs>,
    pub(super) finish_reason: Option<&'static str>,
}

/// What a chunk adds to the message.
#[derive(Default, Serialize)]
pub(super) struct ChunkDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(flatten)]
    reasoning: Reasoning,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

impl ChunkDelta {
    pub(super) fn role() -> Self {
        ChunkDelta { role: Some("assistant"), content: Some(String::new()), ..ChunkDelta::default() }
    }

    pub(super) fn content(text: String) -> Self {
        ChunkDelta { content: Some(text), ..ChunkDelta::default() }
    }

    /// A piece of the model's turn; the end of a call needs no word.
    pub(super) fn piece(piece: Piece) -> Option<Self> {
        let call = |index, id, kind, name, arguments| ChunkDelta {
            tool_calls: vec![ToolCall { index: Some(index), id, kind, function: Function { name, arguments } }],
            ..ChunkDelta::default()
        };
        Some(match piece {
            Piece::Content(text) => Self::content(text),
            Piece::Reasoning(text) => ChunkDelta { reasoning: Reasoning::new(text), ..ChunkDelta::default() },
            Piece::Call { index, name } => call(index, Some(call_id()), Some("function"), Some(name), String::new()),
            Piece::Arguments { index, json } => call(index, None, None, None, json),
            Piece::CallEnd { .. } => return None,
        })
    }
}

/// Log-probabilities of the tokens of an answer or a chunk.
#[derive(Serialize)]
pub(super) struct Logprobs {
    content: Vec<Token>,
    refusal: Option<Vec<Token>>,
}

#[derive(Serialize)]
struct Token {
    #[serde(flatten)]
    told: TokenText,
    top_logprobs: Vec<TokenText>,
}

#[derive(Serialize)]
struct TokenText {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl Logprobs {
    pub(super) fn new(tokens: &[TokenLogprob]) -> Self {
        let token = |t: &TokenLogprob| Token {
            told: TokenText::new(t),
            top_logprobs: t.top.iter().map(TokenText::new).collect(),
        };
        Logprobs { content: tokens.iter().map(token).collect(), refusal: None }
    }
}

impl TokenText {
    fn new(token: &TokenLogprob) -> Self {
        TokenText {
            token: String::from_utf8_lossy(&token.bytes).into_owned(),
            logprob: super::finite(token.logprob),
            bytes: token.bytes.clone(),
        }
    }
}
