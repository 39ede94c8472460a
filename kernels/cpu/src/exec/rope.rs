//! Rotary position embedding.

use std::ops::Range;

use bantam_backend::RopeTable;
use bantam_graph::Pairing;

use crate::{
    compile::ir::Turning,
    isa::Isa,
    simd::{Floats, Kernel, with_floats},
};

/// Writes `[cos] [sin]` of every pair's angle, row by row. The angle is rounded as in the references, cosine and sine are
/// those of the rounded angle.
pub(crate) fn angles(table: &RopeTable, positions: &[u32], out: &mut [f32]) {
    let pairs = table.frequencies.len();
    for (position, out) in positions.iter().zip(out.chunks_exact_mut(2 * pairs)) {
        let (cosines, sines) = out.split_at_mut(pairs);
        for ((frequency, cosine), sine) in table.frequencies.iter().zip(cosines).zip(sines) {
            let (s, c) = f64::from(*position as f32 * frequency).sin_cos();
            *cosine = c as f32 * table.magnitude;
            *sine = s as f32 * table.magnitude;
        }
    }
}

/// How heads are rotated, and how far.
pub(crate) struct Rotation<'a> {
    /// Rows of [`angles`].
    pub(crate) angles: &'a [f32],
    /// Entries that turn.
    pub(crate) dims: usize,
    pub(crate) turning: Turning,
    pub(crate) isa: Isa,
}

impl Rotation<'_> {
    /// Rotates items (row, head) `items`, whose entries `x` holds.
    pub(crate) fn rotate(&self, x: &[f32], heads: usize, items: Range<usize>, out: &mut [f32]) {
        let Turning { head_dim, offset, pairing, inverse } = self.turning;
        let turning = offset..offset + self.dims;
        for ((x, out), item) in x.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).zip(items) {
            let angles = self.angles[item / heads * self.dims..][..self.dims].split_at(self.dims / 2);
            out.copy_from_slice(x);
            let (x, out, far) = match pairing {
                Pairing::HeadHalves => (x, out, head_dim / 2),
                Pairing::Halves => (&x[turning.clone()], &mut out[turning.clone()], self.dims / 2),
                Pairing::Interleaved => (&x[turning.clone()], &mut out[turning.clone()], 1),
            };
            match (pairing, inverse) {
                (Pairing::Interleaved, false) => interleaved::<false>(x, angles, out),
                (Pairing::Interleaved, true) => interleaved::<true>(x, angles, out),
                (_, false) => with_floats(self.isa, Apart::<false> { x, far, angles, out }),
                (_, true) => with_floats(self.isa, Apart::<true> { x, far, angles, out }),
            }
        }
    }
}

/// Turns entries with those `far` behind them, as many as there are angles.
struct Apart<'a, const BACK: bool> {
    x: &'a [f32],
    far: usize,
    angles: (&'a [f32], &'a [f32]),
    out: &'a mut [f32],
}

impl<const BACK: bool> Kernel for Apart<'_, BACK> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, _: S) {
        let (a, b) = self.x.split_at(self.far);
        let (out_a, out_b) = self.out.split_at_mut(self.far);
        let angles = self.angles.0.iter().zip(self.angles.1);
        for ((((a, b), (c, s)), out_a), out_b) in a.iter().zip(b).zip(angles).zip(out_a).zip(out_b) {
            let s = if BACK { -s } else { *s };
            *out_a = a * c - b * s;
            *out_b = b * c + a * s;
        }
    }
}

/// Turns neighbours.
fn interleaved<const BACK: bool>(x: &[f32], (cosines, sines): (&[f32], &[f32]), out: &mut [f32]) {
    let pairs = x.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0);
    for (([a, b], out), (c, s)) in pairs.zip(cosines.iter().zip(sines)) {
        let s = if BACK { -s } else { *s };
        *out = [a * c - b * s, b * c + a * s];
    }
}
