//! The objects that `/v1/chat/completions` answers with.

use bantam_runtime::engine::TokenLogprob;
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
    content: String,
    refusal: Option<String>,
}

impl Choice {
    pub(super) fn new(whole: Whole, logprobs: bool) -> Self {
        Choice {
            index: 0,
            message: Message { role: "assistant", content: whole.turn.content(), refusal: None },
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
}

impl ChunkDelta {
    pub(super) fn role() -> Self {
        ChunkDelta { role: Some("assistant"), content: Some(String::new()) }
    }

    pub(super) fn content(text: String) -> Self {
        ChunkDelta { role: None, content: Some(text) }
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
