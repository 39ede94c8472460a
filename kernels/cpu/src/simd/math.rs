//! Functions of vectors: exponential, hyperbolic tangent, the activation functions.

use bantam_graph::Act;

use super::Floats;

/// Above this the exponential overflows `f32`.
const EXP_MAX: f32 = 88.376;
/// Below this the exponential is less than the smallest normal `f32`; it is taken as zero.
const EXP_MIN: f32 = -87.336;

/// `e^x` within 2 units in the last place; 0 below [`EXP_MIN`], `e^88.376` above, NaN of NaN.
#[inline(always)]
pub(crate) fn exp<S: Floats>(s: S, x: S::F) -> S::F {
    // ln 2 in two parts, the first with so few digits that its product with an exponent is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Minimax fit of (e^r − 1 − r) / r² on |r| ≤ ln 2 / 2.
    const POLY: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

    let bounded = s.max(s.splat(EXP_MIN), s.min(s.splat(EXP_MAX), x));
    let n = s.round(s.mul(bounded, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-LN2_HIGH), bounded);
    let r = s.fma(n, s.splat(-LN2_LOW), r);
    let mut p = s.splat(POLY[0]);
    for c in &POLY[1..] {
        p = s.fma(p, r, s.splat(*c));
    }
    let p = s.add(s.fma(s.mul(p, r), r, r), s.splat(1.0));
    let y = s.mul(p, s.pow2(n));
    s.select_lt(x, s.splat(EXP_MIN), s.splat(0.0), y)
}

/// `tanh x` within 3 units in the last place.
#[inline(always)]
pub(crate) fn tanh<S: Floats>(s: S, x: S::F) -> S::F {
    // Minimax fit of (tanh x − x) / x³ in x² on |x| < 0.625: the other formula cancels there.
    const POLY: [f32; 5] = [-5.704_988_7e-3, 2.063_909_e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1];

    let zero = s.splat(0.0);
    let negated = s.sub(zero, x);
    let magnitude = s.select_lt(x, zero, negated, x);
    let e = exp(s, s.add(magnitude, magnitude));
    let one = s.splat(1.0);
    let far = s.sub(one, s.div(s.splat(2.0), s.add(e, one)));
    let square = s.mul(x, x);
    let mut p = s.splat(POLY[0]);
    for c in &POLY[1..] {
        p = s.fma(p, square, s.splat(*c));
    }
    let near = s.fma(s.mul(p, square), x, x);
    let far = s.select_lt(x, zero, s.sub(zero, far), far);
    s.select_lt(magnitude, s.splat(0.625), near, far)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Floats>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// `ln(1 + e^x)` within 4 units in the last place.
#[inline(always)]
pub(crate) fn softplus<S: Floats>(s: S, x: S::F) -> S::F {
    let zero = s.splat(0.0);
    let negative = s.select_lt(x, zero, x, s.sub(zero, x));
    // ln(1 + u) is 2 artanh(u / (2 + u)), whose series falls by a ninth from term to term.
    let u = exp(s, negative);
    let t = s.div(u, s.add(u, s.splat(2.0)));
    let square = s.mul(t, t);
    let mut p = s.splat(1.0 / 17.0);
    for n in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        p = s.fma(p, square, s.splat(1.0 / n));
    }
    let half = s.fma(s.mul(p, square), t, t);
    // The greater of `x` and 0; NaN stays.
    s.add(s.max(zero, x), s.add(half, half))
}

