//! Tiles of unquantized weights.

use super::simd::{Job, LANES, Simd};
use super::strip::Strip;

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
}

impl<W: FloatWeights, const R: usize, const T: usize> Job for FloatStrip<'_, W, R, T> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let strip = self.strip;
        let mut tiles = [std::ptr::null(); T];
        tiles.copy_from_slice(&strip.weights[..T]);
        let mut x = [std::ptr::null(); R];
        x.copy_from_slice(&strip.x[..R]);
        // SAFETY: `new` was promised that the pointers cover `len` columns.
        unsafe {
            let mut sums = strip.load::<S, R, T>(simd);
            for k in 0..strip.len {
                let mut column = [simd.zero(); T];
                for (column, tile) in column.iter_mut().zip(tiles) {
                    *column = W::load(simd, tile.add(k * W::BYTES * LANES));
                }
                for (sums, x) in sums.iter_mut().zip(x) {
                    let x = simd.splat(*x.add(k));
                    for (sum, weights) in sums.iter_mut().zip(column) {
                        *sum = simd.fma(weights, x, *sum);
                    }
                }
            }
            strip.store(simd, &sums);
        }
    }
}

/// Packs up to 16 rows of numbers of `N` bytes into a tile that is all zeros.
pub(super) fn pack_tile<const N: usize>(rows: &[u8], row_bytes: usize, tile: &mut [u8]) {
    let (numbers, _) = tile.as_chunks_mut::<N>();
    for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
        for (column, number) in numbers.chunks_exact_mut(LANES).zip(row.as_chunks::<N>().0) {
            column[lane] = *number;
        }
    }
}
