//! The path of every machine: plain loops over arrays of lanes.

use super::{Job, LANES, SMALLEST_POWER, Simd};
use crate::linear::activation::QBlock;
use half::{bf16, f16};
use std::array::from_fn;

/// Needs nothing of the machine.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Adding and subtracting this rounds a small `f32` to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;

impl Simd for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type W = [[u8; 4]; LANES];
    type X = [i8; 4];

    const TILES: usize = 1;
    const ROWS: usize = 2;
    const ROWS_OF_HALVES: usize = 2;
    const REMOVES_BIAS: bool = false;

    #[inline(always)]
    fn enter(self, job: impl Job) {
        job.run(self);
    }

    #[inline(always)]
    fn zero(self) -> Self::F {
        [0.0; LANES]
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        [value; LANES]
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> Self::I {
        [value; LANES]
    }

    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        a.map(|v| v as f32)
    }

    #[inline(always)]
    fn quad(self, activations: i32) -> Self::X {
        activations.to_ne_bytes().map(|b| b as i8)
    }

    #[inline(always)]
    fn dot(self, acc: Self::I, weights: Self::W, activations: Self::X) -> Self::I {
        from_fn(|i| {
            let products: [i32; 4] = from_fn(|k| i32::from(weights[i][k]) * i32::from(activations[k]));
            acc[i] + products.iter().sum::<i32>()
        })
    }

    #[inline(always)]
    fn dot_biased(self, acc: Self::I, weights: Self::W, activations: Self::X) -> Self::I {
        self.dot(acc, weights, activations)
    }

    #[inline(always)]
    fn shr_and(self, a: Self::W, shift: u32, mask: u8) -> Self::W {
        a.map(|row| row.map(|b| (b >> shift) & mask))
    }

    #[inline(always)]
    fn shl_and(self, a: Self::W, shift: u32, mask: u8) -> Self::W {
        a.map(|row| row.map(|b| (b << shift) & mask))
    }

    #[inline(always)]
    fn or(self, a: Self::W, b: Self::W) -> Self::W {
        from_fn(|i| from_fn(|k| a[i][k] | b[i][k]))
    }

    #[inline(always)]
    fn flip_signs(self, a: Self::W) -> Self::W {
        a.map(|row| row.map(|b| b ^ 0x80))
    }

    #[inline(always)]
    fn bytes_apart(self, a: Self::W) -> Self::W {
        from_fn(|i| from_fn(|k| a[4 * (i % 4) + k][i / 4]))
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], indices: Self::W) -> Self::W {
        indices.map(|row| row.map(|b| table[usize::from(b & 15)]))
    }

    #[inline(always)]
    fn quantize(self, x: &[f32; QBlock::LEN]) -> QBlock {
        let (scale, inverse) = QBlock::scale_of(x.iter().fold(0, |max, v| max.max(v.to_bits() & 0x7fff_ffff)));
        // The sum is an integer of at most 127 in magnitude, or NaN, which becomes 0 beside a NaN scale.
        let rounded = x.map(|v| ((v * inverse + ROUND) - ROUND) as i8);
        QBlock::new(rounded, scale)
    }

    #[inline(always)]
    unsafe fn transpose(self, rows: &[*const u8; LANES], at: usize) -> [Self::W; 4] {
        // SAFETY: the caller vouches for 16 readable bytes of each row; no alignment is assumed.
        let bytes = rows.map(|row| unsafe { row.add(at).cast::<[[u8; 4]; 4]>().read_unaligned() });
        from_fn(|i| bytes.map(|row| row[i]))
    }

    #[inline(always)]
    unsafe fn load_bytes(self, source: *const u8) -> Self::W {
        // SAFETY: the caller vouches for 64 readable bytes; no alignment is assumed.
        unsafe { source.cast::<Self::W>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, target: *mut u8, value: Self::W) {
        // SAFETY: the caller vouches for 64 writable bytes; no alignment is assumed.
        unsafe { target.cast::<Self::W>().write_unaligned(value) }
    }

    #[inline(always)]
    unsafe fn load(self, source: *const f32) -> Self::F {
        // SAFETY: the caller vouches for 16 readable floats.
        unsafe { source.cast::<Self::F>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32, value: Self::F) {
        // SAFETY: the caller vouches for 16 writable floats.
        unsafe { target.cast::<Self::F>().write_unaligned(value) }
    }

    #[inline(always)]
    unsafe fn load_first(self, source: *const f32, len: usize) -> Self::F {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller vouches for `len` readable floats; `lanes` has room for 16.
        unsafe { std::ptr::copy_nonoverlapping(source, lanes.as_mut_ptr(), len.min(LANES)) };
        lanes
    }

    #[inline(always)]
    unsafe fn store_first(self, target: *mut f32, value: Self::F, len: usize) {
        // SAFETY: the caller vouches for `len` writable floats; `value` has 16.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), target, len.min(LANES)) };
    }

    #[inline(always)]
    unsafe fn load_f16(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 32 readable bytes.
        let bits = unsafe { source.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|b| f16::from_bits(u16::from_le(b)).to_f32())
    }

    #[inline(always)]
    unsafe fn load_bf16(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 32 readable bytes.
        let bits = unsafe { source.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|b| bf16::from_bits(u16::from_le(b)).to_f32())
    }

    #[inline(always)]
    unsafe fn load_u8(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe { source.cast::<[u8; LANES]>().read() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_i8(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe { source.cast::<[i8; LANES]>().read() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_halved_power(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        let exponents = unsafe { source.cast::<[u8; LANES]>().read() };
        exponents.map(|e| {
            let bits = (i32::from(e) - 1).wrapping_shl(23).max(SMALLEST_POWER << e.min(1));
            f32::from_bits(bits.cast_unsigned())
        })
    }

    #[inline(always)]
    fn prefetch(self, _address: *const u8) {}

    #[inline(always)]
    fn prefetch_to_write(self, _address: *const u8) {}
}
