//! Where a prompt's steps are cut, so that later requests can go on from there. Pure.
//!
//! A model whose state cannot be resumed at any token (windows, recurrent values) is resumed only where a step ended and
//! its state was kept. Later requests go on from the end of a message, from where two conversations part, or, when a
//! conversation was edited, from anywhere: for these there is a point at every interval.

use crate::cache::Resume;

/// Tokens between two messages whose ends are both points.
const BETWEEN_MESSAGES: usize = 512;

/// Tokens that make a point worth the step it costs: between the first point (what conversations share) and the start,
/// and between the last message's end (what the next turn goes on from if the template rewrites this one) and the point
/// before.
const WORTH_A_STEP: usize = 64;

/// Points of a prompt; `ends` are the tokens that end messages, `interval` the most tokens between two points.
pub(super) fn checkpoints(prompt: &[u32], ends: &[u32], interval: usize) -> Cuts {
    let messages = (1..prompt.len()).filter(|&at| ends.contains(&prompt[at - 1]));
    let last = messages.clone().next_back();
    let mut points: Vec<Point> = Vec::new();
    for end in messages.chain([prompt.len()]) {
        let from = points.last().map_or(0, |point| point.at);
        points.extend((from + interval..end).step_by(interval).map(|at| Point { at, lasts: false }));
        let from = points.iter().rev().find(|point| point.lasts).map_or(0, |point| point.at);
        let apart = if from == 0 || Some(end) == last { WORTH_A_STEP } else { BETWEEN_MESSAGES };
        if end < prompt.len() && end >= from + apart {
            points.push(Point { at: end, lasts: true });
        }
    }
    Cuts(points)
}

/// Where a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    at: usize,
    /// Whether others are likely to go on from there. If not, its state is kept only while nothing else needs its memory.
    lasts: bool,
}

/// Points at which a sequence's steps end, rising.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(Vec<Point>);

impl Cuts {
    /// Adds a point that others are likely to go on from.
    pub(super) fn add(&mut self, at: usize) {
        match self.0.binary_search_by_key(&at, |point| point.at) {
            Ok(index) => self.0[index].lasts = true,
            Err(index) => self.0.insert(index, Point { at, lasts: true }),
        }
    }

    /// Whether others go on from a token, if it is a point.
    pub(super) fn resume(&self, at: usize) -> Resume {
        match self.0.binary_search_by_key(&at, |point| point.at) {
            Ok(index) if self.0[index].lasts => Resume::Keep,
            Ok(_) => Resume::Interim,
            Err(_) => Resume::Passing,
        }
    }

    /// The first point behind `done`.
    pub(super) fn next(&self, done: usize) -> Option<usize> {
        self.0.get(self.0.partition_point(|point| point.at <= done)).map(|point| point.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 9;
    /// Longer than any prompt here.
    const NEVER: usize = 1 << 20;

    fn conversation(messages: &[usize]) -> Vec<u32> {
        messages.iter().flat_map(|&len| std::iter::repeat_n(1, len - 1).chain([END])).collect()
    }

    fn points(cuts: &Cuts) -> Vec<usize> {
        cuts.0.iter().map(|point| point.at).collect()
    }

    #[test]
    fn the_first_and_the_last_message_and_those_far_apart_are_points() {
        let mut prompt = conversation(&[10, 60, 100, 600, 30, 40]);
        prompt.extend([1, 1, 1]);
        assert_eq!(points(&checkpoints(&prompt, &[END], NEVER)), [70, 770, 840]);
        prompt.extend(conversation(&[50]));
        prompt.push(1);
        assert_eq!(points(&checkpoints(&prompt, &[END], NEVER)), [70, 770, 893]);
    }

    #[test]
    fn short_conversations_are_not_cut() {
        let mut prompt = conversation(&[20, 20, 20]);
        prompt.extend([1, 1, 1]);
        assert_eq!(points(&checkpoints(&prompt, &[END], 256)), [0; 0]);
    }

    #[test]
    fn a_long_message_has_points_inside_and_the_prompts_end_is_none() {
        assert_eq!(points(&checkpoints(&[1; 5000], &[END], 2048)), [2048, 4096]);
        assert_eq!(points(&checkpoints(&conversation(&[2048]), &[END], 2048)), [0; 0]);
        assert_eq!(points(&checkpoints(&[], &[END], 1)), [0; 0]);
        let mut prompt = conversation(&[600]);
        prompt.extend([1; 300]);
        let cuts = checkpoints(&prompt, &[END], 256);
        assert_eq!(points(&cuts), [256, 512, 600, 856]);
        let resumes = [256, 600, 856, 601].map(|at| cuts.resume(at));
        assert_eq!(resumes, [Resume::Interim, Resume::Keep, Resume::Interim, Resume::Passing]);
    }

    #[test]
    fn cuts_are_in_order_however_they_come() {
        let mut cuts = checkpoints(&[1; 31], &[END], 10);
        [25, 20, 5].into_iter().for_each(|at| cuts.add(at));
        assert_eq!(points(&cuts), [5, 10, 20, 25, 30]);
        assert_eq!((cuts.next(0), cuts.next(10), cuts.next(30)), (Some(5), Some(20), None));
        assert_eq!((cuts.resume(20), cuts.resume(10)), (Resume::Keep, Resume::Interim));
    }
}
