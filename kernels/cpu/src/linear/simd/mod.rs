//! The vector operations that the matrix kernels are written in, and one implementation per instruction set.
//!
//! A weight tile holds [`LANES`] output rows and every vector has one lane per row, so no kernel ever adds across lanes.
//! The kernels are generic over [`Simd`]; [`Simd::enter`] compiles them once for each instruction set.

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use super::activation::QBlock;
use crate::isa::Isa;
use portable::Portable;

/// Output rows of a tile: the lanes of every vector.
pub(crate) const LANES: usize = 16;

/// The bits of 2^−128, a subnormal number: what the exponent byte 0 stands for in [`Simd::load_halved_power`].
///
/// Byte 1 stands for twice that; from 2 on bytes are exponents of normal numbers, one above the stored one.
const SMALLEST_POWER: i32 = 0x0020_0000;

/// Work that is compiled for one instruction set.
pub(crate) trait Job {
    /// Does the work. Must be `#[inline(always)]`, as must everything it calls that uses `S`.
    fn run<S: Simd>(self, simd: S);
}

/// One instruction set. A value of an implementation is proof that this machine has it.
///
/// Vectors: `F` holds 16 `f32`, `I` holds 16 `i32`, `W` holds 16 × 4 unsigned bytes (four neighbouring weights of each
/// row), `X` holds four neighbouring `i8` activations repeated for each row.
pub(crate) trait Simd: Copy + 'static {
    type F: Copy;
    type I: Copy;
    type W: Copy;
    type X: Copy;

    /// Tiles that a kernel for several activation rows works on at once (1 or 2).
    const TILES: usize;
    /// Activation rows that fit in the registers, at most 6.
    const ROWS: usize;
    /// The same for formats with two scales in a block, whose kernels need a third set of accumulators.
    const ROWS_OF_HALVES: usize;
    /// Whether [`Simd::dot_biased`] multiplies by the value, not by what is stored.
    const REMOVES_BIAS: bool;

    /// Runs `job` with the instruction set enabled.
    fn enter(self, job: impl Job);

    fn zero(self) -> Self::F;
    fn splat(self, value: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a × b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a × b + c`; fused on every path but the portable one.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    fn splat_int(self, value: i32) -> Self::I;
    fn to_float(self, a: Self::I) -> Self::F;

    /// Four activations for every lane.
    fn quad(self, activations: i32) -> Self::X;
    /// Adds to each lane the dot product of its four weights (each below 128) with the activations.
    fn dot(self, acc: Self::I, weights: Self::W, activations: Self::X) -> Self::I;
    /// Like [`Simd::dot`] for weights stored as `value + 128`. The bias stays in unless [`Simd::REMOVES_BIAS`].
    fn dot_biased(self, acc: Self::I, weights: Self::W, activations: Self::X) -> Self::I;

    /// Each byte shifted right by `shift` (0 to 7), then masked; `mask << shift` must fit in a byte.
    fn shr_and(self, a: Self::W, shift: u32, mask: u8) -> Self::W;
    /// Each byte shifted left by `shift` (0 to 7), then masked; the lowest `shift` bits of `mask` must be zero.
    fn shl_and(self, a: Self::W, shift: u32, mask: u8) -> Self::W;
    fn or(self, a: Self::W, b: Self::W) -> Self::W;
    /// Each byte with its highest bit flipped.
    fn flip_signs(self, a: Self::W) -> Self::W;
    /// Byte `k` of lane `l` as byte `16k + l`.
    fn bytes_apart(self, a: Self::W) -> Self::W;
    /// Each byte (below 16) replaced by the entry of the table with that index.
    fn lookup(self, table: &[u8; 16], indices: Self::W) -> Self::W;

    /// The activations of one block, rounded to 8 bits; the same bits on every path.
    fn quantize(self, x: &[f32; QBlock::LEN]) -> QBlock;

    /// 16 bytes of 16 rows, from byte `at` of each: vector `i` has bytes `4i` to `4i + 3` of each row in the row's lane.
    ///
    /// # Safety
    /// `rows` must be valid for reading these bytes.
    unsafe fn transpose(self, rows: &[*const u8; LANES], at: usize) -> [Self::W; 4];
    /// # Safety
    /// `source` must be valid for reading 64 bytes.
    unsafe fn load_bytes(self, source: *const u8) -> Self::W;
    /// # Safety
    /// `target` must be valid for writing 64 bytes.
    unsafe fn store_bytes(self, target: *mut u8, value: Self::W);
    /// # Safety
    /// `source` must be valid for reading 16 `f32`.
    unsafe fn load(self, source: *const f32) -> Self::F;
    /// # Safety
    /// `target` must be valid for writing 16 `f32`.
    unsafe fn store(self, target: *mut f32, value: Self::F);
    /// The first `len` lanes from memory, zeros in the others.
    ///
    /// # Safety
    /// `source` must be valid for reading `len` (at most 16) `f32`.
    unsafe fn load_first(self, source: *const f32, len: usize) -> Self::F;
    /// # Safety
    /// `target` must be valid for writing `len` (at most 16) `f32`.
    unsafe fn store_first(self, target: *mut f32, value: Self::F, len: usize);
    /// 16 half-precision numbers.
    ///
    /// # Safety
    /// `source` must be valid for reading 32 bytes.
    unsafe fn load_f16(self, source: *const u8) -> Self::F;
    /// 16 bfloat16 numbers.
    ///
    /// # Safety
    /// `source` must be valid for reading 32 bytes.
    unsafe fn load_bf16(self, source: *const u8) -> Self::F;
    /// 16 unsigned bytes as floats.
    ///
    /// # Safety
    /// `source` must be valid for reading 16 bytes.
    unsafe fn load_u8(self, source: *const u8) -> Self::F;
    /// 16 signed bytes as floats.
    ///
    /// # Safety
    /// `source` must be valid for reading 16 bytes.
    unsafe fn load_i8(self, source: *const u8) -> Self::F;
    /// 16 powers of two: byte `e` stands for 2^(e − 128).
    ///
    /// # Safety
    /// `source` must be valid for reading 16 bytes.
    unsafe fn load_halved_power(self, source: *const u8) -> Self::F;

    /// Asks for the cache line at `address`, which need not exist, in the second-level cache.
    fn prefetch(self, address: *const u8);
    /// Asks for the cache line at `address`, which need not exist, to write to it.
    fn prefetch_to_write(self, address: *const u8);
}

/// Runs `job` on the path `isa`, or on the portable one where this machine lacks it.
pub(crate) fn with_simd(isa: Isa, job: impl Job) {
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512Vnni => {
            if let Some(simd) = avx512::Avx512::new() {
                return simd.enter(job);
            }
        }
        Isa::Avx2 => {
            if let Some(simd) = avx2::Avx2::new() {
                return simd.enter(job);
            }
        }
        Isa::Portable => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    Portable.enter(job);
}
