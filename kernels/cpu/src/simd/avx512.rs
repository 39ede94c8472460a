//! AVX-512: a vector is one register.

use std::arch::x86_64::*;

use super::{Floats, Kernel, LANES};
use crate::isa::Isa;

/// Proof that this machine has [`Isa::Avx512Vnni`].
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn new() -> Option<Self> {
        Isa::Avx512Vnni.is_available().then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn run_with_features<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
    kernel.run(simd)
}

// SAFETY (of every block below): a value of `Avx512` proves that the instructions exist; references to 16 values are
// valid for reading or writing 16 values.
impl Floats for Avx512 {
    type F = __m512;

    const SCORE_ROWS: usize = 8;
    const VALUE_ROWS: usize = 4;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: see the head of this block.
        unsafe { run_with_features(self, kernel) }
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
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_sqrt_ps(a) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    fn pow2(self, n: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe {
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    fn select_lt(self, a: __m512, b: __m512, then: __m512, other: __m512) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), other, then) }
    }

    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_loadu_ps(source.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, target: &mut [f32; LANES], value: __m512) {
        // SAFETY: see the head of this block.
        unsafe { _mm512_storeu_ps(target.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn load_f16(self, source: &[u16; LANES]) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(source.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_i8(self, source: &[i8; LANES]) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(source.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn load_bf16(self, source: &[u16; LANES]) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(source.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    fn store_f16(self, target: &mut [u16; LANES], value: __m512) {
        // SAFETY: see the head of this block.
        unsafe {
            let bits = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(value);
            _mm256_storeu_si256(target.as_mut_ptr().cast(), bits);
        }
    }

    #[inline(always)]
    fn store_bf16(self, target: &mut [u16; LANES], value: __m512) {
        // SAFETY: see the head of this block.
        unsafe {
            let bits = _mm512_castps_si512(value);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            // A NaN stays one, whatever of its digits is left.
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
            let rounded = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), is_nan, quiet);
            let bits = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded));
            _mm256_storeu_si256(target.as_mut_ptr().cast(), bits);
        }
    }

    #[inline(always)]
    fn store_i8(self, target: &mut [i8; LANES], value: __m512) {
        // SAFETY: see the head of this block.
        unsafe {
            // NaN becomes an integer whose lowest byte is zero.
            _mm_storeu_si128(target.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(value)));
        }
    }

    #[inline(always)]
    fn transpose(self, vectors: [__m512; LANES]) -> [__m512; LANES] {
        // Of each four vectors, first the lanes of each quarter are transposed, then the quarters.
        let mut fours = vectors;
        for j in (0..LANES).step_by(4) {
            // SAFETY: see the head of this block.
            unsafe {
                let (a, b, c, d) = (vectors[j], vectors[j + 1], vectors[j + 2], vectors[j + 3]);
                let low = [_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d)];
                let high = [_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d)];
                fours[j] = _mm512_shuffle_ps::<0x44>(low[0], low[1]);
                fours[j + 1] = _mm512_shuffle_ps::<0xee>(low[0], low[1]);
                fours[j + 2] = _mm512_shuffle_ps::<0x44>(high[0], high[1]);
                fours[j + 3] = _mm512_shuffle_ps::<0xee>(high[0], high[1]);
            }
        }
        let mut out = vectors;
        for i in 0..4 {
            // SAFETY: see the head of this block.
            unsafe {
                let (a, b, c, d) = (fours[i], fours[4 + i], fours[8 + i], fours[12 + i]);
                let even = [_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d)];
                let odd = [_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d)];
                out[i] = _mm512_shuffle_f32x4::<0x88>(even[0], even[1]);
                out[4 + i] = _mm512_shuffle_f32x4::<0x88>(odd[0], odd[1]);
                out[8 + i] = _mm512_shuffle_f32x4::<0xdd>(even[0], even[1]);
                out[12 + i] = _mm512_shuffle_f32x4::<0xdd>(odd[0], odd[1]);
            }
        }
        out
    }

    #[inline(always)]
    fn look_up(self, table: __m512, words: &[u32; LANES], shift: u32) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe {
            let words = _mm512_loadu_si512(words.as_ptr().cast());
            let codes = _mm512_srlv_epi32(words, _mm512_set1_epi32(shift as i32));
            _mm512_permutexvar_ps(codes, table)
        }
    }

    #[inline(always)]
    fn look_up_run<const BITS: usize>(self, table: __m512, words: [u32; 2]) -> __m512 {
        // SAFETY: see the head of this block.
        unsafe {
            let words = words.map(|word| _mm256_set1_epi32(word as i32));
            let words = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(words[0]), words[1]);
            let b = BITS as i32;
            let shifts = _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b);
            let codes = _mm512_srlv_epi32(words, _mm512_broadcast_i64x4(shifts));
            _mm512_permutexvar_ps(codes, table)
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: see the head of this block; a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
}
