//! What a generation tells its client: any number of [`Event::Delta`], then exactly one terminal event.

use std::time::Duration;

use bantam_text::Piece;

use super::Miss;

/// Something that happened to a generation.
#[derive(Clone, Debug)]
pub enum Event {
    /// The prompt has been computed and the first token is there.
    Started {
        /// Tokens of the prompt that were found in the cache.
        cached_tokens: usize,
        /// Why there were no more of them.
        miss: Option<Miss>,
    },
    /// More of the answer: whole UTF-8, no part of a stop text.
    Delta(Delta),
    /// The end, and the last event.
    Finished(Outcome),
    /// The generation cannot go on, and the last event.
    Failed(Failure),
}

/// Why a generation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A fault of the runtime or the model.
    #[error("{0}")]
    Fault(String),
    /// The time that the request gave has passed.
    #[error("the request's deadline of {} ms has passed", .after.as_millis())]
    Deadline {
        /// The time it gave.
        after: Duration,
    },
}

/// More of the answer.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// What it is. May be empty where a token completes no character.
    pub pieces: Vec<Piece>,
    /// The tokens it came from, if log-probabilities were asked for.
    pub tokens: Vec<TokenLogprob>,
}

impl Delta {
    /// More of the answer's text.
    pub fn content(text: impl Into<String>) -> Self {
        Delta { pieces: vec![Piece::Content(text.into())], tokens: Vec::new() }
    }

    /// What of it is the answer's text.
    pub fn text(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Content(text) => Some(text.clone()),
            _ => None,
        };
        self.pieces.iter().filter_map(text).collect()
    }
}

/// A token with its probability.
#[derive(Clone, Debug)]
pub struct TokenLogprob {
    /// The token.
    pub token: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether these are part of the answer's text, as a control token's are not.
    pub shown: bool,
    /// Natural logarithm of its probability, before any sampling option.
    pub logprob: f32,
    /// The likeliest tokens in its place, best first.
    pub top: Vec<TokenLogprob>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token or a stop text.
    Stop,
    /// `max_tokens` or the window.
    Length,
    /// The model called tools, and waits for their results.
    ToolCalls,
}

/// How a generation went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why it ended.
    pub reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, found in the cache.
    pub cached_tokens: usize,
    /// Tokens generated, the end token not counted.
    pub completion_tokens: usize,
    /// Of these, spent on thinking.
    pub reasoning_tokens: usize,
    /// The stop text that was hit, if any.
    pub stop_text: Option<String>,
    /// From submission to the first token.
    pub time_to_first_token: Duration,
    /// From the first token to the last.
    pub decode_time: Duration,
}
