//! The objects that `/v1/chat/completions` answers with.

use bantam_runtime::engine::TokenLogprob;
use serde::Serialize;

use super::usage::Usage;
use super::{Stamp, finish_reason};
use crate::answer::Whole;

/// A whole answer.
#[derive(Serialize)]
pub(super) struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice; 1],
    usage: Usage,
}

#[derive(Serialize)]
struct Choice {
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

impl<'a> Completion<'a> {
    pub(super) fn new(stamp: &'a Stamp, whole: Whole, logprobs: bool) -> Self {
        let choice = Choice {
            index: 0,
            message: Message { role: "assistant", content: whole.text, refusal: None },
            logprobs: logprobs.then(|| Logprobs::new(&whole.tokens)),
            finish_reason: finish_reason(whole.outcome.reason),
        };
        Completion {
            id: &stamp.id,
            object: "chat.completion",
            created: stamp.created,
            model: &stamp.model,
            choices: [choice],
            usage: Usage::from(&whole.outcome),
        }
    }
}

/// A piece of a streamed answer.
#[derive(Serialize)]
pub(super) struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<ChunkChoice>,
    /// Where usage was asked for, null on all chunks but the last; where it was not, absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct ChunkChoice {
    index: usize,
    delta: ChunkDelta,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
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

impl<'a> Chunk<'a> {
    pub(super) fn choice(
        stamp: &'a Stamp,
        delta: ChunkDelta,
        logprobs: Option<Logprobs>,
        finish_reason: Option<&'static str>,
        include_usage: bool,
    ) -> Self {
        let choice = ChunkChoice { index: 0, delta, logprobs, finish_reason };
        Self::new(stamp, vec![choice], include_usage.then_some(None))
    }

    pub(super) fn usage(stamp: &'a Stamp, usage: Usage) -> Self {
        Self::new(stamp, Vec::new(), Some(Some(usage)))
    }

    fn new(stamp: &'a Stamp, choices: Vec<ChunkChoice>, usage: Option<Option<Usage>>) -> Self {
        Chunk {
            id: &stamp.id,
            object: "chat.completion.chunk",
            created: stamp.created,
            model: &stamp.model,
            choices,
            usage,
        }
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
