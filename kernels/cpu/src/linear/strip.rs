//! The innermost kernels: a few activation rows times one or two weight tiles.
//!
//! This file fixes the arithmetic. In every lane, whatever the numbers of rows and tiles:
//!
//! - quantized weights: per block of 32 columns exact integer dots `c` (one, or one for each half), then
//!   `t = c·s`, `t = c'·s' + t` for a second half, `t = m·(−Σq) + t` for each minimum, `y = t·d + y`;
//! - float weights: `y = w·x + y`, column after column.
//!
//! `y` may rest in memory between two panels of columns, which changes nothing.

use super::activation::QBlock;
use super::codes::{self, Codes};
use super::scales::vectors;
use super::simd::{Job, LANES, Simd};

/// Rows that the largest kernel takes.
pub(super) const MAX_ROWS: usize = 6;
/// Tiles that the largest kernel takes.
pub(super) const MAX_TILES: usize = 2;

/// What a kernel reads and writes; `X` is [`QBlock`] or `f32`. A kernel for fewer rows or tiles uses the first ones.
///
/// Whoever runs a kernel vouches for the pointers: `weights` cover `len` blocks (columns, for floats) of each tile, `x`
/// as many of each row, and `y[r]` has a place for the first `outputs[t]` lanes of tile `t` from `16·t` on.
pub(super) struct Strip<X> {
    pub(super) weights: [*const u8; MAX_TILES],
    /// The expanded scales of the tiles, side by side for each block.
    pub(super) scales: *const f32,
    pub(super) x: [*const X; MAX_ROWS],
    pub(super) y: [*mut f32; MAX_ROWS],
    pub(super) len: usize,
    pub(super) outputs: [usize; MAX_TILES],
    /// Whether `y` starts from zero, not from what is there.
    pub(super) first: bool,
}

impl<X> Strip<X> {
    /// The sums so far.
    ///
    /// # Safety
    /// As [`Strip`] says.
    #[inline(always)]
    pub(super) unsafe fn load<S: Simd, const R: usize, const T: usize>(&self, simd: S) -> [[S::F; T]; R] {
        let mut sums = [[simd.zero(); T]; R];
        if !self.first {
            for (r, t) in pairs::<R, T>() {
                // SAFETY: `y[r]` has `outputs[t]` floats there; without any the pointer is not read.
                sums[r][t] = unsafe { simd.load_first(self.y[r].wrapping_add(t * LANES), self.outputs[t]) };
            }
        }
        sums
    }

    /// Puts the sums where they belong.
    ///
    /// # Safety
    /// As [`Strip`] says.
    #[inline(always)]
    pub(super) unsafe fn store<S: Simd, const R: usize, const T: usize>(&self, simd: S, sums: &[[S::F; T]; R]) {
        for (r, t) in pairs::<R, T>() {
            // SAFETY: `y[r]` has `outputs[t]` floats there; without any the pointer is not written.
            unsafe { simd.store_first(self.y[r].wrapping_add(t * LANES), sums[r][t], self.outputs[t]) };
        }
    }
}

/// What a kernel of quantized weights must know of the weights.
pub(super) trait Recipe: 'static {
    type Codes: Codes;
    /// Whether the halves of a block have scales (and minimums) of their own.
    const HALVES: bool;
    /// Whether there are minimums.
    const MINS: bool;
    /// Vectors that the scales of one block expand to.
    const VECTORS: usize = vectors(Self::HALVES, Self::MINS);
}

/// The kernel of quantized weights for `R` rows and `T` tiles.
pub(super) struct QuantizedStrip<'a, K, const R: usize, const T: usize> {
    strip: &'a Strip<QBlock>,
    recipe: std::marker::PhantomData<K>,
}

impl<'a, K: Recipe, const R: usize, const T: usize> QuantizedStrip<'a, K, R, T> {
    /// # Safety
    /// The pointers of `strip` must be as [`Strip`] says.
    #[inline(always)]
    pub(super) unsafe fn new(strip: &'a Strip<QBlock>) -> Self {
        Self { strip, recipe: std::marker::PhantomData }
    }

