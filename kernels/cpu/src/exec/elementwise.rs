//! Operations entry by entry.

use std::ops::Range;

use bantam_graph::Act;

use crate::{
    isa::Isa,
    simd::{Floats, Kernel, LANES, math, with_floats},
};

/// A function of entries.
#[derive(Clone, Copy)]
pub(crate) enum Map<'a> {
    /// `act(x)`.
    Activate(&'a [f32], Act),
    /// `act(gate) · up`.
    Glu(&'a [f32], &'a [f32], Act),
    /// `e^x`.
    Exp(&'a [f32]),
    /// `cap · tanh(x / cap)`.
    Softcap(&'a [f32], f32),
}

impl Map<'_> {
    /// Writes the function of each entry to `out`, which is as long as the operands.
    pub(crate) fn apply(self, isa: Isa, out: &mut [f32]) {
        with_floats(isa, Mapped { map: self, out });
    }

    /// The function of the entries from `first` on, as many as a vector or the operands hold.
    #[inline(always)]
    fn at<S: Floats>(self, s: S, first: usize) -> S::F {
        match self {
            Map::Activate(x, act) => math::activate(s, act, load(s, &x[first..])),
            Map::Glu(gate, up, act) => {
                let gate = math::activate(s, act, load(s, &gate[first..]));
                s.mul(gate, load(s, &up[first..]))
            }
            Map::Exp(x) => math::exp(s, load(s, &x[first..])),
            Map::Softcap(x, cap) => {
                let x = s.div(load(s, &x[first..]), s.splat(cap));
                s.mul(math::tanh(s, x), s.splat(cap))
            }
        }
    }
}

/// The first 16 entries, zeros after the end.
#[inline(always)]
fn load<S: Floats>(s: S, x: &[f32]) -> S::F {
    match x.first_chunk::<LANES>() {
        Some(x) => s.load(x),
        None => s.load_some(x, 0.0),
    }
}

struct Mapped<'a> {
    map: Map<'a>,
    out: &'a mut [f32],
}

impl Kernel for Mapped<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let (whole, rest) = self.out.as_chunks_mut::<LANES>();
        let tail = whole.len() * LANES;
        for (i, out) in whole.iter_mut().enumerate() {
            s.store(out, self.map.at(s, i * LANES));
        }
        if !rest.is_empty() {
            s.store_some(rest, self.map.at(s, tail));
        }
    }
}

/// `a + b`.
pub(crate) fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

/// `out + b`, in place.
pub(crate) fn add_to(out: &mut [f32], b: &[f32]) {
    for (out, b) in out.iter_mut().zip(b) {
        *out += b;
    }
}

/// `x · factor`.
pub(crate) fn scale(x: &[f32], factor: f32, out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = x * factor;
    }
}

/// Entries `range` of `a ⊙ b`, where `per_row` entries of `a` share one of `b`.
pub(crate) fn mul(a: &[f32], b: &[f32], per_row: usize, range: Range<usize>, out: &mut [f32]) {
    if per_row == 1 {
        for ((out, a), b) in out.iter_mut().zip(&a[range.clone()]).zip(&b[range]) {
            *out = a * b;
        }
    } else {
        for (out, i) in out.iter_mut().zip(range) {
            *out = a[i] * b[i / per_row];
        }
    }
}

/// `Σ_j weights[j] · y[j]`, by rising `j`.
pub(crate) struct Combine<'a> {
    /// Rows of `used` results of `width` entries.
    pub(crate) y: &'a [f32],
    /// Rows of `used` weights.
    pub(crate) weights: &'a [f32],
    pub(crate) width: usize,
    pub(crate) used: usize,
}

impl Combine<'_> {
    /// Entries `range` of the result.
    pub(crate) fn run(&self, range: Range<usize>, out: &mut [f32]) {
        let mut out = out;
        let mut start = range.start;
        while start < range.end {
            let (row, column) = (start / self.width, start % self.width);
            let len = (self.width - column).min(range.end - start);
            let (part, rest) = std::mem::take(&mut out).split_at_mut(len);
            self.row(row, column, part);
            out = rest;
            start += len;
        }
    }

    fn row(&self, row: usize, column: usize, out: &mut [f32]) {
        out.fill(0.0);
        for (j, weight) in self.weights[row * self.used..][..self.used].iter().enumerate() {
            let y = &self.y[(row * self.used + j) * self.width + column..];
            for (out, y) in out.iter_mut().zip(y) {
                *out += weight * y;
            }
        }
    }
}
