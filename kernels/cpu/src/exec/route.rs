//! Routing: from router outputs to the experts of a row and their weights.
//!
//! Choices compare keys: integers in the order of the numbers, from which 0 is kept for what may not be chosen.

use bantam_graph::{ExpertGroups, Scoring};

use super::{elementwise::Map, sums::Sum, turn::Turn};
use crate::{
    compile::ir::{Choose, ValueId},
    isa::Isa,
    simd::with_floats,
};

/// Keys that the choice of a row takes.
pub(crate) fn keys(experts: usize, choose: &Choose) -> usize {
    experts + choose.groups.map_or(0, |groups| groups.count)
}

/// What is added to a sum of weights that something is divided by.
const LEAST_SUM: f32 = 1e-20;

/// Chooses experts for this member's share of the rows, or takes the choice `given`.
pub(super) fn route(turn: &Turn<'_>, outputs: ValueId, given: Option<ValueId>, choose: &Choose) {
    let (rows, experts, used) = (turn.share(turn.rows(), 1), turn.frame.width(outputs), choose.used);
    let bias = choose.bias.map(|b| turn.frame.weights.vectors[b].as_slice());
    let outputs = &turn.read::<f32>(outputs)[rows.start * experts..rows.end * experts];
    let given = given.map(|ids| &turn.read::<u32>(ids)[rows.start * used..rows.end * used]);
    let keys_per_row = keys(experts, choose);
    let [weights, scores] = [1, 2].map(|number| turn.own_rows::<f32>(number, rows.clone()));
    let [ids, keys] = [0, 3].map(|number| turn.own_rows::<u32>(number, rows.clone()));
    for (i, outputs) in outputs.chunks_exact(experts).enumerate() {
        let scores = &mut scores[i * experts..][..experts];
        score(turn.frame.isa, choose.scoring, outputs, scores);
        let ids = &mut ids[i * used..][..used];
        let weights = &mut weights[i * used..][..used];
        match given {
            Some(given) => ids.copy_from_slice(&given[i * used..][..used]),
            None if pick(choose, scores, bias, &mut keys[i * keys_per_row..][..keys_per_row], ids) => {}
            None => {
                // A choice among what has no order must not end as an answer that looks like any other.
                weights.fill(f32::NAN);
                continue;
            }
        }
        weigh(choose, scores, ids, weights);
    }
}

/// Scores of all experts of a row.
fn score(isa: Isa, scoring: Scoring, outputs: &[f32], scores: &mut [f32]) {
    let greatest = match scoring {
        Scoring::Softmax => outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        Scoring::Sigmoid | Scoring::SqrtSoftplus => 0.0,
    };
    Map::Score(outputs, scoring, greatest).apply(isa, scores);
    if scoring == Scoring::Softmax {
        let total = with_floats(isa, Sum(scores));
        scores.iter_mut().for_each(|score| *score /= total);
    }
}

/// Finds the experts of the highest scores with their biases, best first; says whether all of these are numbers.
fn pick(choose: &Choose, scores: &[f32], bias: Option<&[f32]>, keys: &mut [u32], ids: &mut [u32]) -> bool {
    let (keys, groups) = keys.split_at_mut(scores.len());
    match bias {
        Some(bias) => keys.iter_mut().zip(scores).zip(bias).for_each(|((key, s), b)| *key = key_of(s + b)),
        None => keys.iter_mut().zip(scores).for_each(|(key, s)| *key = key_of(*s)),
    }
    let are_numbers = !keys.contains(&KEY_OF_NAN);
    if let Some(of) = choose.groups {
        leave_out_groups(of, keys, groups);
    }
    ids.iter_mut().for_each(|id| *id = take_best(keys) as u32);
    are_numbers
}

/// Leaves out the experts of all groups but the best: those whose two best keys stand for the greatest sum.
fn leave_out_groups(of: ExpertGroups, keys: &mut [u32], groups: &mut [u32]) {
    let members = keys.len() / of.count;
    for (group, keys) in groups.iter_mut().zip(keys.chunks_exact(members)) {
        let (mut best, mut second) = (0, 0);
        for key in keys {
            (best, second) = if *key > best { (*key, best) } else { (best, second.max(*key)) };
        }
        *group = key_of(number_of(best) + if members > 1 { number_of(second) } else { 0.0 });
    }
    for _ in 0..of.used {
        take_best(groups);
    }
    for (group, keys) in groups.iter().zip(keys.chunks_exact_mut(members)) {
        // Groups that were taken have no key any more.
        if *group != 0 {
            keys.fill(0);
        }
    }
}

/// The place of the greatest key, of equal ones the first, which is taken.
fn take_best(keys: &mut [u32]) -> usize {
    let greatest = keys.iter().copied().fold(0, u32::max);
    let place = keys.iter().position(|key| *key == greatest).unwrap_or(0);
    if let Some(key) = keys.get_mut(place) {
        *key = 0;
    }
    place
}