    /// Adds the dot products of `N` quads from quad `from` on.
    ///
    /// # Safety
    /// `weights` and `x` must point to one block each.
    #[inline(always)]
    unsafe fn dots<S: Simd, const N: usize>(
        simd: S,
        weights: [*const u8; T],
        x: [*const QBlock; R],
        from: usize,
        mut sums: [[S::I; T]; R],
    ) -> [[S::I; T]; R] {
        for q in from..from + N {
            // SAFETY: the caller vouches for the block.
            let weights = weights.map(|block| unsafe { codes::quad::<S, K::Codes>(simd, block, q) });
            for (sums, x) in sums.iter_mut().zip(x) {
                // SAFETY: the caller vouches for the block; `q` is below 8.
                let activations = simd.quad(unsafe { (*x).quads[q] });
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = codes::dot::<S, K::Codes>(simd, *sum, weights, activations);
                }
            }
        }
        sums
    }

    /// The accumulators' start, given each row's negated sum of the activations to come.
    #[inline(always)]
    fn start<S: Simd>(simd: S, negated_sums: [i32; R]) -> [[S::I; T]; R] {
        negated_sums.map(|sum| [codes::start::<S, K::Codes>(simd, sum); T])
    }

    /// Adds one block to the sums.
    ///
    /// # Safety
    /// `weights` and `x` must point to one block each, `scales` to the vectors of one block of each tile.
    #[inline(always)]
    unsafe fn block<S: Simd>(
        simd: S,
        weights: [*const u8; T],
        scales: *const f32,
        x: [*const QBlock; R],
        sums: &mut [[S::F; T]; R],
    ) {
        let scale = |t: usize, j: usize| {
            // SAFETY: `j` is below the number of vectors of a tile.
            unsafe { simd.load(scales.add((t * K::VECTORS + j) * LANES)) }
        };
        // SAFETY: the caller vouches for the blocks.
        unsafe {
            let mut terms = [[simd.zero(); T]; R];
            if K::HALVES {
                let ints = Self::start(simd, x.map(|x| (*x).negated_halves[0]));
                let ints = Self::dots::<S, 4>(simd, weights, x, 0, ints);
                for (r, t) in pairs::<R, T>() {
                    terms[r][t] = simd.mul(simd.to_float(ints[r][t]), scale(t, 0));
                }
                let ints = Self::start(simd, x.map(|x| (*x).negated_halves[1]));
                let ints = Self::dots::<S, 4>(simd, weights, x, 4, ints);
                for (r, t) in pairs::<R, T>() {
                    terms[r][t] = simd.fma(simd.to_float(ints[r][t]), scale(t, 1), terms[r][t]);
                }
            } else {
                let ints = Self::start(simd, x.map(|x| (*x).negated_sum));
                let ints = Self::dots::<S, 8>(simd, weights, x, 0, ints);
                for (r, t) in pairs::<R, T>() {
                    terms[r][t] = simd.mul(simd.to_float(ints[r][t]), scale(t, 0));
                }
            }
            for (r, t) in pairs::<R, T>() {
                if K::MINS && K::HALVES {
                    for half in 0..2 {
                        let sum = simd.to_float(simd.splat_int((*x[r]).negated_halves[half]));
                        terms[r][t] = simd.fma(sum, scale(t, 2 + half), terms[r][t]);
                    }
                } else if K::MINS {
                    let sum = simd.to_float(simd.splat_int((*x[r]).negated_sum));
                    terms[r][t] = simd.fma(sum, scale(t, 1), terms[r][t]);
                }
                sums[r][t] = simd.fma(terms[r][t], simd.splat((*x[r]).scale), sums[r][t]);
            }
        }
    }
}

/// Every row and tile of a kernel.
#[inline(always)]
fn pairs<const R: usize, const T: usize>() -> impl Iterator<Item = (usize, usize)> {
    (0..R).flat_map(|r| (0..T).map(move |t| (r, t)))
}

/// How far ahead of its use a kernel that waits for memory asks for weights.
const PREFETCH_BYTES: usize = 2048;

impl<K: Recipe, const R: usize, const T: usize> Job for QuantizedStrip<'_, K, R, T> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let strip = self.strip;
        let stride = T * K::VECTORS * LANES;
        let block_bytes = codes::block_bytes::<K::Codes>();
        let mut weights = [std::ptr::null(); T];
        weights.copy_from_slice(&strip.weights[..T]);
        let mut x = [std::ptr::null(); R];
        x.copy_from_slice(&strip.x[..R]);
        let mut scales = strip.scales;
        // SAFETY: `new` was promised that the pointers cover `len` blocks.
        unsafe {
            let mut sums = strip.load::<S, R, T>(simd);
            for _ in 0..strip.len {
                if T == 1 {
                    for line in (0..block_bytes).step_by(64) {
                        simd.prefetch(weights[0].wrapping_add(PREFETCH_BYTES + line));
                    }
                }
                Self::block(simd, weights, scales, x, &mut sums);
                weights = weights.map(|w| w.add(block_bytes));
                x = x.map(|x| x.add(1));
                scales = scales.add(stride);
            }
            strip.store(simd, &sums);
        }
    }
}
