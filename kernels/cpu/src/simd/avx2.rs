//! AVX2 with FMA and F16C: a vector is two registers.

use std::arch::x86_64::*;

use super::{Floats, Kernel, LANES};
use crate::isa::Isa;

/// Proof that this machine has [`Isa::Avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn new() -> Option<Self> {
        Isa::Avx2.is_available().then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run_with_features<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
    kernel.run(simd)
}

/// The lanes of a table of 16 floats that the low four bits of each code name.
#[target_feature(enable = "avx2")]
#[inline]
fn pick(table: [__m256; 2], codes: __m256i) -> __m256 {
    let [low, high] = [_mm256_permutevar8x32_ps(table[0], codes), _mm256_permutevar8x32_ps(table[1], codes)];
    // The fourth bit, which the permutations pass over, becomes the sign that chooses.
    _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes)))
}

/// Rounds to bfloat16, in the low half of each lane.
#[target_feature(enable = "avx2")]
#[inline]
fn round_bf16(value: __m256) -> __m256i {
    let bits = _mm256_castps_si256(value);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    // A NaN stays one, whatever of its digits is left.
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
    let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
    _mm256_srli_epi32::<16>(_mm256_blendv_epi8(_mm256_add_epi32(bits, half), quiet, is_nan))
}

/// Lane `i` of register `j` becomes lane `j` of register `i`.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose_8(rows: [__m256; 8]) -> [__m256; 8] {
    let mut fours = rows;
    for j in [0, 4] {
        let (a, b, c, d) = (rows[j], rows[j + 1], rows[j + 2], rows[j + 3]);
        let low = [_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d)];
        let high = [_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d)];
        fours[j] = _mm256_shuffle_ps::<0x44>(low[0], low[1]);
        fours[j + 1] = _mm256_shuffle_ps::<0xee>(low[0], low[1]);
        fours[j + 2] = _mm256_shuffle_ps::<0x44>(high[0], high[1]);
        fours[j + 3] = _mm256_shuffle_ps::<0xee>(high[0], high[1]);
    }
    let mut out = rows;
    for i in 0..4 {
        out[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[4 + i]);
        out[4 + i] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[4 + i]);
    }
    out
}

/// Applies an operation on one register to both.
macro_rules! both {
    ($f:ident, $($operand:ident),+) => {
        // SAFETY: a value of `Avx2` proves that the instruction exists.
        unsafe { [$f($($operand[0]),+), $f($($operand[1]),+)] }
    };
}

// Closures are not compiled for the instruction set, so the halves are written out.
//
// SAFETY (of every block below): a value of `Avx2` proves that the instructions exist; references to 16 values are valid
// for reading or writing two times 8 values.
impl Floats for Avx2 {
    type F = [__m256; 2];

