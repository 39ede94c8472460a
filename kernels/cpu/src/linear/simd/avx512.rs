//! AVX-512 with VNNI: a vector is one register and `vpdpbusd` multiplies four weights of each row at once.

use super::{Job, LANES, SMALLEST_POWER, Simd};
use crate::isa::Isa;
use crate::linear::activation::QBlock;
use std::arch::x86_64::*;

/// Proof that this machine has [`Isa::Avx512Vnni`].
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn new() -> Option<Self> {
        Isa::Avx512Vnni.is_available().then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline(never)]
fn run_with_features(simd: Avx512, job: impl Job) {
    job.run(simd);
}

/// The lowest `len` bits.
#[inline(always)]
fn first_lanes(len: usize) -> __mmask16 {
    if len >= 16 { u16::MAX } else { (1 << len) - 1 }
}

// SAFETY (of every block below that touches no memory): a value of `Avx512` proves that the instructions exist.
impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type W = __m512i;
    type X = __m512i;

    const TILES: usize = 2;
    const ROWS: usize = 6;
    const ROWS_OF_HALVES: usize = 4;
    const REMOVES_BIAS: bool = false;

    #[inline(always)]
    fn enter(self, job: impl Job) {
        // SAFETY: `self` proves that the features exist.
        unsafe { run_with_features(self, job) }
    }

    #[inline(always)]
    fn zero(self) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> __m512i {
        // SAFETY: see the head of this block.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    fn to_float(self, a: __m512i) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_cvtepi32_ps(a) }
    }

    #[inline(always)]
    fn quad(self, activations: i32) -> __m512i {
        self.splat_int(activations)
    }

    #[inline(always)]
    fn dot(self, acc: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
        // SAFETY: see the head of this block.
        unsafe { _mm512_dpbusd_epi32(acc, weights, activations) }
    }

    #[inline(always)]
    fn dot_biased(self, acc: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
        self.dot(acc, weights, activations)
    }

    #[inline(always)]
    fn shr_and(self, a: __m512i, shift: u32, mask: u8) -> __m512i {
        // SAFETY: see the head of this block.
        unsafe {
            let shifted = if shift == 0 { a } else { _mm512_srl_epi16(a, _mm_cvtsi32_si128(shift as i32)) };
            _mm512_and_si512(shifted, _mm512_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    fn shl_and(self, a: __m512i, shift: u32, mask: u8) -> __m512i {
        // SAFETY: see the head of this block.
        unsafe {
            let shifted = if shift == 0 { a } else { _mm512_sll_epi16(a, _mm_cvtsi32_si128(shift as i32)) };
            _mm512_and_si512(shifted, _mm512_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see the head of this block.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn flip_signs(self, a: __m512i) -> __m512i {
        // SAFETY: see the head of this block.
        unsafe { _mm512_xor_si512(a, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn bytes_apart(self, a: __m512i) -> __m512i {
        // SAFETY: see the head of this block.
        unsafe {
            // The same byte of four lanes becomes a lane, then the lanes go where they belong.
            let fours = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let fours = _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(fours));
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_permutexvar_epi32(order, fours)
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], indices: __m512i) -> __m512i {
        // SAFETY: see the head of this block; the table has the 16 bytes that are read.
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), indices)
        }
    }

    #[inline(always)]
    fn quantize(self, x: &[f32; QBlock::LEN]) -> QBlock {
        // SAFETY: see the head of this block; `x` has the 32 floats read, `quads` the 32 bytes written.
        unsafe {
            let (a, b) = (_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16)));
            let magnitude = _mm512_set1_epi32(0x7fff_ffff);
            let a_bits = _mm512_and_si512(_mm512_castps_si512(a), magnitude);
            let b_bits = _mm512_and_si512(_mm512_castps_si512(b), magnitude);
            let (scale, inverse) = QBlock::scale_of(_mm512_reduce_max_epu32(_mm512_max_epu32(a_bits, b_bits)));
            let inverse = _mm512_set1_ps(inverse);
            let a = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
            let b = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
            let mut quads = [0; 8];
            _mm_storeu_si128(quads.as_mut_ptr().cast(), _mm512_cvtsepi32_epi8(a));
            _mm_storeu_si128(quads.as_mut_ptr().add(4).cast(), _mm512_cvtsepi32_epi8(b));
            QBlock::with_sums(quads, scale, [_mm512_reduce_add_epi32(a), _mm512_reduce_add_epi32(b)])
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, rows: &[*const u8; LANES], at: usize) -> [__m512i; 4] {
        // Quarter g of vector j starts as row 4g + j, so that transposing within quarters leaves every row in its lane.
        // SAFETY: the caller vouches for 16 readable bytes of each row.
        unsafe {
            let mut v = [_mm512_setzero_si512(); 4];
            for j in 0..4 {
                let first = _mm512_castsi128_si512(_mm_loadu_si128(rows[j].add(at).cast()));
                let second = _mm512_inserti32x4::<1>(first, _mm_loadu_si128(rows[4 + j].add(at).cast()));
                let third = _mm512_inserti32x4::<2>(second, _mm_loadu_si128(rows[8 + j].add(at).cast()));
                v[j] = _mm512_inserti32x4::<3>(third, _mm_loadu_si128(rows[12 + j].add(at).cast()));
            }
            let (low01, low23) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpacklo_epi32(v[2], v[3]));
            let (high01, high23) = (_mm512_unpackhi_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[2], v[3]));
            [
                _mm512_unpacklo_epi64(low01, low23),
                _mm512_unpackhi_epi64(low01, low23),
                _mm512_unpacklo_epi64(high01, high23),
                _mm512_unpackhi_epi64(high01, high23),
            ]
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, source: *const u8) -> __m512i {
        // SAFETY: the caller vouches for 64 readable bytes.
        unsafe { _mm512_loadu_si512(source.cast()) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, target: *mut u8, value: __m512i) {
        // SAFETY: the caller vouches for 64 writable bytes.
        unsafe { _mm512_storeu_si512(target.cast(), value) }
    }

    #[inline(always)]
    unsafe fn load(self, source: *const f32) -> __m512 {
        // SAFETY: the caller vouches for 16 readable floats.
        unsafe { _mm512_loadu_ps(source) }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32, value: __m512) {
        // SAFETY: the caller vouches for 16 writable floats.
        unsafe { _mm512_storeu_ps(target, value) }
    }

    #[inline(always)]
    unsafe fn load_first(self, source: *const f32, len: usize) -> __m512 {
        // SAFETY: the caller vouches for `len` readable floats; the mask keeps out the others.
        unsafe { _mm512_maskz_loadu_ps(first_lanes(len), source) }
    }

    #[inline(always)]
    unsafe fn store_first(self, target: *mut f32, value: __m512, len: usize) {
        // SAFETY: the caller vouches for `len` writable floats; the mask keeps out the others.
        unsafe { _mm512_mask_storeu_ps(target, first_lanes(len), value) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, source: *const u8) -> __m512 {
        // SAFETY: the caller vouches for 32 readable bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(source.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, source: *const u8) -> __m512 {
        // SAFETY: the caller vouches for 32 readable bytes.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(source.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn load_u8(self, source: *const u8) -> __m512 {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(source.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_i8(self, source: *const u8) -> __m512 {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(source.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_halved_power(self, source: *const u8) -> __m512 {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe {
            let exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128(source.cast()));
            let one = _mm512_set1_epi32(1);
            let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(exponents, one));
            let subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(SMALLEST_POWER), _mm512_min_epi32(exponents, one));
            _mm512_castsi512_ps(_mm512_max_epi32(normal, subnormal))
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
