//! AVX2 with FMA and F16C: a vector is two registers of eight rows each.

use super::{Job, LANES, SMALLEST_POWER, Simd};
use crate::isa::Isa;
use crate::linear::activation::QBlock;
use std::arch::x86_64::*;

/// Proof that this machine has [`Isa::Avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn new() -> Option<Self> {
        Isa::Avx2.is_available().then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn run_with_features(simd: Avx2, job: impl Job) {
    job.run(simd);
}

/// The four bytes' products of each lane, from the sums of two.
#[inline(always)]
fn add_pairs(acc: __m256i, pairs: __m256i) -> __m256i {
    // SAFETY: only called by methods of `Avx2`, whose values prove that the instructions exist.
    unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))) }
}

/// The sum of the eight lanes.
#[inline(always)]
fn sum(a: __m256i) -> i32 {
    // SAFETY: only called by methods of `Avx2`, whose values prove that the instructions exist.
    unsafe {
        let four = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
        let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
        _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two)))
    }
}

/// Eight of the powers of [`Simd::load_halved_power`].
#[inline(always)]
fn halved_powers(exponents: __m256i) -> __m256 {
    // SAFETY: only called by methods of `Avx2`, whose values prove that the instructions exist.
    unsafe {
        let one = _mm256_set1_epi32(1);
        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(exponents, one));
        let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(SMALLEST_POWER), _mm256_min_epi32(exponents, one));
        _mm256_castsi256_ps(_mm256_max_epi32(normal, subnormal))
    }
}

