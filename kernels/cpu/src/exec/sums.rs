//! Sums over entries, each in one order.

use crate::simd::{Floats, Kernel, LANES};

/// `Σ x`.
pub(super) struct Sum<'a>(pub(super) &'a [f32]);

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> f32 {
        let (vectors, rest) = self.0.as_chunks::<LANES>();
        let mut sum = s.load_some(rest, 0.0);
        for x in vectors {
            sum = s.add(sum, s.load(x));
        }
        s.sum(sum)
    }
}

/// `Σ a·b`, over as many entries as both have.
pub(super) struct Dot<'a>(pub(super) &'a [f32], pub(super) &'a [f32]);

impl Kernel for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> f32 {
        let (a, rest_a) = self.0.as_chunks::<LANES>();
        let (b, rest_b) = self.1.as_chunks::<LANES>();
        let (fours_a, ones_a) = a.as_chunks::<4>();
        let (fours_b, ones_b) = b.as_chunks::<4>();
        let mut sums = [s.splat(0.0); 4];
        for (a, b) in fours_a.iter().zip(fours_b) {
            for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                *sum = s.fma(s.load(a), s.load(b), *sum);
            }
        }
        for ((sum, a), b) in sums.iter_mut().zip(ones_a).zip(ones_b) {
            *sum = s.fma(s.load(a), s.load(b), *sum);
        }
        let (x, y) = (s.load_some(rest_a, 0.0), s.load_some(rest_b, 0.0));
        let [a, b, c, d] = sums;
        s.sum(s.add(s.add(a, b), s.fma(x, y, s.add(c, d))))
    }
}
