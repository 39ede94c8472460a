//! Batch forming: how the rows of a step are shared out among prompts. Pure, so that it can be tested without a model.
//!
//! Decoding sequences come first, one row each, so that a long prompt never stops them; how many rows are then left for
//! prompts is the pace's to say (`pace`). Of these the prompt that came first gets at least half. The other half goes to
//! those that will soon be done: a short question does not wait for a book that was pasted before it, and no number of short
//! questions stops the book.

/// A prompt that may take part in the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// Rows it could take.
    pub(crate) wants: usize,
    /// Tokens of it that are not computed, at least `wants`.
    pub(crate) pending: usize,
}

/// Rows of each prompt, which are in order of arrival, at most `rows` together.
pub(crate) fn share_out(prompts: &[Prompt], rows: usize) -> Vec<usize> {
    let mut given = vec![0; prompts.len()];
    let mut left = rows;
    let mut give = |index: usize, most: usize, given: &mut [usize]| {
        let more = (prompts[index].wants - given[index]).min(most).min(left);
        given[index] += more;
        left -= more;
    };
    if prompts.is_empty() {
        return given;
    }
    give(0, rows.div_ceil(2), &mut given);
    let mut soonest: Vec<usize> = (0..prompts.len()).collect();
    soonest.sort_by_key(|&index| prompts[index].pending);
    for index in soonest {
        give(index, rows, &mut given);
    }
    given
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prompt(pending: usize) -> Prompt {
        Prompt { wants: pending, pending }
    }

    #[test]
    fn prompts_of_equal_length_are_computed_one_after_the_other() {
        assert_eq!(share_out(&[prompt(900), prompt(900), prompt(900)], 512), [512, 0, 0]);
        assert_eq!(share_out(&[prompt(388), prompt(900), prompt(900)], 512), [388, 124, 0]);
    }

    #[test]
    fn a_short_prompt_passes_a_long_one() {
        assert_eq!(share_out(&[prompt(60_000), prompt(20_000), prompt(100)], 512), [256, 156, 100]);
        assert_eq!(share_out(&[prompt(60_000)], 512), [512]);
        assert_eq!(share_out(&[], 512), [0; 0]);
    }

    proptest! {
        #[test]
        fn nothing_is_left_and_the_first_gets_half(
            prompts in prop::collection::vec((1usize..3000, 0usize..2000), 1..10), rows in 1usize..600,
        ) {
            let prompts: Vec<_> =
                prompts.into_iter().map(|(wants, more)| Prompt { wants, pending: wants + more }).collect();
            let given = share_out(&prompts, rows);
            let wanted: usize = prompts.iter().map(|p| p.wants).sum();
            prop_assert_eq!(given.iter().sum::<usize>(), rows.min(wanted));
            prop_assert!(given.iter().zip(&prompts).all(|(given, p)| *given <= p.wants));
            prop_assert!(given[0] >= prompts[0].wants.min(rows.div_ceil(2)));
        }
    }
}
