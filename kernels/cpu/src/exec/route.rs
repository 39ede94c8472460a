//! Routing: from scores to the experts of a row and their weights.

use crate::{
    compile::ir::Choose,
    isa::Isa,
    simd::{Floats, Kernel, LANES, math, with_floats},
};

/// Chooses experts for rows of `experts` scores; `ids` and `weights` take `choose.used` per row, best first.
pub(crate) fn route(isa: Isa, scores: &[f32], experts: usize, choose: &Choose, ids: &mut [u32], weights: &mut [f32]) {
    let rows = scores.chunks_exact(experts).zip(ids.chunks_exact_mut(choose.used));
    for ((scores, ids), weights) in rows.zip(weights.chunks_exact_mut(choose.used)) {
        best(scores, ids);
        let greatest = scores[ids[0] as usize];
        let total = with_floats(isa, Exponentials { scores, greatest });
        for (weight, id) in weights.iter_mut().zip(&*ids) {
            *weight = with_floats(isa, Exponential(scores[*id as usize] - greatest)) / total;
        }
        let chosen: f32 = if choose.normalize { weights.iter().sum() } else { 1.0 };
        for weight in weights {
            *weight = *weight / chosen * choose.scale;
        }
    }
}

/// The experts of the greatest scores, in falling order; of equal ones the lower first. NaN counts as the least.
fn best(scores: &[f32], ids: &mut [u32]) {
    for place in 0..ids.len() {
        let (taken, rest) = ids.split_at_mut(place);
        let mut best: Option<usize> = None;
        for expert in (0..scores.len()).filter(|e| !taken.contains(&(*e as u32))) {
            let better =
                best.is_none_or(|b| scores[expert] > scores[b] || (scores[b].is_nan() && !scores[expert].is_nan()));
            if better {
                best = Some(expert);
            }
        }
        rest[0] = best.unwrap_or(0) as u32;
    }
}

/// `Σ e^(score − greatest)`.
struct Exponentials<'a> {
    scores: &'a [f32],
    greatest: f32,
}

impl Kernel for Exponentials<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> f32 {
        let (vectors, rest) = self.scores.as_chunks::<LANES>();
        let shift = s.splat(self.greatest);
        let mut sum = math::exp(s, s.sub(s.load_some(rest, f32::NEG_INFINITY), shift));
        for x in vectors {
            sum = s.add(sum, math::exp(s, s.sub(s.load(x), shift)));
        }
        s.sum(sum)
    }
}

/// `e^x`, as [`Exponentials`] computes it.
struct Exponential(f32);

impl Kernel for Exponential {
    type Output = f32;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> f32 {
        s.greatest(math::exp(s, s.splat(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(scores: &[f32], choose: Choose) -> (Vec<u32>, Vec<f32>) {
        let (mut ids, mut weights) = (vec![0; choose.used], vec![0.0; choose.used]);
        route(Isa::detect(), scores, scores.len(), &choose, &mut ids, &mut weights);
        (ids, weights)
    }

    #[test]
    fn ties_go_to_the_lower_expert_and_weights_are_a_softmax() {
        let choose = Choose { used: 3, normalize: false, scale: 1.0 };
        let (ids, weights) = routed(&[1.0, 3.0, 0.0, 3.0, 1.0], choose);
        assert_eq!(ids, [1, 3, 0]);
        let total: f32 = [1.0f32, 3.0, 0.0, 3.0, 1.0].iter().map(|s| s.exp()).sum();
        assert!((weights[0] - 3f32.exp() / total).abs() < 1e-6 && weights[0] == weights[1]);
        let (_, weights) = routed(&[1.0, 3.0, 0.0, 3.0, 1.0], Choose { normalize: true, scale: 2.0, ..choose });
        assert!((weights.iter().sum::<f32>() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn scores_without_order_still_give_distinct_experts() {
        let (mut ids, _) =
            routed(&[f32::NAN, f32::NAN, f32::NAN, 1.0], Choose { used: 4, normalize: false, scale: 1.0 });
        assert_eq!(ids[0], 3);
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3]);
    }
}
