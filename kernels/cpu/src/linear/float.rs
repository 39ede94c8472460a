//! Tiles of unquantized weights.

use super::simd::{Job, LANES, Simd};
use super::strip::{COLUMNS_A_STEP, MAX_ROWS, Strip};

/// A float format of weights: for each column the 16 rows' numbers, one after another.
pub(super) trait FloatWeights: 'static {
    /// Bytes of a number.
    const BYTES: usize;

    /// One column of a tile.
    ///
    /// # Safety
    /// `column` must be valid for reading 16 numbers.
    unsafe fn load<S: Simd>(simd: S, column: *const u8) -> S::F;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl FloatWeights for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, column: *const u8) -> S::F {
        // SAFETY: the caller vouches for 16 numbers; loads need no alignment.
        unsafe { simd.load(column.cast()) }
    }
}

impl FloatWeights for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, column: *const u8) -> S::F {
        // SAFETY: the caller vouches for 16 numbers.
        unsafe { simd.load_f16(column) }
    }
}

impl FloatWeights for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, column: *const u8) -> S::F {
        // SAFETY: the caller vouches for 16 numbers.
        unsafe { simd.load_bf16(column) }
    }
}

/// The kernel of float weights for `R` rows and `T` tiles.
pub(super) struct FloatStrip<'a, W, const R: usize, const T: usize> {
    strip: &'a Strip<f32>,
    weights: std::marker::PhantomData<W>,
}

impl<'a, W: FloatWeights, const R: usize, const T: usize> FloatStrip<'a, W, R, T> {
    /// # Safety
    /// The pointers of `strip` must be as [`Strip`] says.
    #[inline(always)]
    pub(super) unsafe fn new(strip: &'a Strip<f32>) -> Self {
        Self { strip, weights: std::marker::PhantomData }
    }

    /// Adds one column to the sums.
    ///
    /// # Safety
    /// The pointers of the strip must reach column `k`.
    #[inline(always)]
    unsafe fn column<S: Simd>(&self, simd: S, k: usize, sums: &mut [[S::F; T]; R]) {
        let mut column = [simd.zero(); T];
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            for (column, tile) in column.iter_mut().zip(self.strip.weights) {
                *column = W::load(simd, tile.add(k * W::BYTES * LANES));
            }
            add_column(simd, column, &self.strip.x, k, sums);
        }
    }
}

/// Adds column `k` of the weights of `T` tiles to the sums of `R` rows.
///
/// # Safety
/// The first `R` of `x` must be valid for reading float `k`.
#[inline(always)]
pub(super) unsafe fn add_column<S: Simd, const R: usize, const T: usize>(
    simd: S,
    column: [S::F; T],
    x: &[*const f32; MAX_ROWS],
    k: usize,
    sums: &mut [[S::F; T]; R],
) {
    for (sums, x) in sums.iter_mut().zip(x) {
        // SAFETY: the caller vouches for the float.
        let x = simd.splat(unsafe { *x.add(k) });
        for (sum, weights) in sums.iter_mut().zip(column) {
            *sum = simd.fma(weights, x, *sum);
        }
    }
}

impl<W: FloatWeights, const R: usize, const T: usize> Job for FloatStrip<'_, W, R, T> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let strip = self.strip;
        let mut ahead = strip.ahead;
        let mut even = [[simd.zero(); T]; R];
        let mut odd = even;
        let mut k = 0;
        // SAFETY: `new` was promised that the pointers cover `len` columns.
        unsafe {
            while k + 1 < strip.len {
                if k % COLUMNS_A_STEP == 0 {
                    ahead.step::<S, T>(simd);
                }
                self.column(simd, k, &mut even);
                self.column(simd, k + 1, &mut odd);
                k += 2;
            }
            if k < strip.len {
                self.column(simd, k, &mut even);
            }
            for (even, odd) in even.iter_mut().zip(&odd) {
                for (even, odd) in even.iter_mut().zip(odd) {
                    *even = simd.add(*even, *odd);
                }
            }
            strip.store(simd, &even);
        }
    }
}

/// Columns that are packed together, so that what they fill stays in the first-level cache for all rows.
const PACKED_COLUMNS: usize = 64;

/// Packs up to 16 rows of numbers of `N` bytes into a tile that is all zeros.
pub(super) fn pack_tile<const N: usize>(rows: &[u8], row_bytes: usize, tile: &mut [u8]) {
    let columns = tile.as_chunks_mut::<N>().0.chunks_mut(PACKED_COLUMNS * LANES);
    for (i, columns) in columns.enumerate() {
        for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
            let numbers = row.as_chunks::<N>().0.iter().skip(i * PACKED_COLUMNS);
            for (column, number) in columns.chunks_exact_mut(LANES).zip(numbers) {
                column[lane] = *number;
            }
        }
    }
}
