//! Rotary frequencies, computed once.
//!
//! They are rounded at each step as in the code of the models' authors, on whose angles the models were trained: far back
//! in a text the difference to exact ones decides which keys sparse attention picks.

use bantam_graph::RopeScaling;

/// What each pair of entries turns by.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Angle per position, pair by pair.
    pub frequencies: Vec<f32>,
    /// Factor on cosine and sine.
    pub magnitude: f32,
}

impl RopeTable {
    /// The table of a rope over `dims` entries; `factors` divide the frequencies, pair by pair.
    pub fn new(dims: usize, base: f32, scaling: Option<&RopeScaling>, factors: Option<&[f32]>) -> Self {
        // The power alone is taken in double precision: libraries differ in its last bit in single precision.
        let period = |pair: usize| {
            let exponent = (2 * pair) as f32 / dims as f32;
            f64::from(base).powf(f64::from(exponent)) as f32
        };
        let scaled = |pair: usize| match scaling {
            None => 1.0 / period(pair),
            Some(RopeScaling::Linear { factor }) => 1.0 / period(pair) / factor,
            Some(RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. }) => {
                let correction = |rotations: f32| yarn_pair(dims, f64::from(base), *original_context, rotations);
                let low = correction(*beta_fast).floor().max(0.0);
                let high = correction(*beta_slow).ceil().min(dims as f64 - 1.0);
                let ramp = ((pair as f32 - low as f32) / (high - low).max(0.001) as f32).clamp(0.0, 1.0);
                let kept = 1.0 - ramp;
                1.0 / (factor * period(pair)) * (1.0 - kept) + 1.0 / period(pair) * kept
            }
        };
        let divisor = |pair: usize| factors.and_then(|f| f.get(pair)).map_or(1.0, |f| *f);
        let magnitude = match scaling {
            Some(RopeScaling::Yarn { magnitude, .. }) => *magnitude,
            _ => 1.0,
        };
        RopeTable { frequencies: (0..dims / 2).map(|p| scaled(p) / divisor(p)).collect(), magnitude }
    }
}

/// The pair that turns `rotations` times over the original context, as a real number.
fn yarn_pair(dims: usize, base: f64, context: u32, rotations: f32) -> f64 {
    let ratio = f64::from(context) / (f64::from(rotations) * std::f64::consts::TAU);
    dims as f64 * ratio.ln() / (2.0 * base.ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_fall_from_one_and_scale() {
        let plain = RopeTable::new(8, 10_000.0, None, None);
        assert_eq!(plain.frequencies[0], 1.0);
        assert!((plain.frequencies[1] - 0.1).abs() < 1e-8);
        let halved =
            RopeTable::new(8, 10_000.0, Some(&RopeScaling::Linear { factor: 2.0 }), Some(&[1.0, 2.0, 1.0, 1.0]));
        assert_eq!(halved.frequencies[0], 0.5);
        assert!((halved.frequencies[1] - 0.025).abs() < 1e-8);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
        let scaling =
            RopeScaling::Yarn { factor: 4.0, original_context: 4096, beta_fast: 32.0, beta_slow: 1.0, magnitude: 1.25 };
        let plain = RopeTable::new(128, 10_000.0, None, None);
        let yarn = RopeTable::new(128, 10_000.0, Some(&scaling), None);
        assert_eq!(yarn.magnitude, 1.25);
        assert_eq!(yarn.frequencies[0], plain.frequencies[0]);
        assert!((yarn.frequencies[63] - plain.frequencies[63] / 4.0).abs() < 1e-10);
        // The bounds of the ramp, worked out by hand: pairs 20.9 → 20 and 45.03 → 46.
        assert_eq!(yarn.frequencies[20], plain.frequencies[20]);
        let ramp = 13.0 / 26.0;
        assert!((yarn.frequencies[33] / plain.frequencies[33] - (1.0 - ramp + ramp / 4.0)).abs() < 1e-6);
    }
}
