//! The gated delta rule in its step form.
//!
//! A unit is a head. Its state is cut into strips of columns (of the value), each a run of `key_dim` pairs of vectors that
//! fits in the first-level cache. A token takes one pass over a strip: the correction that the token before it left is added
//! as its entry is loaded, then it decays and meets key and query.
//!
//! With `S'` the decayed state, `δ = β·(v - S'ᵀk)` and `Sᵀq = S'ᵀq + δ·(k·q)`: so the pass that finds `δ` finds the result too.

use super::{STRIP, Strip, columns, head::Recurrence, load_strip, store_strip, strips};
use crate::simd::{Floats, LANES};

/// Extents of the op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DeltaShape {
    /// Heads of queries and keys; value head `h` reads `h mod key_heads`.
    pub(crate) key_heads: usize,
    /// Heads of values.
    pub(crate) heads: usize,
    /// Entries of a key.
    pub(crate) key_dim: usize,
    /// Entries of a value.
    pub(crate) value_dim: usize,
    /// Whether every channel of a key has its own decay.
    pub(crate) per_channel: bool,
    /// Factor on the result.
    pub(crate) scale: f32,
}

impl DeltaShape {
    /// Floats of the state in a slot.
    pub(crate) fn value_len(&self) -> usize {
        self.heads * strips(self.value_dim) * self.key_dim * STRIP
    }

    /// Widths of what is kept of a row: key, decay, value, beta.
    pub(crate) fn kept(&self) -> [usize; 4] {
        let decays = if self.per_channel { self.heads * self.key_dim } else { self.heads };
        [self.key_heads * self.key_dim, decays, self.heads * self.value_dim, self.heads]
    }
}

/// The operands of a step, all its rows.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    /// What is kept of the state, `e^decay`.
    pub(crate) decay: &'a [f32],
    pub(crate) v: &'a [f32],
    pub(crate) beta: &'a [f32],
}

/// One head of one sequence.
pub(crate) struct Delta<'a> {
    pub(crate) shape: DeltaShape,
    pub(crate) operands: Operands<'a>,
    pub(crate) head: usize,
    /// Results, all rows of the step, of which this head writes its own entries.
    pub(crate) out: *mut f32,
}

/// A token as one head meets it.
#[derive(Clone, Copy)]
pub(crate) struct Token<'a> {
    /// None where the result is not wanted.
    q: Option<&'a [f32]>,
    k: &'a [f32],
    decay: &'a [f32],
    v: &'a [f32],
    beta: f32,
}

impl<'a> Delta<'a> {
    fn keys_of_head<'r>(&self, row: &'r [f32]) -> &'r [f32] {
        &row[self.head % self.shape.key_heads * self.shape.key_dim..][..self.shape.key_dim]
    }

    fn of_head<'r>(&self, k: &'r [f32], decay: &'r [f32], v: &'r [f32], beta: &'r [f32]) -> Token<'r> {
        let decays = if self.shape.per_channel { self.shape.key_dim } else { 1 };
        Token {
            q: None,
            k: self.keys_of_head(k),
            decay: &decay[self.head * decays..][..decays],
            v: &v[self.head * self.shape.value_dim..][..self.shape.value_dim],
            beta: beta[self.head],
        }
    }
}

/// What a token leaves to be added to the state: `k·δᵀ`.
#[derive(Clone, Copy)]
pub(crate) struct Correction<'a, F> {
    k: &'a [f32],
    delta: [F; 2],
}