// SAFETY (of every block below that touches no memory): a value of `Avx2` proves that the instructions exist.
impl Simd for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type W = [__m256i; 2];
    type X = __m256i;

    const TILES: usize = 1;
    const ROWS: usize = 2;
    const ROWS_OF_HALVES: usize = 2;
    const REMOVES_BIAS: bool = true;

    #[inline(always)]
    fn enter(self, job: impl Job) {
        // SAFETY: `self` proves that the features exist.
        unsafe { run_with_features(self, job) }
    }

    #[inline(always)]
    fn zero(self) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_setzero_ps(); 2] }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> Self::I {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_set1_epi32(value); 2] }
    }

    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])] }
    }

    #[inline(always)]
    fn quad(self, activations: i32) -> __m256i {
        // SAFETY: see the head of this block.
        unsafe { _mm256_set1_epi32(activations) }
    }

    #[inline(always)]
    fn dot(self, acc: Self::I, weights: Self::W, activations: __m256i) -> Self::I {
        // Two products of a weight below 128 fit in 16 bits, so the saturating instruction is exact.
        // SAFETY: see the head of this block.
        unsafe {
            [
                add_pairs(acc[0], _mm256_maddubs_epi16(weights[0], activations)),
                add_pairs(acc[1], _mm256_maddubs_epi16(weights[1], activations)),
            ]
        }
    }

    #[inline(always)]
    fn dot_biased(self, acc: Self::I, weights: Self::W, activations: __m256i) -> Self::I {
        // Without the bias a weight is at most 128 in magnitude: moving its sign to the activation keeps pairs in 16 bits.
        // SAFETY: see the head of this block.
        unsafe {
            let bias = _mm256_set1_epi8(-128);
            let signed = [_mm256_xor_si256(weights[0], bias), _mm256_xor_si256(weights[1], bias)];
            let moved = [_mm256_sign_epi8(activations, signed[0]), _mm256_sign_epi8(activations, signed[1])];
            [
                add_pairs(acc[0], _mm256_maddubs_epi16(_mm256_abs_epi8(signed[0]), moved[0])),
                add_pairs(acc[1], _mm256_maddubs_epi16(_mm256_abs_epi8(signed[1]), moved[1])),
            ]
        }
    }

    #[inline(always)]
    fn shr_and(self, a: Self::W, shift: u32, mask: u8) -> Self::W {
        // SAFETY: see the head of this block.
        unsafe {
            let (shift, mask) = (_mm_cvtsi32_si128(shift as i32), _mm256_set1_epi8(mask as i8));
            let shifted = [_mm256_srl_epi16(a[0], shift), _mm256_srl_epi16(a[1], shift)];
            [_mm256_and_si256(shifted[0], mask), _mm256_and_si256(shifted[1], mask)]
        }
    }

    #[inline(always)]
    fn shl_and(self, a: Self::W, shift: u32, mask: u8) -> Self::W {
        // SAFETY: see the head of this block.
        unsafe {
            let (shift, mask) = (_mm_cvtsi32_si128(shift as i32), _mm256_set1_epi8(mask as i8));
            let shifted = [_mm256_sll_epi16(a[0], shift), _mm256_sll_epi16(a[1], shift)];
            [_mm256_and_si256(shifted[0], mask), _mm256_and_si256(shifted[1], mask)]
        }
    }

    #[inline(always)]
    fn or(self, a: Self::W, b: Self::W) -> Self::W {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
    }

    #[inline(always)]
    fn flip_signs(self, a: Self::W) -> Self::W {
        // SAFETY: see the head of this block.
        unsafe {
            let sign = _mm256_set1_epi8(-128);
            [_mm256_xor_si256(a[0], sign), _mm256_xor_si256(a[1], sign)]
        }
    }

    #[inline(always)]
    fn bytes_apart(self, a: Self::W) -> Self::W {
        // SAFETY: see the head of this block.
        unsafe {
            // The same byte of four lanes becomes a lane, then the lanes go where they belong.
            let fours = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let (fours, order) = (_mm256_broadcastsi128_si256(fours), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            let low = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(a[0], fours), order);
            let high = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(a[1], fours), order);
            let (even, odd) = (_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
            [_mm256_permute2x128_si256::<0x20>(even, odd), _mm256_permute2x128_si256::<0x31>(even, odd)]
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], indices: Self::W) -> Self::W {
        // SAFETY: see the head of this block; the table has the 16 bytes that are read.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, indices[0]), _mm256_shuffle_epi8(table, indices[1])]
        }
    }

    #[inline(always)]
    fn quantize(self, x: &[f32; QBlock::LEN]) -> QBlock {
        // SAFETY: see the head of this block; `x` has the 32 floats read, `quads` the 32 bytes written.
        unsafe {
            let parts: [__m256; 4] = std::array::from_fn(|i| _mm256_loadu_ps(x.as_ptr().add(8 * i)));
            let magnitude = _mm256_set1_epi32(0x7fff_ffff);
            let bits = parts.map(|p| _mm256_and_si256(_mm256_castps_si256(p), magnitude));
            let eight = _mm256_max_epi32(_mm256_max_epi32(bits[0], bits[1]), _mm256_max_epi32(bits[2], bits[3]));
            let four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
            let (scale, inverse) = QBlock::scale_of(_mm_cvtsi128_si32(one) as u32);
            let inverse = _mm256_set1_ps(inverse);
            let ints = parts.map(|p| _mm256_cvtps_epi32(_mm256_mul_ps(p, inverse)));
            // Packing works within 128-bit lanes; the permutation restores the order.
            let low = _mm256_packs_epi32(ints[0], ints[1]);
            let high = _mm256_packs_epi32(ints[2], ints[3]);
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
            let mut quads = [0; 8];
            _mm256_storeu_si256(quads.as_mut_ptr().cast(), bytes);
            let halves = [_mm256_add_epi32(ints[0], ints[1]), _mm256_add_epi32(ints[2], ints[3])];
            QBlock::with_sums(quads, scale, halves.map(sum))
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, rows: &[*const u8; LANES], at: usize) -> [Self::W; 4] {
        // Half g of register j starts as row 4g + j of eight, so that transposing within halves leaves rows in their lanes.
        // SAFETY: the caller vouches for 16 readable bytes of each row.
        unsafe {
            let mut out = [[_mm256_setzero_si256(); 2]; 4];
            for register in 0..2 {
                let mut v = [_mm256_setzero_si256(); 4];
                for j in 0..4 {
                    let first = _mm_loadu_si128(rows[8 * register + j].add(at).cast());
                    let second = _mm_loadu_si128(rows[8 * register + 4 + j].add(at).cast());
                    v[j] = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(first), second);
                }
                let (low01, low23) = (_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpacklo_epi32(v[2], v[3]));
                let (high01, high23) = (_mm256_unpackhi_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[2], v[3]));
                out[0][register] = _mm256_unpacklo_epi64(low01, low23);
                out[1][register] = _mm256_unpackhi_epi64(low01, low23);
                out[2][register] = _mm256_unpacklo_epi64(high01, high23);
                out[3][register] = _mm256_unpackhi_epi64(high01, high23);
            }
            out
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, source: *const u8) -> Self::W {
        // SAFETY: the caller vouches for 64 readable bytes.
        unsafe { [_mm256_loadu_si256(source.cast()), _mm256_loadu_si256(source.add(32).cast())] }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, target: *mut u8, value: Self::W) {
        // SAFETY: the caller vouches for 64 writable bytes.
        unsafe {
            _mm256_storeu_si256(target.cast(), value[0]);
            _mm256_storeu_si256(target.add(32).cast(), value[1]);
        }
    }

    #[inline(always)]
    unsafe fn load(self, source: *const f32) -> Self::F {
        // SAFETY: the caller vouches for 16 readable floats.
        unsafe { [_mm256_loadu_ps(source), _mm256_loadu_ps(source.add(8))] }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32, value: Self::F) {
        // SAFETY: the caller vouches for 16 writable floats.
        unsafe {
            _mm256_storeu_ps(target, value[0]);
            _mm256_storeu_ps(target.add(8), value[1]);
        }
    }

    #[inline(always)]
    unsafe fn load_first(self, source: *const f32, len: usize) -> Self::F {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller vouches for `len` readable floats; `lanes` has 16.
        unsafe {
            std::ptr::copy_nonoverlapping(source, lanes.as_mut_ptr(), len.min(LANES));
            self.load(lanes.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store_first(self, target: *mut f32, value: Self::F, len: usize) {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller vouches for `len` writable floats; `lanes` has 16.
        unsafe {
            self.store(lanes.as_mut_ptr(), value);
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), target, len.min(LANES));
        }
    }

    #[inline(always)]
    unsafe fn load_f16(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 32 readable bytes.
        unsafe {
            [_mm256_cvtph_ps(_mm_loadu_si128(source.cast())), _mm256_cvtph_ps(_mm_loadu_si128(source.add(16).cast()))]
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 32 readable bytes.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(source.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(source.add(16).cast()));
            let shifted = [_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high)];
            [_mm256_castsi256_ps(shifted[0]), _mm256_castsi256_ps(shifted[1])]
        }
    }

    #[inline(always)]
    unsafe fn load_u8(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe {
            let low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(source.cast()));
            let high = _mm256_cvtepu8_epi32(_mm_loadl_epi64(source.add(8).cast()));
            self.to_float([low, high])
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe {
            let low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(source.cast()));
            let high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(source.add(8).cast()));
            self.to_float([low, high])
        }
    }

    #[inline(always)]
    unsafe fn load_halved_power(self, source: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe {
            [
                halved_powers(_mm256_cvtepu8_epi32(_mm_loadl_epi64(source.cast()))),
                halved_powers(_mm256_cvtepu8_epi32(_mm_loadl_epi64(source.add(8).cast()))),
            ]
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: prefetching is a hint that never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }

    #[inline(always)]
    fn prefetch_to_write(self, address: *const u8) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(address.cast()) }
    }
}
