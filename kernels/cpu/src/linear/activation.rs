//! Activation rows: as they come (`f32`), or rounded to 8 bits in blocks.
//!
//! Quantized weights meet activations of 8 bits, so that a block's dot product is an exact integer. How a row is rounded
//! depends on that row alone, and is the same on every instruction set.

use super::simd::{Job, Simd, with_simd};
use crate::isa::Isa;

/// The activations of one block, rounded to 8 bits: `x ≈ scale · q` with `|q| ≤ 127`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(16))]
pub struct QBlock {
    /// The 32 integers, four to a word in memory order.
    pub(super) quads: [i32; 8],
    /// The step between two neighbouring integers.
    pub(super) scale: f32,
    /// −128 times the sum of all the integers.
    pub(super) negated: i32,
    /// −128 times the sums of the first and of the last 16.
    pub(super) negated_halves: [i32; 2],
}

impl QBlock {
    /// Activations in a block.
    pub const LEN: usize = 32;

    /// Blocks of a row of `cols` activations; a last, incomplete block is filled with zeros.
    pub const fn count(cols: usize) -> usize {
        cols.div_ceil(Self::LEN)
    }

    /// The scale for the block whose largest magnitude has these bits, and what to multiply by for rounding.
    ///
    /// Magnitudes are compared as bits because that order puts NaN on top: a NaN anywhere makes the scale NaN. A block
    /// that holds nothing but dust, whose reciprocal would overflow, becomes zeros.
    #[inline(always)]
    pub(super) fn scale_of(largest_bits: u32) -> (f32, f32) {
        let largest = f32::from_bits(largest_bits);
        let inverse = if largest > 1e-35 { 127.0 / largest } else { 0.0 };
        (largest / 127.0, inverse)
    }

    /// A block of these integers.
    #[inline(always)]
    pub(super) fn new(integers: [i8; Self::LEN], scale: f32) -> Self {
        let sum = |part: &[i8]| part.iter().map(|q| i32::from(*q)).sum::<i32>();
        let quads =
            std::array::from_fn(|i| i32::from_ne_bytes(std::array::from_fn(|k| integers[4 * i + k].to_ne_bytes()[0])));
        Self::with_sums(quads, scale, [sum(&integers[..16]), sum(&integers[16..])])
    }

    /// A block of these integers, given the sums of its halves. Sums that are too large belong to a block whose scale is no
    /// number; then they may be anything.
    #[inline(always)]
    pub(super) fn with_sums(quads: [i32; 8], scale: f32, sums: [i32; 2]) -> Self {
        let negated_halves = sums.map(|sum| sum.wrapping_mul(-128));
        Self { quads, scale, negated: negated_halves[0].wrapping_add(negated_halves[1]), negated_halves }
    }

    /// The values that the block stands for.
    pub fn values(&self) -> [f32; Self::LEN] {
        std::array::from_fn(|i| self.scale * f32::from(self.quads[i / 4].to_ne_bytes()[i % 4] as i8))
    }
}

/// Rounds one row to 8 bits. Blocks of `out` beyond the row's end become zeros; values that find no block are ignored.
pub fn quantize_row(isa: Isa, x: &[f32], out: &mut [QBlock]) {
    with_simd(isa, QuantizeRow { x, out });
}

struct QuantizeRow<'a> {
    x: &'a [f32],
    out: &'a mut [QBlock],
}

impl Job for QuantizeRow<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (whole, rest) = self.x.as_chunks::<{ QBlock::LEN }>();
        let mut out = self.out.iter_mut();
        // `zip` asks the first iterator first: `whole` must lead, or a block would be lost at its end.
        for (x, block) in whole.iter().zip(out.by_ref()) {
            *block = simd.quantize(x);
        }
        if !rest.is_empty()
            && let Some(block) = out.next()
        {
            let mut padded = [0.0; QBlock::LEN];
            padded[..rest.len()].copy_from_slice(rest);
            *block = simd.quantize(&padded);
        }
        out.for_each(|block| *block = QBlock::default());
    }
}

/// The form in which a matrix takes its activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    /// Rows of `f32`.
    Float,
    /// Rows of [`QBlock`].
    Quantized,
}

/// Activation rows, one after another.
#[derive(Clone, Copy, Debug)]
pub enum Activations<'a> {
    /// Row `r` starts at `values[r * stride]`.
    Float {
        /// The rows.
        values: &'a [f32],
        /// Distance between the starts of neighbouring rows.
        stride: usize,
    },
    /// Row `r` starts at `blocks[r * stride]`.
    Quantized {
        /// The rows.
        blocks: &'a [QBlock],
        /// Distance between the starts of neighbouring rows, in blocks.
        stride: usize,
    },
}

impl Activations<'_> {
    /// Which form this is.
    pub fn kind(&self) -> ActivationKind {
        match self {
            Activations::Float { .. } => ActivationKind::Float,
            Activations::Quantized { .. } => ActivationKind::Quantized,
        }
    }

    /// How many rows of `cols` activations there are.
    pub(super) fn rows(&self, cols: usize) -> usize {
        let (len, stride, row) = match *self {
            Activations::Float { values, stride } => (values.len(), stride, cols),
            Activations::Quantized { blocks, stride } => (blocks.len(), stride, QBlock::count(cols)),
        };
        rows_in(len, stride, row)
    }
}

/// How many rows of `row` items, `stride` items apart, lie wholly within `len` items.
pub(super) fn rows_in(len: usize, stride: usize, row: usize) -> usize {
    if len < row {
        return 0;
    }
    // Without a stride (one row, or rows of nothing) only the first row is certain to be there.
    (len - row).checked_div(stride).map_or(1, |steps| steps + 1)
}
