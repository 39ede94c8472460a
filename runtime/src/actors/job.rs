//! A prepared request on its way through the actors.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::speech::Speech;
use crate::{
    engine::{CancelFlag, Event, Failure, Miss, Place},
    sampling::{Sampled, Sampler},
    turns::TurnSeed,
};

/// A request that was rendered, tokenized and checked. It ends in exactly one terminal event on [`Output::events`].
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    /// The prompt, at least one token.
    pub(crate) tokens: Vec<u32>,
    pub(crate) sampler: Sampler,
    /// Bounded by what the window leaves, at least 1.
    pub(crate) max_tokens: usize,
    pub(crate) ignore_eos: bool,
    /// Whether cached prefixes may be used.
    pub(crate) share: bool,
    /// Most prompt tokens a step; 0: as many as fit.
    pub(crate) chunk: usize,
    /// Lower numbers go first.
    pub(crate) priority: i32,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) cancel: CancelFlag,
    pub(crate) capture: Option<Capture>,
    /// What reads its tokens.
    pub(crate) speech: Speech,
    pub(crate) output: Output,
}

/// When a request must have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    after: Duration,
}

impl Deadline {
    /// `after` a request's submission; `None` if that is beyond what clocks can tell, and so no deadline.
    pub(crate) fn new(submitted: Instant, after: Duration) -> Option<Self> {
        Some(Deadline { at: submitted.checked_add(after)?, after })
    }

    /// Why a request with this deadline ends at `now`, if it must.
    pub(crate) fn passed(&self, now: Instant) -> Option<Failure> {
        (now >= self.at).then_some(Failure::Deadline { after: self.after })
    }
}

/// The part of a job that turns tokens into the client's events; the slot owns it.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) id: u64,
    pub(crate) prompt_tokens: usize,
    pub(crate) submitted: Instant,
    /// Bounded: a client that does not read stops its own slot.
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) cancel: CancelFlag,
    /// If the answer is to be remembered.
    pub(crate) turn: Option<TurnSeed>,
    /// Held until the request has ended, so that the admission gate counts it.
    pub(crate) _place: Option<Place>,
}

/// Asks for the logits of all rows of one sequence, for probes.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    pub(crate) rows: std::sync::mpsc::Sender<CapturedRow>,
    /// Wrong tokens to be computed and taken back in each decoding step.
    pub(crate) rejected: usize,
}

/// A logit row and how it came about.
#[derive(Debug)]
pub(crate) struct CapturedRow {
    /// Index of its token in the sequence.
    pub(crate) index: usize,
    pub(crate) logits: Vec<f32>,
    /// Sequences in its step.
    pub(crate) sequences: usize,
    /// Slot of its sequence.
    pub(crate) slot: usize,
    /// Tokens behind it that were computed and taken back.
    pub(crate) rolled_back: usize,
}

/// What the scheduler tells a slot.
#[derive(Debug)]
pub(crate) enum TokenEvent {
    /// The prompt is done.
    Started { cached_tokens: usize, miss: Option<Miss> },
    /// One more token.
    Token(Sampled),
    /// The sequence ended; `end_token`: on an end token, which is not part of the answer.
    End { end_token: bool },
    /// The sequence cannot go on.
    Failed(Failure),
}
