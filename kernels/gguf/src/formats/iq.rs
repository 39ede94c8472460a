//! The code-book formats: IQ1, IQ2 and IQ3. An index selects eight (or four) magnitudes at once.

use super::codebook::{IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, SIGNS};
use super::{UnpackedBlock, half_at, u16_at, u32_at};

pub(super) fn iq2_xxs(b: &[u8; 66], out: &mut UnpackedBlock) {
    out.shape(256, 32, false);
    let d = half_at(b, 0);
    for (g, q) in out.q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let at = 2 + 8 * g;
        let packed = u32_at(b, at + 4);
        out.scale[g] = d * (0.5 + (packed >> 28) as f32) * 0.25;
        for (l, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
            signed(&IQ2_XXS[usize::from(b[at + l])], packed_signs(packed, l), q);
        }
    }
}

pub(super) fn iq2_xs(b: &[u8; 74], out: &mut UnpackedBlock) {
    out.shape(256, 16, false);
    scales_by_16(half_at(b, 0), &b[66..], &mut out.scale);
    for (k, q) in out.q.as_chunks_mut().0.iter_mut().enumerate() {
        let packed = u16_at(b, 2 + 2 * k);
        signed(&IQ2_XS[usize::from(packed & 511)], SIGNS[usize::from(packed >> 9)], q);
    }
}

pub(super) fn iq2_s(b: &[u8; 82], out: &mut UnpackedBlock) {
    out.shape(256, 16, false);
    scales_by_16(half_at(b, 0), &b[74..], &mut out.scale);
    for (k, q) in out.q.as_chunks_mut().0.iter_mut().enumerate() {
        let high = b[66 + k / 4] >> (2 * (k % 4)) & 3;
        signed(&IQ2_S[index(b[2 + k], high)], b[34 + k], q);
    }
}

pub(super) fn iq3_xxs(b: &[u8; 98], out: &mut UnpackedBlock) {
    out.shape(256, 32, false);
    let d = half_at(b, 0);
    for (g, q) in out.q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let packed = u32_at(b, 66 + 4 * g);
        out.scale[g] = d * (0.5 + (packed >> 28) as f32) * 0.5;
        for (quad, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
            let signs = packed_signs(packed, quad / 2) >> (4 * (quad % 2));
            signed(&IQ3_XXS[usize::from(b[2 + 8 * g + quad])], signs, q);
        }
    }
}

pub(super) fn iq3_s(b: &[u8; 110], out: &mut UnpackedBlock) {
    out.shape(256, 32, false);
    let d = half_at(b, 0);
    for (g, scale) in out.scale[..8].iter_mut().enumerate() {
        *scale = d * f32::from(1 + 2 * (b[106 + g / 2] >> (4 * (g % 2)) & 15));
    }
    for (quad, q) in out.q.as_chunks_mut().0.iter_mut().enumerate() {
        let high = b[66 + quad / 8] >> (quad % 8) & 1;
        let signs = b[74 + quad / 2] >> (4 * (quad % 2));
        signed(&IQ3_S[index(b[2 + quad], high)], signs, q);
    }
}

pub(super) fn iq1_s(b: &[u8; 50], out: &mut UnpackedBlock) {
    out.shape(256, 32, false);
    let d = half_at(b, 0);
    for (g, q) in out.q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let packed = u16_at(b, 34 + 2 * g);
        out.scale[g] = eighth_scale(d, packed >> 12 & 7);
        for (l, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
            let high = (packed >> (3 * l) & 7) as u8;
            shifted(&IQ1_S[index(b[2 + 4 * g + l], high)], packed >> 15 != 0, q);
        }
    }
}

pub(super) fn iq1_m(b: &[u8; 56], out: &mut UnpackedBlock) {
    out.shape(256, 16, false);
    let scales: [u16; 4] = std::array::from_fn(|i| u16_at(b, 48 + 2 * i));
    // The block's own scale is spread over the top nibbles of the four words, the lowest first.
    let bits = scales.iter().rev().fold(0, |bits, word| bits << 4 | word >> 12);
    let d = half::f16::from_bits(bits).to_f32();
    for (t, scale) in out.scale.iter_mut().enumerate() {
        *scale = eighth_scale(d, scales[t / 4] >> (3 * (t % 4)) & 7);
    }
    for (k, q) in out.q.as_chunks_mut().0.iter_mut().enumerate() {
        let nibble = b[32 + k / 2] >> (4 * (k % 2)) & 15;
        shifted(&IQ1_S[index(b[k], nibble & 7)], nibble & 8 != 0, q);
    }
}

/// Bits above the eighth of a code-book index.
#[inline(always)]
fn index(low: u8, high: u8) -> usize {
    usize::from(low) | usize::from(high) << 8
}

/// The sign byte of the `l`-th eight of 32 values, from four 7-bit indexes in the low 28 bits.
#[inline(always)]
fn packed_signs(packed: u32, l: usize) -> u8 {
    SIGNS[(packed >> (7 * l) & 127) as usize]
}

/// Bit `j` of `signs` set: value `j` is negative.
#[inline(always)]
fn signed<const N: usize>(magnitudes: &[u8; N], signs: u8, q: &mut [i8; N]) {
    for j in 0..N {
        let magnitude = magnitudes[j] as i8;
        q[j] = if signs >> j & 1 == 1 { -magnitude } else { magnitude };
    }
}

/// One four-bit scale for each 16 values.
fn scales_by_16(d: f32, packed: &[u8], scales: &mut [f32; 16]) {
    for (pair, byte) in scales.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
        *pair = [byte & 15, byte >> 4].map(|scale| d * (0.5 + f32::from(scale)) * 0.25);
    }
}

/// The values are −1, 0, 1 plus or minus an eighth: whole numbers in units of an eighth.
#[inline(always)]
fn shifted(entry: &[u8; 8], down: bool, q: &mut [i8; 8]) {
    let delta = if down { -1 } else { 1 };
    for (q, &value) in q.iter_mut().zip(entry) {
        *q = value as i8 * 8 + delta;
    }
}

/// The scale that goes with values in units of an eighth. Dividing is exact: the smallest half is 2^−24.
#[inline(always)]
fn eighth_scale(d: f32, scale: u16) -> f32 {
    d * f32::from(2 * scale + 1) * 0.125
}