    const SCORE_ROWS: usize = 2;
    const VALUE_ROWS: usize = 1;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: see the head of this block.
        unsafe { run_with_features(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps, a, b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps, a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps, a, b)
    }

    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        both!(_mm256_sqrt_ps, a)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fmadd_ps, a, b, c)
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_min_ps, a, b)
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps, a, b)
    }

    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
            [_mm256_round_ps::<NEAREST>(a[0]), _mm256_round_ps::<NEAREST>(a[1])]
        }
    }

    #[inline(always)]
    fn pow2(self, n: Self::F) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe {
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_add_epi32(_mm256_cvtps_epi32(n[0]), bias);
            let high = _mm256_add_epi32(_mm256_cvtps_epi32(n[1]), bias);
            [_mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)), _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high))]
        }
    }

    #[inline(always)]
    fn select_lt(self, a: Self::F, b: Self::F, then: Self::F, other: Self::F) -> Self::F {
        // SAFETY: see the head of this block.
        std::array::from_fn(|i| unsafe { _mm256_blendv_ps(other[i], then[i], _mm256_cmp_ps::<_CMP_LT_OQ>(a[i], b[i])) })
    }

    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe { [_mm256_loadu_ps(source.as_ptr()), _mm256_loadu_ps(source.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, target: &mut [f32; LANES], value: Self::F) {
        // SAFETY: see the head of this block.
        unsafe {
            _mm256_storeu_ps(target.as_mut_ptr(), value[0]);
            _mm256_storeu_ps(target.as_mut_ptr().add(8), value[1]);
        }
    }

    #[inline(always)]
    fn load_f16(self, source: &[u16; LANES]) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe {
            let source = source.as_ptr().cast::<__m128i>();
            [_mm256_cvtph_ps(_mm_loadu_si128(source)), _mm256_cvtph_ps(_mm_loadu_si128(source.add(1)))]
        }
    }

    #[inline(always)]
    fn load_i8(self, source: &[i8; LANES]) -> [__m256; 2] {
        // SAFETY: see the head of this block.
        unsafe {
            let codes = _mm_loadu_si128(source.as_ptr().cast());
            let (low, high) = (_mm256_cvtepi8_epi32(codes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(codes)));
            [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
        }
    }

    #[inline(always)]
    fn load_bf16(self, source: &[u16; LANES]) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe {
            let source = source.as_ptr().cast::<__m128i>();
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(source));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(source.add(1)));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high))]
        }
    }

    #[inline(always)]
    fn store_f16(self, target: &mut [u16; LANES], value: Self::F) {
        // SAFETY: see the head of this block.
        unsafe {
            let target = target.as_mut_ptr().cast::<__m128i>();
            _mm_storeu_si128(target, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value[0]));
            _mm_storeu_si128(target.add(1), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value[1]));
        }
    }

    #[inline(always)]
    fn store_bf16(self, target: &mut [u16; LANES], value: Self::F) {
        // SAFETY: see the head of this block.
        unsafe {
            let packed = _mm256_packus_epi32(round_bf16(value[0]), round_bf16(value[1]));
            // Packing goes by halves of registers.
            _mm256_storeu_si256(target.as_mut_ptr().cast(), _mm256_permute4x64_epi64::<0xd8>(packed));
        }
    }

    #[inline(always)]
    fn store_i8(self, target: &mut [i8; LANES], value: Self::F) {
        // SAFETY: see the head of this block.
        unsafe {
            // NaN becomes an integer whose lowest byte is zero.
            let lowest =
                _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
            let low = _mm256_shuffle_epi8(_mm256_cvtps_epi32(value[0]), lowest);
            let high = _mm256_shuffle_epi8(_mm256_cvtps_epi32(value[1]), lowest);
            // Of each register the first four bytes of each half.
            let bytes = _mm256_unpacklo_epi64(low, high);
            let quarters = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 2, 6, 1, 3, 5, 7));
            _mm_storeu_si128(target.as_mut_ptr().cast(), _mm256_castsi256_si128(quarters));
        }
    }

    #[inline(always)]
    fn transpose(self, vectors: [Self::F; LANES]) -> [Self::F; LANES] {
        let mut out = vectors;
        for half in 0..2 {
            for part in 0..2 {
                let mut square = [vectors[0][0]; 8];
                for j in 0..8 {
                    square[j] = vectors[8 * half + j][part];
                }
                // SAFETY: see the head of this block.
                let square = unsafe { transpose_8(square) };
                for i in 0..8 {
                    out[8 * part + i][half] = square[i];
                }
            }
        }
        out
    }

    #[inline(always)]
    fn look_up(self, table: Self::F, words: &[u32; LANES], shift: u32) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe {
            let (words, shift) = (words.as_ptr().cast::<__m256i>(), _mm256_set1_epi32(shift as i32));
            let low = _mm256_srlv_epi32(_mm256_loadu_si256(words), shift);
            let high = _mm256_srlv_epi32(_mm256_loadu_si256(words.add(1)), shift);
            [pick(table, low), pick(table, high)]
        }
    }

    #[inline(always)]
    fn look_up_run<const BITS: usize>(self, table: Self::F, words: [u32; 2]) -> Self::F {
        // SAFETY: see the head of this block.
        unsafe {
            let b = BITS as i32;
            let shifts = _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b);
            let low = _mm256_srlv_epi32(_mm256_set1_epi32(words[0] as i32), shifts);
            let high = _mm256_srlv_epi32(_mm256_set1_epi32(words[1] as i32), shifts);
            [pick(table, low), pick(table, high)]
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: see the head of this block; a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
}