/// Weights of the chosen experts of a row.
fn weigh(choose: &Choose, scores: &[f32], ids: &[u32], weights: &mut [f32]) {
    for (weight, id) in weights.iter_mut().zip(ids) {
        *weight = scores[*id as usize];
    }
    let sum = if choose.normalize { weights.iter().sum::<f32>() + LEAST_SUM } else { 1.0 };
    for weight in weights {
        *weight = *weight / sum * choose.scale;
    }
}

/// The least key that may be chosen.
const KEY_OF_NAN: u32 = 1;

/// An integer that is the greater the greater the number, equal for equal ones, and never 0. NaN counts as the least.
fn key_of(x: f32) -> u32 {
    if x.is_nan() {
        return KEY_OF_NAN;
    }
    // −0 becomes 0. The order of negative numbers is that of their bits turned over.
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

/// The number of a key.
fn number_of(key: u32) -> f32 {
    match key {
        0 | KEY_OF_NAN => f32::NAN,
        key if key >> 31 == 1 => f32::from_bits(key ^ 1 << 31),
        key => f32::from_bits(!key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Choose =
        Choose { used: 3, scoring: Scoring::Softmax, bias: None, groups: None, normalize: false, scale: 1.0 };

    fn routed(outputs: &[f32], choose: Choose, bias: Option<&[f32]>) -> (Vec<u32>, Vec<f32>) {
        let (mut ids, mut weights) = (vec![0; choose.used], vec![0.0; choose.used]);
        let (mut scores, mut keys) = (vec![0.0; outputs.len()], vec![0; keys(outputs.len(), &choose)]);
        score(Isa::detect(), choose.scoring, outputs, &mut scores);
        let _ = pick(&choose, &scores, bias, &mut keys, &mut ids);
        weigh(&choose, &scores, &ids, &mut weights);
        (ids, weights)
    }

    #[test]
    fn ties_go_to_the_lower_expert_and_weights_are_a_softmax() {
        let (ids, weights) = routed(&[1.0, 3.0, 0.0, 3.0, 1.0], PLAIN, None);
        assert_eq!(ids, [1, 3, 0]);
        let total: f32 = [1.0f32, 3.0, 0.0, 3.0, 1.0].iter().map(|s| s.exp()).sum();
        assert!((weights[0] - 3f32.exp() / total).abs() < 1e-6 && weights[0] == weights[1]);
        let (_, weights) = routed(&[1.0, 3.0, 0.0, 3.0, 1.0], Choose { normalize: true, scale: 2.0, ..PLAIN }, None);
        assert!((weights.iter().sum::<f32>() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn the_bias_counts_in_the_choice_alone() {
        let choose = Choose { used: 2, scoring: Scoring::Sigmoid, ..PLAIN };
        let (ids, weights) = routed(&[0.0, 2.0, 1.0, -1.0], choose, Some(&[0.0, -5.0, 0.0, 5.0]));
        assert_eq!(ids, [3, 2]);
        assert!((weights[0] - 0.268_941_4).abs() < 1e-6 && (weights[1] - 0.731_058_6).abs() < 1e-6);
    }

    #[test]
    fn groups_are_judged_by_their_two_best() {
        // The best expert stands in a group whose second is poor; the two middle groups are equally good.
        let scores = [9.0, -9.0, 4.0, 4.0, 3.0, 5.0, 1.0, 1.0];
        let bias = [0.0; 8];
        let groups = Some(ExpertGroups { count: 4, used: 1 });
        let choose = Choose { used: 2, groups, ..PLAIN };
        let pick_from = |choose: Choose| {
            let (mut ids, mut keys) = (vec![0; choose.used], vec![0; keys(8, &choose)]);
            assert!(pick(&choose, &scores, Some(&bias), &mut keys, &mut ids));
            ids
        };
        assert_eq!(pick_from(choose), [2, 3]);
        let groups = Some(ExpertGroups { count: 4, used: 2 });
        assert_eq!(pick_from(Choose { used: 3, groups, ..choose }), [5, 2, 3]);
        let single = Some(ExpertGroups { count: 8, used: 3 });
        assert_eq!(pick_from(Choose { used: 3, groups: single, ..choose }), [0, 5, 2]);
    }

    #[test]
    fn keys_keep_the_order_of_numbers() {
        let numbers = [f32::NEG_INFINITY, -2.5, -1e-40, 0.0, 1e-40, 0.5, f32::MAX, f32::INFINITY];
        assert!(numbers.windows(2).all(|w| key_of(w[0]) < key_of(w[1])));
        assert!(numbers.iter().all(|x| number_of(key_of(*x)) == *x));
        assert_eq!(key_of(-0.0), key_of(0.0));
        assert!(0 < key_of(f32::NAN) && key_of(f32::NAN) < key_of(f32::NEG_INFINITY));
    }

    #[test]
    fn scores_without_order_still_give_distinct_experts() {
        let outputs = [f32::NAN, 1.0, f32::NAN, f32::NAN];
        let (ids, _) = routed(&outputs, Choose { used: 4, scoring: Scoring::Sigmoid, ..PLAIN }, None);
        assert_eq!(ids, [1, 0, 2, 3]);
    }
}
