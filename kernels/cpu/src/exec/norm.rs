//! Root-mean-square normalisation.

use super::frame::Frame;
use crate::{
    compile::ir::RmsNorm,
    isa::Isa,
    simd::{Floats, Kernel, LANES, with_floats},
};

/// Normalises runs of `norm.group` entries.
pub(crate) fn norm(frame: &Frame<'_>, norm: &RmsNorm, x: &[f32], out: &mut [f32]) {
    let weight = norm.weight.map(|w| frame.weights.vectors[w].as_slice());
    for (x, out) in x.chunks_exact(norm.group).zip(out.chunks_exact_mut(norm.group)) {
        let factor = inverse_rms(frame.isa, x, norm.eps);
        apply(x, factor, weight, out);
    }
}

/// `1 / sqrt(mean(x²) + eps)`.
pub(crate) fn inverse_rms(isa: Isa, x: &[f32], eps: f32) -> f32 {
    let mean = with_floats(isa, SumOfSquares(x)) / x.len() as f32;
    1.0 / (mean + eps).sqrt()
}

/// `x · factor ⊙ weight`.
pub(crate) fn apply(x: &[f32], factor: f32, weight: Option<&[f32]>, out: &mut [f32]) {
    match weight {
        Some(weight) => {
            for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
                *out = x * factor * w;
            }
        }
        None => super::elementwise::scale(x, factor, out),
    }
}

struct SumOfSquares<'a>(&'a [f32]);

impl Kernel for SumOfSquares<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> f32 {
        let (vectors, rest) = self.0.as_chunks::<LANES>();
        let (fours, ones) = vectors.as_chunks::<4>();
        let mut sums = [s.splat(0.0); 4];
        for four in fours {
            for (sum, x) in sums.iter_mut().zip(four) {
                let x = s.load(x);
                *sum = s.fma(x, x, *sum);
            }
        }
        for (sum, x) in sums.iter_mut().zip(ones) {
            let x = s.load(x);
            *sum = s.fma(x, x, *sum);
        }
        let x = s.load_some(rest, 0.0);
        let [a, b, c, d] = sums;
        s.sum(s.add(s.add(a, b), s.fma(x, x, s.add(c, d))))
    }
}