/// The activation functions.
#[inline(always)]
pub(crate) fn activate<S: Floats>(s: S, act: Act, x: S::F) -> S::F {
    match act {
        Act::Sigmoid => sigmoid(s, x),
        Act::ReluSquared => {
            let positive = s.max(s.splat(0.0), x);
            s.mul(positive, positive)
        }
        Act::Softplus => softplus(s, x),
        Act::SignedSqrt => {
            let zero = s.splat(0.0);
            let negated = s.sub(zero, x);
            let magnitude = s.select_lt(x, zero, negated, x);
            let root = s.sqrt(s.max(s.splat(1e-6), magnitude));
            // Neither branch takes zeros and NaN, which stay what they are.
            let positive = s.select_lt(zero, x, root, x);
            s.select_lt(x, zero, s.sub(zero, root), positive)
        }
        Act::Silu => s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), x)))),
        Act::GeluTanh => {
            // x/2 · (1 + tanh u) is x · sigmoid(2u), which does not cancel; the factor is −2√(2/π).
            let cube = s.mul(s.mul(x, x), x);
            let u = s.mul(s.fma(s.splat(0.044_715), cube, x), s.splat(-1.595_769));
            s.div(x, s.add(s.splat(1.0), exp(s, u)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        isa::Isa,
        simd::{Kernel, LANES, with_floats},
    };

    enum Function {
        Exp,
        Tanh,
        Act(Act),
    }

    struct Apply(Function, [f32; LANES]);

    impl Kernel for Apply {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<S: Floats>(self, s: S) -> [f32; LANES] {
            let x = s.load(&self.1);
            let y = match self.0 {
                Function::Exp => exp(s, x),
                Function::Tanh => tanh(s, x),
                Function::Act(act) => activate(s, act, x),
            };
            let mut out = [0.0; LANES];
            s.store(&mut out, y);
            out
        }
    }

    /// Largest relative error over `from..to`, where the truth is not tiny.
    fn error(function: impl Fn() -> Function, truth: impl Fn(f64) -> f64, from: f32, to: f32) -> f64 {
        let mut worst = 0.0f64;
        for isa in Isa::ALL {
            for i in 0..4000 {
                let x: [f32; LANES] = std::array::from_fn(|l| from + (to - from) * (i * LANES + l) as f32 / 64_000.0);
                for (x, y) in x.into_iter().zip(with_floats(isa, Apply(function(), x))) {
                    let t = truth(f64::from(x));
                    worst = worst.max((f64::from(y) - t).abs() / t.abs().max(1e-30));
                }
            }
        }
        worst
    }

    #[test]
    fn functions_are_accurate_on_every_path() {
        assert!(error(|| Function::Exp, f64::exp, -87.0, 88.0) < 2.4e-7);
        assert!(error(|| Function::Tanh, f64::tanh, -12.0, 12.0) < 4e-7);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!(error(|| Function::Act(Act::ReluSquared), |x| x.max(0.0).powi(2), -60.0, 60.0) < 1e-6);
        assert!(error(|| Function::Act(Act::Softplus), |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), -80.0, 60.0) < 5e-7);
        let root = |x: f64| if x == 0.0 { 0.0 } else { x.signum() * x.abs().max(1e-6).sqrt() };
        assert!(error(|| Function::Act(Act::SignedSqrt), root, -3.0, 3.0) < 2e-7);
        assert!(error(|| Function::Act(Act::Sigmoid), sigmoid, -60.0, 60.0) < 4e-7);
        assert!(error(|| Function::Act(Act::Silu), |x| x * sigmoid(x), -60.0, 60.0) < 4e-7);
        let gelu = |x: f64| x * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x));
        assert!(error(|| Function::Act(Act::GeluTanh), gelu, -4.0, 9.0) < 4e-6);
    }

    #[test]
    fn zeros_and_nan_stay() {
        for isa in Isa::ALL {
            let at = |act: Act, x: f32| with_floats(isa, Apply(Function::Act(act), [x; LANES]))[7];
            assert_eq!(at(Act::SignedSqrt, 0.0), 0.0);
            assert_eq!(at(Act::SignedSqrt, -1e-9), -1e-3);
            for act in [Act::SignedSqrt, Act::Softplus, Act::Sigmoid, Act::Silu, Act::GeluTanh] {
                assert!(at(act, f32::NAN).is_nan(), "{act:?}");
            }
            assert_eq!(at(Act::Softplus, 1e30), 1e30);
            assert_eq!(at(Act::Softplus, -200.0), 0.0);
        }
    }

    #[test]
    fn the_ends_of_the_range_are_exact() {
        for isa in Isa::ALL {
            let at = |x: f32| with_floats(isa, Apply(Function::Exp, [x; LANES]))[3];
            assert_eq!(at(f32::NEG_INFINITY), 0.0);
            assert_eq!(at(-200.0), 0.0);
            assert_eq!(at(0.0), 1.0);
            assert!(at(f32::INFINITY) > 2e38);
            assert!(at(f32::NAN).is_nan());
        }
    }
}
