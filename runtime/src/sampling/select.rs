//! Finding the best of many logits without sorting all. Logits here are never NaN nor plus infinity.

use std::cmp::Ordering;

/// A token that may be sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) logit: f32,
    pub(super) token: u32,
}

impl Candidate {
    /// The likelier first, the lower id of equals.
    fn rank(&self, other: &Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.token.cmp(&other.token))
    }
}

/// The greatest logit; minus infinity of none.
pub(super) fn greatest(logits: &[f32]) -> f32 {
    // Lanes, so that the compiler may use vectors.
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (blocks, rest) = logits.as_chunks::<16>();
    for block in blocks {
        for (lane, &logit) in lanes.iter_mut().zip(block) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// The lowest id of the most likely tokens, if any is possible.
pub(super) fn most_likely(logits: &[f32]) -> Option<u32> {
    let best = greatest(logits);
    let found = logits.iter().position(|&logit| logit == best && logit > f32::NEG_INFINITY)?;
    u32::try_from(found).ok()
}

/// `e^x` of a number that is not above 0. Made of additions and multiplications alone, so that compilers can vectorize
/// it and every machine samples the same tokens. Off by at most a few units in the last place; 0 where a normal number
/// ends.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    // Adding this rounds to a whole number, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let bounded = if x < -87.0 { -87.0 } else { x };
    let shifted = bounded * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let rest = (bounded - power * LN_2_HIGH) - power * LN_2_LOW;
    let mut series = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = series * rest + coefficient;
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    let value = series * f32::from_bits(exponent << 23);
    if x < -87.0 { 0.0 } else { value }
}

/// Sum of `exp(logit - best)` over all.
pub(super) fn mass(logits: &[f32], best: f32) -> f64 {
    let sum_of_block = |block: &[f32]| {
        let mut lanes = [0.0_f32; 16];
        let (rows, rest) = block.as_chunks::<16>();
        for row in rows {
            for (lane, &logit) in lanes.iter_mut().zip(row) {
                *lane += exp(logit - best);
            }
        }
        let rest: f32 = rest.iter().map(|&logit| exp(logit - best)).sum();
        f64::from(lanes.iter().sum::<f32>() + rest)
    };
    logits.chunks(1024).map(sum_of_block).sum()
}

/// A logit that the most likely tokens with the mass `enough` together all reach, and few others.
pub(super) fn least_of_mass(logits: &[f32], best: f32, enough: f64) -> f32 {
    const STEPS: f32 = 16.0;
    let mut buckets = [0.0_f64; 512];
    for &logit in logits {
        let bucket = ((best - logit) * STEPS) as usize;
        if let Some(mass) = buckets.get_mut(bucket) {
            *mass += f64::from(exp(logit - best));
        }
    }
    let mut reached = 0.0;
    let last = buckets.iter().position(|mass| {
        reached += mass;
        reached >= enough
    });
    // One bucket more, for rounding.
    last.map_or(f32::NEG_INFINITY, |last| best - (last + 2) as f32 / STEPS)
}

/// All tokens of at least `least`, by id.
pub(super) fn all_from(logits: &[f32], least: f32, found: &mut Vec<Candidate>) {
    found.clear();
    let possible = (0..).zip(logits).filter(|(_, logit)| **logit >= least && **logit > f32::NEG_INFINITY);
    found.extend(possible.map(|(token, &logit)| Candidate { logit, token }));
}

/// Likeliest first.
pub(super) fn sort(found: &mut [Candidate]) {
    found.sort_unstable_by(Candidate::rank);
}

/// The `count` most likely of the possible tokens, likeliest first.
pub(super) fn top(logits: &[f32], count: usize, found: &mut Vec<Candidate>) {
    found.clear();
    if count == 0 {
        return;
    }
    let most = count.saturating_mul(2).max(256).min(logits.len());
    let mut threshold = f32::NEG_INFINITY;
    for (block, first) in logits.chunks(32).zip((0_u32..).step_by(32)) {
        // One test without branches for the block: nearly all blocks hold nothing.
        if !block.iter().fold(false, |any, &logit| any | (logit > threshold)) {
            continue;
        }
        for (token, &logit) in (first..).zip(block) {
            // An equal one has a higher id than those found before, and so a lower rank.
            if logit > threshold {
                if found.len() >= most && found.len() > count {
                    threshold = keep_best(found, count);
                }
                if logit > threshold {
                    found.push(Candidate { logit, token });
                }
            }
        }
    }
    if found.len() > count {
        keep_best(found, count);
    }
    sort(found);
}

/// Drops all but the best `count` of more, and returns the logit of the worst of them.
fn keep_best(found: &mut Vec<Candidate>, count: usize) -> f32 {
    let (_, worst, _) = found.select_nth_unstable_by(count - 1, Candidate::rank);
    let threshold = worst.logit;
    found.truncate(count);
    threshold
}
