//! Where a prompt's steps are cut, so that later requests can go on from there. Pure.
//!
//! A model whose state cannot be resumed at any token (windows, recurrent values) is resumed only where a step ended and
//! its state was kept. Later requests go on from the end of a message, from where two conversations part, or, when a
//! conversation was edited, from anywhere: for these there is a point at every interval.

/// Tokens between two points within a long message.
const INTERVAL: usize = 2048;

/// Tokens between two messages whose ends are both points.
const BETWEEN_MESSAGES: usize = 512;

/// Tokens that make a point worth the step it costs: between the first point (what conversations share) and the start,
/// and between the last message's end (what the next turn goes on from if the template rewrites this one) and the point
/// before.
const WORTH_A_STEP: usize = 64;

/// Points of a prompt, rising; `ends` are the tokens that end messages.
pub(super) fn checkpoints(prompt: &[u32], ends: &[u32]) -> Vec<usize> {
    let messages = (1..prompt.len()).filter(|&at| ends.contains(&prompt[at - 1]));
    let last = messages.clone().next_back();
    let mut points: Vec<usize> = Vec::new();
    for end in messages.chain([prompt.len()]) {
        let from = points.last().copied().unwrap_or(0);
        points.extend((from + INTERVAL..end).step_by(INTERVAL));
        let from = points.last().copied().unwrap_or(0);
        let apart = if from == 0 || Some(end) == last { WORTH_A_STEP } else { BETWEEN_MESSAGES };
        if end < prompt.len() && end >= from + apart {
            points.push(end);
        }
    }
    points
}

/// Points at which a sequence's steps end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(Vec<usize>);

impl Cuts {
    pub(super) fn new(points: Vec<usize>) -> Self {
        Cuts(points)
    }

    pub(super) fn add(&mut self, point: usize) {
        if let Err(index) = self.0.binary_search(&point) {
            self.0.insert(index, point);
        }
    }

    pub(super) fn contains(&self, point: usize) -> bool {
        self.0.binary_search(&point).is_ok()
    }

    /// The first point behind `done`.
    pub(super) fn next(&self, done: usize) -> Option<usize> {
        self.0.get(self.0.partition_point(|&point| point <= done)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 9;

    fn conversation(messages: &[usize]) -> Vec<u32> {
        messages.iter().flat_map(|&len| std::iter::repeat_n(1, len - 1).chain([END])).collect()
    }

    #[test]
    fn the_first_and_the_last_message_and_those_far_apart_are_points() {
        let mut prompt = conversation(&[10, 60, 100, 600, 30, 40]);
        prompt.extend([1, 1, 1]);
        assert_eq!(checkpoints(&prompt, &[END]), [70, 770, 840]);
        prompt.extend(conversation(&[50]));
        prompt.push(1);
        assert_eq!(checkpoints(&prompt, &[END]), [70, 770, 893]);
    }

    #[test]
    fn short_conversations_are_not_cut() {
        let mut prompt = conversation(&[20, 20, 20]);
        prompt.extend([1, 1, 1]);
        assert_eq!(checkpoints(&prompt, &[END]), [0; 0]);
    }

    #[test]
    fn a_long_message_has_points_inside_and_the_prompts_end_is_none() {
        assert_eq!(checkpoints(&[1; 5000], &[END]), [2048, 4096]);
        assert_eq!(checkpoints(&conversation(&[2048]), &[END]), [0; 0]);
        assert_eq!(checkpoints(&[], &[END]), [0; 0]);
    }

    #[test]
    fn cuts_are_in_order_however_they_come() {
        let mut cuts = Cuts::new(vec![10, 30]);
        [20, 10, 5].into_iter().for_each(|point| cuts.add(point));
        assert_eq!(cuts.0, [5, 10, 20, 30]);
        assert_eq!((cuts.next(0), cuts.next(10), cuts.next(30)), (Some(5), Some(20), None));
        assert!(cuts.contains(20) && !cuts.contains(21));
    }
}
