//! The rotation of heads: random signs, a Walsh–Hadamard transform, the same signs once more.
//!
//! It is orthonormal and its own inverse. Whatever the head, its entries afterwards are spread like those of a random vector
//! of the same length.

use crate::{
    isa::Isa,
    simd::{Floats, Kernel, LANES, with_floats},
};

/// Rotates a head in place. Its length must be a power of two, at least [`LANES`].
pub(in crate::attention) fn rotate(isa: Isa, head: &mut [f32]) {
    with_floats(isa, Rotate(head));
}

struct Rotate<'a>(&'a mut [f32]);

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        rotate_in(s, self.0);
    }
}

/// As [`rotate`], within a kernel.
#[inline(always)]
pub(super) fn rotate_in<S: Floats>(s: S, head: &mut [f32]) {
    let norm = s.splat(1.0 / (head.len() as f32).sqrt());
    let vectors = head.as_chunks_mut::<LANES>().0;
    for (vector, signs) in vectors.iter_mut().zip(SIGNS.iter().cycle()) {
        let signed = s.mul(s.load(vector), s.load(signs));
        s.store(vector, signed);
        let transformed = within(s, vector);
        s.store(vector, transformed);
    }
    let mut half = 1;
    while half < vectors.len() {
        for pair in vectors.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                let (a, b) = (s.load(low), s.load(high));
                s.store(low, s.add(a, b));
                s.store(high, s.sub(a, b));
            }
        }
        half *= 2;
    }
    for (vector, signs) in vectors.iter_mut().zip(SIGNS.iter().cycle()) {
        let signed = s.mul(s.load(vector), s.mul(s.load(signs), norm));
        s.store(vector, signed);
    }
}

/// The transform of one vector, not normalized.
#[inline(always)]
fn within<S: Floats>(s: S, vector: &[f32; LANES]) -> S::F {
    let mut sums = [s.splat(0.0); 2];
    for (x, rows) in vector.as_chunks::<2>().0.iter().zip(HADAMARD.as_chunks::<2>().0) {
        for i in 0..2 {
            sums[i] = s.fma(s.splat(x[i]), s.load(&rows[i]), sums[i]);
        }
    }
    s.add(sums[0], sums[1])
}

/// The Hadamard matrix of Sylvester's construction.
const HADAMARD: [[f32; LANES]; LANES] = {
    let mut rows = [[1.0; LANES]; LANES];
    let mut i = 0;
    while i < LANES * LANES {
        let (row, column) = (i / LANES, i % LANES);
        if (row & column).count_ones() % 2 == 1 {
            rows[row][column] = -1.0;
        }
        i += 1;
    }
    rows
};

/// Vectors of signs; longer heads meet the same ones again.
const SIGN_VECTORS: usize = 64;

/// The signs, drawn with SplitMix64. Saved pages depend on them.
static SIGNS: [[f32; LANES]; SIGN_VECTORS] = {
    let mut signs = [[1.0; LANES]; SIGN_VECTORS];
    let (mut state, mut i) = (0u64, 0);
    while i < LANES * SIGN_VECTORS {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (x ^ (x >> 31)) >> 63 == 1 {
            signs[i / LANES][i % LANES] = -1.0;
        }
        i += 1;
    }
    signs
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dot(a: &[f32], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    fn rotated(isa: Isa, x: &[f32]) -> Vec<f32> {
        let mut x = x.to_vec();
        rotate(isa, &mut x);
        x
    }

    #[test]
    fn unit_vectors_become_rows_of_one_magnitude() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for dim in [16, 64, 128, 2048] {
                let mut unit = vec![0.0; dim];
                unit[dim / 3] = 1.0;
                let row = rotated(isa, &unit);
                let wanted = 1.0 / (dim as f32).sqrt();
                assert!(row.iter().all(|x| (x.abs() - wanted).abs() < 1e-6), "{isa:?} {dim}: {row:?}");
                let negative = row.iter().filter(|x| **x < 0.0).count();
                assert!((dim / 8..dim - dim / 8).contains(&negative), "{isa:?} {dim}: {negative} are negative");
            }
        }
    }

    proptest! {
        #[test]
        fn it_keeps_products_and_undoes_itself(
            (a, b) in (0u32..8).prop_flat_map(|log| {
                let vector = || prop::collection::vec(-10f32..10.0, LANES << log);
                (vector(), vector())
            }),
        ) {
            let near = |x: f64, y: f64| (x - y).abs() <= 1e-5 * (dot(&a, &a) * dot(&b, &b)).sqrt();
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let turned = [rotated(isa, &a), rotated(isa, &b)];
                prop_assert!(near(dot(&turned[0], &turned[1]), dot(&a, &b)), "{:?}", isa);
                let back = rotated(isa, &turned[0]);
                for (x, y) in back.iter().zip(&a) {
                    prop_assert!((x - y).abs() < 1e-4, "{:?}: {} for {}", isa, x, y);
                }
            }
        }
    }
}
