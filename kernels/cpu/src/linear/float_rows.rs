//! The kernel of unquantized weights as they lie in the file: row after row.

#![allow(clippy::needless_range_loop, reason = "several arrays share their indices")]

use super::float::{FloatWeights, add_column};
use super::simd::{Job, LANES, Simd};
use super::strip::Strip;
use super::unpack::BlockRows;
use std::marker::PhantomData;

/// Columns that are transposed at a time.
const COLUMNS: usize = 16;

/// As many columns of a tile as are transposed at a time.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Square([f32; COLUMNS * LANES]);

/// The kernel for `R` rows and `T` tiles, each of which begins at its first row and ends with its last: other than [`Strip`]
/// says, a tile has as many rows as outputs. It sums in the same order as the kernel of packed weights.
pub(super) struct FloatRowsStrip<'a, W, const R: usize, const T: usize> {
    strip: &'a Strip<f32>,
    weights: PhantomData<W>,
}

impl<'a, W: FloatWeights, const R: usize, const T: usize> FloatRowsStrip<'a, W, R, T> {
    /// # Safety
    /// The pointers of `strip` must be as told above.
    #[inline(always)]
    pub(super) unsafe fn new(strip: &'a Strip<f32>) -> Self {
        Self { strip, weights: PhantomData }
    }

    /// The rows of tile `index`. Instead of rows that are missing there is the first one.
    #[inline(always)]
    fn rows(&self, index: usize) -> BlockRows {
        let Strip { weights, outputs, len, .. } = self.strip;
        // A tile that is missing altogether is the first one.
        let count = if outputs[index] == 0 { outputs[0] } else { outputs[index] };
        let mut rows = [weights[index]; LANES];
        for (lane, row) in rows.iter_mut().enumerate().take(count) {
            *row = row.wrapping_add(lane * len * W::BYTES);
        }
        rows
    }
}

/// Transposes `count` columns of the rows from column `k` on.
///
/// # Safety
/// `rows` must be valid for reading these columns.
#[inline(always)]
unsafe fn transpose<S: Simd, W: FloatWeights>(simd: S, rows: &BlockRows, k: usize, count: usize, out: &mut Square) {
    let mut wide = Square([0.0; COLUMNS * LANES]);
    let mut places = [std::ptr::null(); LANES];
    for lane in 0..LANES {
        let mut padded = [0u8; 4 * COLUMNS];
        let mut source = rows[lane].wrapping_add(k * W::BYTES);
        // SAFETY: the caller vouches for the columns; whole squares are read from the row, others from a copy.
        unsafe {
            if count < COLUMNS {
                std::ptr::copy_nonoverlapping(source, padded.as_mut_ptr(), count * W::BYTES);
                source = padded.as_ptr();
            }
            let place = wide.0.as_mut_ptr().add(lane * COLUMNS);
            simd.store(place, W::load(simd, source));
            places[lane] = place.cast::<u8>().cast_const();
        }
    }
    for i in 0..COLUMNS / 4 {
        // SAFETY: `wide` has 64 bytes for each row, `out` for each column.
        unsafe {
            let columns = simd.transpose(&places, 16 * i);
            for j in 0..4 {
                simd.store_bytes(out.0.as_mut_ptr().add((4 * i + j) * LANES).cast(), columns[j]);
            }
        }
    }
}

impl<W: FloatWeights, const R: usize, const T: usize> Job for FloatRowsStrip<'_, W, R, T> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let strip = self.strip;
        let mut rows = [[std::ptr::null(); LANES]; T];
        for t in 0..T {
            rows[t] = self.rows(t);
        }
        let mut squares = [Square([0.0; COLUMNS * LANES]); T];
        // The sums of the even columns and of the odd ones.
        let mut sums = [[[simd.zero(); T]; R]; 2];
        for first in (0..strip.len).step_by(COLUMNS) {
            let count = COLUMNS.min(strip.len - first);
            for t in 0..T {
                // SAFETY: `new` was promised that the rows have `len` columns.
                unsafe { transpose::<S, W>(simd, &rows[t], first, count, &mut squares[t]) };
            }
            for c in 0..count {
                let mut column = [simd.zero(); T];
                // SAFETY: a square has 16 columns; `new` was promised that the inputs have `len` floats.
                unsafe {
                    for t in 0..T {
                        column[t] = simd.load(squares[t].0.as_ptr().add(c * LANES));
                    }
                    add_column(simd, column, &strip.x, first + c, &mut sums[c % 2]);
                }
            }
        }
        let [mut even, odd] = sums;
        for r in 0..R {
            for t in 0..T {
                even[r][t] = simd.add(even[r][t], odd[r][t]);
            }
        }
        // SAFETY: `new` was promised places for the outputs.
        unsafe { strip.store(simd, &even) };
    }
}
