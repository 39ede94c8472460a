//! Penalties for repeating what was generated.

use std::collections::HashMap;

use super::params::SamplingParams;

/// The generated tokens, and how often each occurs among the last of them.
#[derive(Clone, Debug)]
pub(super) struct History {
    tokens: Vec<u32>,
    counts: HashMap<u32, u32>,
    window: usize,
}

impl History {
    pub(super) fn new(params: &SamplingParams) -> Self {
        let on = params.repetition_penalty != 1.0 || params.presence_penalty != 0.0 || params.frequency_penalty != 0.0;
        let window = if on { params.penalty_window } else { 0 };
        History { tokens: Vec::new(), counts: HashMap::new(), window }
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn push(&mut self, token: u32) {
        self.tokens.push(token);
        if self.window == 0 {
            return;
        }
        *self.counts.entry(token).or_default() += 1;
        let leaves = self.tokens.len().checked_sub(self.window + 1).and_then(|index| self.tokens.get(index));
        if let Some(left) = leaves
            && let Some(count) = self.counts.get_mut(left)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(left);
            }
        }
    }

    /// Forgets all but the first `len` tokens.
    pub(super) fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.counts.clear();
        for token in self.tokens.iter().rev().take(self.window) {
            *self.counts.entry(*token).or_default() += 1;
        }
    }

    pub(super) fn penalize(&self, params: &SamplingParams, logits: &mut [f32]) {
        for (&token, &count) in &self.counts {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            let scaled =
                if *logit > 0.0 { *logit / params.repetition_penalty } else { *logit * params.repetition_penalty };
            let penalized = scaled - count as f32 * params.frequency_penalty - params.presence_penalty;
            *logit = penalized.min(f32::MAX);
        }
    }
}