impl<'a> Recurrence<'a> for Delta<'a> {
    type Token = Token<'a>;
    type Left<F: Copy> = Correction<'a, F>;

    fn head(&self) -> usize {
        self.head
    }

    fn strips(&self) -> usize {
        strips(self.shape.value_dim)
    }

    fn token(&self, row: usize) -> Token<'a> {
        let Operands { q, k, decay, v, beta } = self.operands;
        let [keys, decays, values, betas] = self.shape.kept();
        let part = |x: &'a [f32], width: usize| &x[row * width..][..width];
        let token = self.of_head(part(k, keys), part(decay, decays), part(v, values), part(beta, betas));
        Token { q: Some(self.keys_of_head(part(q, keys))), ..token }
    }

    fn kept(&self, inputs: &'a [f32]) -> Token<'a> {
        let [keys, decays, values, _] = self.shape.kept();
        let (k, rest) = inputs.split_at(keys);
        let (decay, rest) = rest.split_at(decays);
        let (v, beta) = rest.split_at(values);
        self.of_head(k, decay, v, beta)
    }

    /// Takes a token in, but for its correction.
    #[inline(always)]
    fn advance<S: Floats>(
        &self,
        s: S,
        state: &mut [Strip],
        left: Option<Correction<'a, S::F>>,
        token: &Token<'a>,
        strip: usize,
        row: Option<usize>,
    ) -> Option<Correction<'a, S::F>> {
        let q = token.q.unwrap_or(token.k);
        let zero = [s.splat(0.0); 2];
        // Adding nothing is exact: a token without one before it goes the same way.
        let left = left.unwrap_or(Correction { k: token.k, delta: zero });
        let (of_k, of_q) = match token.decay {
            [decay] => meet::<S, false>(s, state, &left, token.k, q, std::slice::from_ref(decay)),
            channels => meet::<S, true>(s, state, &left, token.k, q, channels),
        };
        let value = load_strip(s, &token.v[columns(strip, self.shape.value_dim)]);
        let beta = s.splat(token.beta);
        let delta = [s.mul(beta, s.sub(value[0], of_k[0])), s.mul(beta, s.sub(value[1], of_k[1]))];
        if let Some(row) = row {
            let (kq, scale) = (s.splat(dot(s, token.k, q)), s.splat(self.shape.scale));
            let result = [s.mul(scale, s.fma(delta[0], kq, of_q[0])), s.mul(scale, s.fma(delta[1], kq, of_q[1]))];
            let columns = columns(strip, self.shape.value_dim);
            let first = (row * self.shape.heads + self.head) * self.shape.value_dim + columns.start;
            // SAFETY: the entries of this head in a row of the result, which this unit alone writes.
            let out = unsafe { std::slice::from_raw_parts_mut(self.out.add(first), columns.len()) };
            store_strip(s, out, result);
        }
        Some(Correction { k: token.k, delta })
    }

    #[inline(always)]
    fn settle<S: Floats>(&self, s: S, state: &mut [Strip], left: Option<Correction<'a, S::F>>) {
        let Some(Correction { k, delta }) = left else { return };
        for (strip, k) in state.iter_mut().zip(k) {
            let k = s.splat(*k);
            for (entry, delta) in strip.iter_mut().zip(delta) {
                let sum = s.fma(k, delta, s.load(entry));
                s.store(entry, sum);
            }
        }
    }
}

/// Corrects and decays the state; what the key and the query find in it.
#[inline(always)]
fn meet<S: Floats, const CHANNELS: bool>(
    s: S,
    state: &mut [Strip],
    left: &Correction<'_, S::F>,
    k: &[f32],
    q: &[f32],
    decay: &[f32],
) -> ([S::F; 2], [S::F; 2]) {
    let dim = state.len();
    let (k, q, left_k) = (&k[..dim], &q[..dim], &left.k[..dim]);
    let whole = s.splat(decay[0]);
    // Even and odd channels apart: one sum would wait for itself.
    let zero = s.splat(0.0);
    let nothing = Found { of_k: [zero; 2], of_q: [zero; 2] };
    let (mut evens, mut odds) = (nothing, nothing);
    let (pairs, last) = state.as_chunks_mut::<2>();
    for (i, [even, odd]) in pairs.iter_mut().enumerate() {
        for (strip, sum, c) in [(even, &mut evens, 2 * i), (odd, &mut odds, 2 * i + 1)] {
            let keep = if CHANNELS { s.splat(decay[c]) } else { whole };
            meet_channel(s, strip, [s.splat(left_k[c]), keep, s.splat(k[c]), s.splat(q[c])], left.delta, sum);
        }
    }
    for strip in last {
        let c = dim - 1;
        let keep = if CHANNELS { s.splat(decay[c]) } else { whole };
        meet_channel(s, strip, [s.splat(left_k[c]), keep, s.splat(k[c]), s.splat(q[c])], left.delta, &mut evens);
    }
    let of_k = [s.add(evens.of_k[0], odds.of_k[0]), s.add(evens.of_k[1], odds.of_k[1])];
    let of_q = [s.add(evens.of_q[0], odds.of_q[0]), s.add(evens.of_q[1], odds.of_q[1])];
    (of_k, of_q)
}

/// What key and query have found so far.
#[derive(Clone, Copy)]
struct Found<F> {
    of_k: [F; 2],
    of_q: [F; 2],
}

#[inline(always)]
fn meet_channel<S: Floats>(
    s: S,
    strip: &mut Strip,
    [left_k, keep, k, q]: [S::F; 4],
    delta: [S::F; 2],
    sum: &mut Found<S::F>,
) {
    for i in 0..2 {
        let entry = s.mul(s.fma(left_k, delta[i], s.load(&strip[i])), keep);
        s.store(&mut strip[i], entry);
        sum.of_k[i] = s.fma(entry, k, sum.of_k[i]);
        sum.of_q[i] = s.fma(entry, q, sum.of_q[i]);
    }
}

#[inline(always)]
fn dot<S: Floats>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sum = s.splat(0.0);
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        sum = s.fma(s.load_some(a, 0.0), s.load_some(b, 0.0), sum);
    }
    s.sum(sum)
}
