//! Rotary position embedding.

use std::ops::Range;

use bantam_graph::Pairing;

use crate::compile::RopeTable;

/// Writes `[cos] [sin]` of every pair's angle, row by row. In double precision: positions reach a million, and the angle's
/// error is the position times that of the frequency.
pub(crate) fn angles(table: &RopeTable, positions: &[u32], out: &mut [f32]) {
    let pairs = table.frequencies.len();
    for (position, out) in positions.iter().zip(out.chunks_exact_mut(2 * pairs)) {
        let (cosines, sines) = out.split_at_mut(pairs);
        for ((frequency, cosine), sine) in table.frequencies.iter().zip(cosines).zip(sines) {
            let (s, c) = (f64::from(*position) * frequency).sin_cos();
            *cosine = (c * table.magnitude) as f32;
            *sine = (s * table.magnitude) as f32;
        }
    }
}

/// How heads are rotated.
pub(crate) struct Rotation<'a> {
    /// Rows of [`angles`].
    pub(crate) angles: &'a [f32],
    /// Entries that turn.
    pub(crate) dims: usize,
    pub(crate) pairing: Pairing,
}

impl Rotation<'_> {
    /// Rotates items (row, head) `items`, whose entries `x` holds.
    pub(crate) fn rotate(&self, x: &[f32], head_dim: usize, heads: usize, items: Range<usize>, out: &mut [f32]) {
        for ((x, out), item) in x.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).zip(items) {
            let angles = &self.angles[item / heads * self.dims..][..self.dims];
            let (cosines, sines) = angles.split_at(self.dims / 2);
            match self.pairing {
                // Halves of the whole head are refused when a graph is compiled.
                Pairing::Halves | Pairing::HeadHalves => {
                    halves(&x[..self.dims], cosines, sines, &mut out[..self.dims]);
                }
                Pairing::Interleaved => interleaved(&x[..self.dims], cosines, sines, &mut out[..self.dims]),
            }
            out[self.dims..].copy_from_slice(&x[self.dims..]);
        }
    }
}

fn halves(x: &[f32], cosines: &[f32], sines: &[f32], out: &mut [f32]) {
    let (a, b) = x.split_at(x.len() / 2);
    let (out_a, out_b) = out.split_at_mut(x.len() / 2);
    let angles = cosines.iter().zip(sines);
    for ((((a, b), (c, s)), out_a), out_b) in a.iter().zip(b).zip(angles).zip(out_a).zip(out_b) {
        *out_a = a * c - b * s;
        *out_b = b * c + a * s;
    }
}

fn interleaved(x: &[f32], cosines: &[f32], sines: &[f32], out: &mut [f32]) {
    let pairs = x.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0);
    for (([a, b], out), (c, s)) in pairs.zip(cosines.iter().zip(sines)) {
        *out = [a * c - b * s, b * c + a * s];
    }
}
