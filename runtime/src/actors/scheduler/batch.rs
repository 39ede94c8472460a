//! Batch forming: which sequences take part in the next step, and with how many rows. Pure, so that it can be tested
//! without a model.
//!
//! Decoding sequences come first, one row each, so that a long prompt never stops them. What is left of the row budget
//! goes to prompts in order of arrival. A prompt that arrives while others decode gets smaller chunks, which bounds the
//! time between two tokens of theirs.

/// What the plan is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most rows in a step.
    pub(crate) rows: usize,
    /// Most prompt rows in a step in which sequences decode.
    pub(crate) rows_beside_decode: usize,
}

/// Rows of the next step, as they are given out.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
    prompt_left: usize,
}

impl Budget {
    /// The budget of a step in which `decoding` sequences want their row.
    pub(crate) fn new(limits: Limits, decoding: usize) -> Self {
        let left = limits.rows;
        let prompt_left = match decoding {
            0 => left,
            n => limits.rows_beside_decode.min(left.saturating_sub(n)),
        };
        Budget { left, prompt_left }
    }

    /// A decoding sequence's row; false if the step is full.
    pub(crate) fn take_decode(&mut self) -> bool {
        let fits = self.left > 0;
        self.left = self.left.saturating_sub(1);
        fits
    }

    /// Rows for a prompt of which `pending` tokens are not computed, at most `chunk` unless that is 0.
    pub(crate) fn take_prompt(&mut self, pending: usize, chunk: usize) -> usize {
        let chunk = if chunk == 0 { pending } else { chunk };
        let rows = pending.min(chunk).min(self.prompt_left).min(self.left);
        self.left -= rows;
        self.prompt_left -= rows;
        rows
    }

    /// Whether no prompt row can be given out any more.
    pub(crate) fn prompt_spent(&self) -> bool {
        self.prompt_left == 0 || self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { rows: 512, rows_beside_decode: 128 };

    #[test]
    fn a_lone_prompt_gets_the_whole_step() {
        assert_eq!(Budget::new(LIMITS, 0).take_prompt(10_000, 0), 512);
    }

    #[test]
    fn a_prompt_beside_decoders_gets_a_small_chunk() {
        let mut budget = Budget::new(LIMITS, 3);
        assert!((0..3).all(|_| budget.take_decode()));
        assert_eq!(budget.take_prompt(10_000, 0), 128);
        assert!(budget.prompt_spent());
    }

    proptest! {
        #[test]
        fn no_step_is_overfull_and_decoders_are_never_displaced(
            rows in 1usize..600, beside in 1usize..600, decoders in 0usize..40,
            prompts in prop::collection::vec((1usize..2000, 0usize..100), 0..10),
        ) {
            let limits = Limits { rows, rows_beside_decode: beside };
            let mut budget = Budget::new(limits, decoders);
            let prompt: usize = prompts.iter().map(|&(p, c)| budget.take_prompt(p, c)).sum();
            let decoded = (0..decoders).filter(|_| budget.take_decode()).count();
            prop_assert!(prompt + decoded <= rows);
            prop_assert_eq!(decoded, decoders.min(rows));
        }
    }
}
