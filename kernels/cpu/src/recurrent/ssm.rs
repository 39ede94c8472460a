//! The selective state-space scan in its step form.
//!
//! A unit is a head. Its state lies transposed, `[size]` rows of `dim` columns, in strips of columns: a token takes one pass
//! over a strip, in which every entry decays, takes in the operand and is read out.

use super::{STRIP, Strip, columns, head::Recurrence, load_strip, store_strip, strips};
use crate::simd::Floats;

/// Extents of the op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScanShape {
    /// Heads of the operand.
    pub(crate) heads: usize,
    /// Entries of a head.
    pub(crate) dim: usize,
    /// Groups of `b` and `c`.
    pub(crate) groups: usize,
    /// Entries of the state for each entry of a head.
    pub(crate) size: usize,
}

impl ScanShape {
    /// Floats of the state in a slot.
    pub(crate) fn value_len(&self) -> usize {
        self.heads * strips(self.dim) * self.size * STRIP
    }

    /// Widths of what is kept of a row: operand, `b`, time step.
    pub(crate) fn kept(&self) -> [usize; 3] {
        [self.heads * self.dim, self.groups * self.size, self.heads]
    }
}

/// The operands of a step, all its rows, and the weights.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) b: &'a [f32],
    pub(crate) c: &'a [f32],
    pub(crate) dt: &'a [f32],
    /// One per head.
    pub(crate) a: &'a [f32],
    /// One per head.
    pub(crate) d: Option<&'a [f32]>,
}

/// One head of one sequence.
pub(crate) struct Scan<'a> {
    pub(crate) shape: ScanShape,
    pub(crate) operands: Operands<'a>,
    pub(crate) head: usize,
    /// Results, all rows of the step, of which this head writes its own entries.
    pub(crate) out: *mut f32,
}

/// A token as one head meets it.
pub(crate) struct Token<'a> {
    x: &'a [f32],
    b: &'a [f32],
    dt: f32,
    /// None where the result is not wanted.
    c: Option<&'a [f32]>,
}

impl<'a> Scan<'a> {
    fn of_head<'r>(&self, x: &'r [f32], b: &'r [f32], dt: &'r [f32]) -> Token<'r> {
        Token { x: &x[self.head * self.shape.dim..][..self.shape.dim], b: self.of_group(b), dt: dt[self.head], c: None }
    }

    fn of_group<'r>(&self, row: &'r [f32]) -> &'r [f32] {
        let group = self.head / (self.shape.heads / self.shape.groups);
        &row[group * self.shape.size..][..self.shape.size]
    }
}

impl<'a> Recurrence<'a> for Scan<'a> {
    type Token = Token<'a>;
    type Left<F: Copy> = ();

    fn head(&self) -> usize {
        self.head
    }

    fn strips(&self) -> usize {
        strips(self.shape.dim)
    }

    fn token(&self, row: usize) -> Token<'a> {
        let Operands { x, b, c, dt, .. } = self.operands;
        let [operand, group, heads] = self.shape.kept();
        let part = |x: &'a [f32], width: usize| &x[row * width..][..width];
        let token = self.of_head(part(x, operand), part(b, group), part(dt, heads));
        Token { c: Some(self.of_group(part(c, group))), ..token }
    }

    fn kept(&self, inputs: &'a [f32]) -> Token<'a> {
        let [operand, group, _] = self.shape.kept();
        let (x, rest) = inputs.split_at(operand);
        let (b, dt) = rest.split_at(group);
        self.of_head(x, b, dt)
    }

    #[inline(always)]
    fn advance<S: Floats>(
        &self,
        s: S,
        state: &mut [Strip],
        _left: Option<()>,
        token: &Token<'a>,
        strip: usize,
        row: Option<usize>,
    ) -> Option<()> {
        let columns = columns(strip, self.shape.dim);
        let x = load_strip(s, &token.x[columns.clone()]);
        let dt = s.splat(token.dt);
        let keep = s.splat((token.dt * self.operands.a[self.head]).exp());
        let dtx = [s.mul(dt, x[0]), s.mul(dt, x[1])];
        let y = scan(s, state, keep, dtx, token.b, token.c.unwrap_or(token.b));
        let row = row?;
        let d = s.splat(self.operands.d.map_or(0.0, |d| d[self.head]));
        let first = (row * self.shape.heads + self.head) * self.shape.dim + columns.start;
        // SAFETY: the entries of this head in a row of the result, which this unit alone writes.
        let out = unsafe { std::slice::from_raw_parts_mut(self.out.add(first), columns.len()) };
        store_strip(s, out, [s.fma(d, x[0], y[0]), s.fma(d, x[1], y[1])]);
        None
    }

    #[inline(always)]
    fn settle<S: Floats>(&self, _s: S, _state: &mut [Strip], _left: Option<()>) {}
}

/// One token through a strip; what `c` reads from it.
#[inline(always)]
fn scan<S: Floats>(s: S, state: &mut [Strip], keep: S::F, dtx: [S::F; 2], b: &[f32], c: &[f32]) -> [S::F; 2] {
    let size = state.len();
    let (b, c) = (&b[..size], &c[..size]);
    let zero = s.splat(0.0);
    // Even and odd rows apart: one sum would wait for itself.
    let (mut evens, mut odds) = ([zero; 2], [zero; 2]);
    let (pairs, last) = state.as_chunks_mut::<2>();
    for (i, [even, odd]) in pairs.iter_mut().enumerate() {
        for (strip, sum, j) in [(even, &mut evens, 2 * i), (odd, &mut odds, 2 * i + 1)] {
            scan_row(s, strip, [keep, s.splat(b[j]), s.splat(c[j])], dtx, sum);
        }
    }
    for strip in last {
        scan_row(s, strip, [keep, s.splat(b[size - 1]), s.splat(c[size - 1])], dtx, &mut evens);
    }
    [s.add(evens[0], odds[0]), s.add(evens[1], odds[1])]
}

#[inline(always)]
fn scan_row<S: Floats>(s: S, strip: &mut Strip, [keep, b, c]: [S::F; 3], dtx: [S::F; 2], sum: &mut [S::F; 2]) {
    for i in 0..2 {
        let entry = s.fma(s.load(&strip[i]), keep, s.mul(dtx[i], b));
        s.store(&mut strip[i], entry);
        sum[i] = s.fma(entry, c, sum[i]);
    }
}
