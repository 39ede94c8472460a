//! The innermost kernels: a few activation rows times one or two weight tiles.
//!
//! This file fixes the arithmetic. In every lane, whatever the numbers of rows and tiles:
//!
//! - quantized weights: per block of 32 columns exact integer dots `c` (one, or one for each half), then
//!   `t = c·s`, `t = c'·s' + t` for a second half, `t = (m/128)·(−128·Σq) + t` for each minimum, `y = t·d + y`;
//! - float weights: `a = w·x + a` for the even columns, `b = w·x + b` for the odd ones, `y = a + b`.
//!
//! `y` may rest in memory between two panels of columns, which changes nothing. Where activations come with what rounding has
//! left of them, the rest has a `y` of its own, as if it were another row, and the two are added at last.
//!
//! The compiler enables an instruction set for a function and what is inlined into it. A closure with vector operations
//! may be compiled before it is inlined, and then every operation becomes a call: so there are only loops here.

#![allow(clippy::needless_range_loop, reason = "several arrays share their indices")]

use super::activation::QBlock;
use super::ahead::Ahead;
use super::codes::{self, Codes};
use super::scales::vectors;
use super::simd::{Job, LANES, Simd};
use std::ops::Range;

/// Rows that the largest kernel takes.
pub(super) const MAX_ROWS: usize = 6;
/// Tiles that the largest kernel takes.
pub(super) const MAX_TILES: usize = 2;

/// Columns of floats between two looks ahead.
pub(super) const COLUMNS_A_STEP: usize = 16;

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
    /// Weights that will be needed soon, for which the kernel asks with every block, or every [`COLUMNS_A_STEP`] columns of
    /// floats.
    pub(super) ahead: Ahead,
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
            for r in 0..R {
                for t in 0..T {
                    // SAFETY: `y[r]` has `outputs[t]` floats there; without any the pointer is not read.
                    sums[r][t] = unsafe { simd.load_first(self.y[r].wrapping_add(t * LANES), self.outputs[t]) };
                }
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
        for r in 0..R {
            for t in 0..T {
                // SAFETY: `y[r]` has `outputs[t]` floats there; without any the pointer is not written.
                unsafe { simd.store_first(self.y[r].wrapping_add(t * LANES), sums[r][t], self.outputs[t]) };
            }
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

    /// The dot products of a part of a block.
    ///
    /// # Safety
    /// `weights` and `x` must point to one block each.
    #[inline(always)]
    unsafe fn dots<S: Simd>(simd: S, weights: [*const u8; T], x: [*const QBlock; R], part: Part) -> [[S::I; T]; R] {
        let mut sums = [[simd.splat_int(0); T]; R];
        // SAFETY: the caller vouches for the blocks; quads are below 8.
        unsafe {
            for r in 0..R {
                sums[r] = [codes::start::<S, K::Codes>(simd, part.negated(&*x[r])); T];
            }
            for q in part.quads() {
                let mut quads = [codes::quad::<S, K::Codes>(simd, weights[0], q); T];
                for t in 1..T {
                    quads[t] = codes::quad::<S, K::Codes>(simd, weights[t], q);
                }
                for r in 0..R {
                    let activations = simd.quad((*x[r]).quads[q]);
                    for t in 0..T {
                        sums[r][t] = codes::dot::<S, K::Codes>(simd, sums[r][t], quads[t], activations);
                    }
                }
            }
        }
        sums
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
        let mut terms = [[simd.zero(); T]; R];
        // SAFETY: the caller vouches for the blocks and the vectors.
        unsafe {
            if K::HALVES {
                Self::scaled(simd, weights, scales, x, Part::First, &mut terms);
                Self::scaled(simd, weights, scales.add(LANES), x, Part::Second, &mut terms);
            } else {
                Self::scaled(simd, weights, scales, x, Part::Whole, &mut terms);
            }
            if K::MINS && K::HALVES {
                Self::subtract_mins(simd, scales.add(2 * LANES), x, Part::First, &mut terms);
                Self::subtract_mins(simd, scales.add(3 * LANES), x, Part::Second, &mut terms);
            } else if K::MINS {
                Self::subtract_mins(simd, scales.add(LANES), x, Part::Whole, &mut terms);
            }
            for r in 0..R {
                let scale = simd.splat((*x[r]).scale);
                for t in 0..T {
                    sums[r][t] = simd.fma(terms[r][t], scale, sums[r][t]);
                }
            }
        }
    }

    /// Adds a part of a block to the terms, which it starts unless it is the second one.
    ///
    /// # Safety
    /// As [`Self::block`]; `scales` must point to the part's vector of the first tile.
    #[inline(always)]
    unsafe fn scaled<S: Simd>(
        simd: S,
        weights: [*const u8; T],
        scales: *const f32,
        x: [*const QBlock; R],
        part: Part,
        terms: &mut [[S::F; T]; R],
    ) {
        // SAFETY: the caller vouches for the blocks and the vectors.
        unsafe {
            let ints = Self::dots(simd, weights, x, part);
            for t in 0..T {
                let scale = simd.load(scales.add(t * K::VECTORS * LANES));
                for r in 0..R {
                    let dot = simd.to_float(ints[r][t]);
                    terms[r][t] = match part {
                        Part::Second => simd.fma(dot, scale, terms[r][t]),
                        Part::Whole | Part::First => simd.mul(dot, scale),
                    };
                }
            }
        }
    }

    /// Subtracts from the terms a part's minimums times the sums of their activations. Minimums come divided by 128.
    ///
    /// # Safety
    /// As [`Self::block`]; `mins` must point to the part's vector of the first tile.
    #[inline(always)]
    unsafe fn subtract_mins<S: Simd>(
        simd: S,
        mins: *const f32,
        x: [*const QBlock; R],
        part: Part,
        terms: &mut [[S::F; T]; R],
    ) {
        // SAFETY: the caller vouches for the blocks and the vectors.
        unsafe {
            for r in 0..R {
                let negated = simd.to_float(simd.splat_int(part.negated(&*x[r])));
                for t in 0..T {
                    let min = simd.load(mins.add(t * K::VECTORS * LANES));
                    terms[r][t] = simd.fma(min, negated, terms[r][t]);
                }
            }
        }
    }
}

/// A part of a block that has a scale of its own.
#[derive(Clone, Copy)]
enum Part {
    Whole,
    First,
    Second,
}

impl Part {
    /// Its quads.
    #[inline(always)]
    fn quads(self) -> Range<usize> {
        match self {
            Part::Whole => 0..8,
            Part::First => 0..4,
            Part::Second => 4..8,
        }
    }

    /// −128 times the sum of its activations.
    #[inline(always)]
    fn negated(self, x: &QBlock) -> i32 {
        match self {
            Part::Whole => x.negated,
            Part::First => x.negated_halves[0],
            Part::Second => x.negated_halves[1],
        }
    }
}

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
        let mut ahead = strip.ahead;
        // SAFETY: `new` was promised that the pointers cover `len` blocks.
        unsafe {
            let mut sums = strip.load::<S, R, T>(simd);
            for _ in 0..strip.len {
                ahead.step::<S, T>(simd);
                Self::block(simd, weights, scales, x, &mut sums);
                for t in 0..T {
                    weights[t] = weights[t].add(block_bytes);
                }
                for r in 0..R {
                    x[r] = x[r].add(1);
                }
                scales = scales.add(stride);
            }
            strip.store(simd, &sums);
        }
    }
}
