//! Prefixes that are computed while there is nothing else to do, for requests that are likely to come.
//!
//! One is computed at a time, by a sequence without a slot that draws nothing. It is taken out as soon as a request has come,
//! at the latest after a step, and goes on later from what it has left in the cache.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use ractor::ActorProcessingErr;
use tokio::sync::mpsc;

use super::{
    SchedulerState,
    cuts::{self, Cuts},
    sequence::Sequence,
};
use crate::{
    actors::{job::TokenEvent, slot::TOKEN_CHANNEL},
    engine::CancelFlag,
};

/// Prefixes that may wait; the oldest are given up.
const WAITING: usize = 16;

/// Tokens that are worth a step in advance.
const WORTH_PREPARING: usize = 64;

/// A prefix to be computed.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// At least one token.
    pub(crate) prefix: Vec<u32>,
    /// A token that may follow it.
    pub(crate) next: u32,
}

/// What waits for a quiet moment.
#[derive(Debug, Default)]
pub(super) struct Background {
    /// The newest last.
    waiting: VecDeque<Preparation>,
    begun: u64,
}

impl Background {
    /// Takes a prefix in, in place of those of the same conversation that it goes on from.
    pub(super) fn add(&mut self, preparation: Preparation) {
        self.waiting.retain(|earlier| !preparation.prefix.starts_with(&earlier.prefix));
        self.waiting.push_back(preparation);
        if self.waiting.len() > WAITING {
            self.waiting.pop_front();
        }
    }
}

impl SchedulerState {
    /// Begins with the newest prefix if nothing else is to be done, ends what is complete, and gives way to requests.
    pub(super) fn turn_to_background(&mut self) -> Result<(), ActorProcessingErr> {
        let requests = !self.queue.is_empty() || self.running.iter().any(|sequence| !sequence.is_background);
        if let Some(index) = self.running.iter().position(|sequence| sequence.is_background) {
            let sequence = &self.running[index];
            let complete = sequence.done() >= sequence.prompt_len;
            if !complete && !requests {
                return Ok(());
            }
            let mut prefix = sequence.tokens.clone();
            self.retire(index)?;
            if let Some(next) = prefix.pop().filter(|_| !complete) {
                self.background.add(Preparation { prefix, next });
            }
        }
        if let Some(preparation) = (!requests).then(|| self.background.waiting.pop_back()).flatten() {
            let sequence = self.background_sequence(preparation);
            self.running.push(sequence);
        }
        Ok(())
    }

    fn background_sequence(&mut self, Preparation { prefix, next }: Preparation) -> Sequence {
        let mut cuts = match self.arguments.resumes_anywhere {
            true => Cuts::default(),
            false => cuts::checkpoints(&prefix, &self.arguments.end_tokens, self.arguments.checkpoint_interval),
        };
        let prompt_len = prefix.len();
        // Steps end here, so that the token behind is never computed and nothing is drawn.
        cuts.add(prompt_len);
        let mut tokens = prefix;
        tokens.push(next);
        self.background.begun += 1;
        Sequence {
            id: u64::MAX - self.background.begun,
            slot: usize::MAX,
            is_background: true,
            prompt_len,
            tokens,
            cached: 0,
            miss: None,
            lease: None,
            cuts,
            waits: None,
            shares_with: None,
            grown_to: 0,
            published: 0,
            sampler: None,
            in_step: 0,
            max_tokens: 1,
            ignore_eos: false,
            share: true,
            chunk: 0,
            priority: i32::MAX,
            deadline: None,
            suspect: false,
            capture: None,
            cancel: CancelFlag::default(),
            // Nobody is told anything.
            events: mpsc::channel::<TokenEvent>(TOKEN_CHANNEL).0,
            blocked: Arc::new(AtomicBool::new(false)),
            started: false,
            began: Instant::now(),
            decoding_since: None,
        }
    }
}

impl Sequence {
    /// Ends a sequence in the background of whose prefix all but a few tokens have been found.
    pub(super) fn end_if_not_worth(&self) {
        if self.is_background && self.prompt_len < self.done() + WORTH_PREPARING {
            self.cancel.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_conversation_waits_and_the_oldest_of_many_do_not() {
        let mut background = Background::default();
        background.add(Preparation { prefix: vec![1, 2], next: 0 });
        background.add(Preparation { prefix: vec![2], next: 0 });
        background.add(Preparation { prefix: vec![1, 2, 3], next: 0 });
        let waiting: Vec<_> = background.waiting.iter().map(|waiting| waiting.prefix.as_slice()).collect();
        assert_eq!(waiting, [[2].as_slice(), &[1, 2, 3]]);
        (10..30).for_each(|token| background.add(Preparation { prefix: vec![token], next: 0 }));
        assert_eq!(background.waiting.len(), WAITING);
        assert_eq!(background.waiting.back().map(|waiting| waiting.prefix[0]), Some(29));
    }
}
