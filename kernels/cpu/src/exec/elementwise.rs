//! Operations entry by entry.

use std::ops::Range;

use bantam_graph::{Act, GluLimit, Scoring};

use crate::{
    compile::ir::Gating,
    isa::Isa,
    simd::{Floats, Kernel, LANES, math, with_floats},
};

/// A function of entries.
#[derive(Clone, Copy)]
pub(crate) enum Map<'a> {
    /// `act(x)`.
    Activate(&'a [f32], Act),
    /// `act(gate) · up`, bounded.
    Glu(&'a [f32], &'a [f32], Gating),
    /// `e^x`.
    Exp(&'a [f32]),
    /// `cap · tanh(x / cap)`.
    Softcap(&'a [f32], f32),
    /// A router's scores; of the softmax the exponentials `e^(x − greatest)`.
    Score(&'a [f32], Scoring, f32),
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
            Map::Glu(gate, up, gating) => gated(s, gating, load(s, &gate[first..]), load(s, &up[first..])),
            Map::Exp(x) => math::exp(s, load(s, &x[first..])),
            Map::Softcap(x, cap) => {
                let x = s.div(load(s, &x[first..]), s.splat(cap));
                s.mul(math::tanh(s, x), s.splat(cap))
            }
            Map::Score(x, scoring, greatest) => {
                let x = load(s, &x[first..]);
                match scoring {
                    Scoring::Softmax => math::exp(s, s.sub(x, s.splat(greatest))),
                    Scoring::Sigmoid => math::sigmoid(s, x),
                    Scoring::SqrtSoftplus => s.sqrt(math::softplus(s, x)),
                }
            }
        }
    }
}

/// A gated product. Bounds let NaN pass.
#[inline(always)]
fn gated<S: Floats>(s: S, gating: Gating, gate: S::F, up: S::F) -> S::F {
    let Gating { act, limit } = gating;
    match limit {
        None => s.mul(math::activate(s, act, gate), up),
        Some(GluLimit::BeforeAct(limit)) => {
            let gate = math::activate(s, act, s.min(s.splat(limit), gate));
            s.mul(gate, clamp(s, up, limit))
        }
        Some(GluLimit::AfterAct(limit)) => {
            let gate = s.min(s.splat(limit), math::activate(s, act, gate));
            s.mul(gate, clamp(s, up, limit))
        }
    }
}

#[inline(always)]
fn clamp<S: Floats>(s: S, x: S::F, limit: f32) -> S::F {
    s.max(s.splat(-limit), s.min(s.splat(limit), x))
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

/// `x · factor + offset`.
pub(crate) fn scale(x: &[f32], factor: f32, offset: f32, out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = x * factor + offset;
    }
}

/// Cuts a range at the multiples of `len`: the number of each piece's run, and the piece as a part of the range.
pub(crate) fn runs(range: Range<usize>, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let first = range.start;
    let runs = if range.is_empty() { 0..0 } else { first / len..range.end.div_ceil(len) };
    runs.map(move |run| {
        let (start, end) = ((run * len).max(range.start), ((run + 1) * len).min(range.end));
        (run, start - first..end - first)
    })
}

/// Changes entries in place, the first of which is entry `first` of all rows, by a narrower operand: `len` neighbours meet
/// one entry of `b`, which begins anew after its end.
pub(crate) fn spread(out: &mut [f32], first: usize, b: &[f32], len: usize, f: impl Fn(f32, f32) -> f32) {
    let range = first..first + out.len();
    if len == 1 {
        for (run, piece) in runs(range, b.len()) {
            let b = &b[first + piece.start - run * b.len()..];
            out[piece].iter_mut().zip(b).for_each(|(out, b)| *out = f(*out, *b));
        }
        return;
    }
    for (run, piece) in runs(range, len) {
        let b = b[run % b.len()];
        out[piece].iter_mut().for_each(|out| *out = f(*out, b));
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
        let first = range.start;
        for (row, piece) in runs(range, self.width) {
            self.row(row, first + piece.start - row * self.width, &mut out[piece]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_operands_spread_from_any_entry_on() {
        let x: Vec<f32> = (0..36).map(|i| i as f32).collect();
        // Three rows of twelve: a factor per entry, per head of four, per row; by one vector for all, or by rows.
        for (len, b_len) in [(1, 12), (4, 3), (12, 1), (1, 36), (4, 9), (12, 3)] {
            let b: Vec<f32> = (0..b_len).map(|i| 0.5 + i as f32).collect();
            let expected: Vec<f32> = (0..36).map(|i| x[i] * b[i / len % b_len]).collect();
            for (from, to) in [(0, 36), (0, 5), (7, 8), (5, 31), (23, 36), (9, 9)] {
                let mut out = x[from..to].to_vec();
                spread(&mut out, from, &b, len, |x, b| x * b);
                assert_eq!(out, expected[from..to], "{len} {b_len} {from}..{to}");
            }
        }
    }
}
