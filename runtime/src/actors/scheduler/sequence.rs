//! A running sequence as the scheduler sees it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use tokio::sync::mpsc;

use super::cuts::Cuts;
use crate::{
    actors::job::{Capture, Deadline, TokenEvent},
    cache::{Lease, Resume},
    engine::{CancelFlag, Miss, SlotState, SlotStatus},
    sampling::{Sampled, Sampler},
};

/// Generated tokens that others see at once.
const PUBLISH_EVERY: usize = 32;

/// Tokens of its answer that a sequence is given memory for before it begins: enough not to be displaced at once, while answers
/// are seldom as long as they may be.
const ANSWER_RESERVED: usize = 256;

/// What a sequence waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The request that computes it.
    pub(crate) request: u64,
    /// As long as that has computed no more tokens, it is not there.
    pub(crate) unfinished: usize,
}

/// What a step gives to a sequence, or takes from it.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: u64,
    /// Its slot; none has the number of a sequence in the background.
    pub(crate) slot: usize,
    /// Whether it only computes its prompt, for requests to come.
    pub(crate) is_background: bool,
    /// Prompt, then what was generated.
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_len: usize,
    /// Tokens found in the cache when the sequence began.
    pub(crate) cached: usize,
    /// Why there were no more.
    pub(crate) miss: Option<Miss>,
    /// Its state; none before its first step and after it was displaced.
    pub(crate) lease: Option<Lease>,
    /// Where its steps end, so that others can go on from there.
    pub(crate) cuts: Cuts,
    /// Another that is computing a prefix which it can have.
    pub(crate) waits: Option<Wait>,
    /// One that held the prefix found in the cache when this one began.
    pub(crate) shares_with: Option<u64>,
    /// Tokens that pages are there for, to be written by this sequence alone.
    pub(crate) grown_to: usize,
    /// Tokens that others can find.
    pub(crate) published: usize,
    /// Away while a step draws with it.
    pub(crate) sampler: Option<Sampler>,
    /// Rows of the step that is being computed; 0: not part of it.
    pub(crate) in_step: usize,
    pub(crate) max_tokens: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) share: bool,
    pub(crate) chunk: usize,
    /// Lower numbers go first. That of a sequence whose prefix others wait for is the least of theirs.
    pub(crate) priority: i32,
    pub(crate) deadline: Option<Deadline>,
    /// Whether a step with it and others has failed: it is tried alone.
    pub(crate) suspect: bool,
    pub(crate) capture: Option<Capture>,
    pub(crate) cancel: CancelFlag,
    pub(crate) events: mpsc::Sender<TokenEvent>,
    pub(crate) blocked: Arc<AtomicBool>,
    pub(crate) started: bool,
    /// When it was given its slot.
    pub(crate) began: Instant,
    /// When its first token was there.
    pub(crate) decoding_since: Option<Instant>,
}

impl Sequence {
    /// Tokens whose state is computed.
    pub(crate) fn done(&self) -> usize {
        self.lease.as_ref().map_or(0, Lease::len)
    }

    /// Tokens whose state is not computed.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.done()
    }

    /// Whether only the token drawn last is left to compute.
    pub(crate) fn is_decoding(&self) -> bool {
        self.started && self.pending() == 1 && self.lease.is_some()
    }

    /// The computed tokens, if it is time for others to see them: a prompt's after every step, generated ones a few at a
    /// time.
    pub(crate) fn to_publish(&self) -> Option<Vec<u32>> {
        let every = if self.started && self.resume() == Resume::Passing { PUBLISH_EVERY } else { 1 };
        let due = self.share && self.done() >= self.published + every;
        due.then(|| self.tokens.iter().take(self.done()).copied().collect())
    }

    /// Whether another request is likely to go on from the tokens computed so far.
    pub(crate) fn resume(&self) -> Resume {
        let done = self.done();
        if done == self.prompt_len { Resume::Keep } else { self.cuts.resume(done) }
    }

    /// Tokens to compute before the sequence ends, or reaches a point that others go on from.
    pub(crate) fn until_cut(&self) -> usize {
        self.cuts.next(self.done()).map_or(self.pending(), |cut| self.pending().min(cut - self.done()))
    }

    /// Tokens to be computed behind the chosen ones and taken back.
    pub(crate) fn rejected(&self) -> usize {
        match &self.capture {
            Some(capture) if self.in_step > 0 && self.is_decoding() => capture.rejected,
            _ => 0,
        }
    }

    /// Tokens that it is sure to reach, as far as one can be.
    pub(crate) fn sure_length(&self) -> usize {
        self.prompt_len + self.max_tokens.min(self.generated() + ANSWER_RESERVED)
    }

    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Whether its slot can take another token. If not, the slot is asked to say when it can.
    pub(crate) fn has_room(&self) -> bool {
        if self.events.capacity() >= 3 {
            return true;
        }
        self.blocked.store(true, Ordering::Release);
        // The slot may have emptied the channel between the two lines above.
        self.events.capacity() >= 3
    }

    /// Tells the slot; false if it has gone.
    pub(crate) fn tell(&self, event: TokenEvent) -> bool {
        self.events.try_send(event).is_ok()
    }

    /// Hands the first and every further token to the slot; false if it has gone.
    pub(crate) fn deliver(&mut self, sampled: Sampled) -> bool {
        self.tokens.push(sampled.token);
        self.tell(TokenEvent::Token(sampled))
    }

    /// Says, once, that the prompt is done.
    pub(crate) fn start(&mut self) -> bool {
        if self.started {
            return true;
        }
        self.started = true;
        self.decoding_since = Some(Instant::now());
        self.tell(TokenEvent::Started { cached_tokens: self.cached, miss: self.miss.clone() })
    }

    pub(crate) fn status(&self) -> SlotStatus {
        let state = match &self.lease {
            _ if self.events.capacity() < 3 => SlotState::Blocked,
            None => SlotState::Waiting,
            Some(_) if self.is_decoding() => SlotState::Decode,
            Some(_) => SlotState::Prefill,
        };
        SlotStatus {
            id: self.slot,
            state,
            request: Some(self.id),
            prompt_tokens: self.prompt_len,
            prompt_done: self.done().min(self.prompt_len),
            cached_tokens: self.cached,
            miss: self.miss.clone(),
            generated: self.generated(),
            waits_for: self.waits.map(|wait| wait.request),
            shares_with: self.shares_with,
            in_slot: self.began.elapsed(),
            decoding: self.decoding_since.map(|since| since.elapsed()),
        }
    }
}
