//! The K formats: super-blocks of 256 values with small integer scales for each 16 or 32 of them.

use super::simple::signed_bytes;
use super::{UnpackedBlock, half_at};

pub(super) fn q2_k(b: &[u8; 84], out: &mut UnpackedBlock) {
    out.shape(256, 16, true);
    let (d, dmin) = (half_at(b, 80), half_at(b, 82));
    for ((scale, min), packed) in out.scale.iter_mut().zip(&mut out.min).zip(&b[..16]) {
        *scale = d * f32::from(packed & 15);
        *min = -(dmin * f32::from(packed >> 4));
    }
    two_bit_codes(&b[16..80], &mut out.q, 0);
}

pub(super) fn q3_k(b: &[u8; 110], out: &mut UnpackedBlock) {
    out.shape(256, 16, false);
    let d = half_at(b, 108);
    let packed = &b[96..108];
    for (k, scale) in out.scale.iter_mut().enumerate() {
        let low = packed[k % 8] >> (4 * (k / 8)) & 15;
        let high = packed[8 + k % 4] >> (2 * (k / 4)) & 3;
        *scale = d * f32::from((low | high << 4) as i8 - 32);
    }
    two_bit_codes(&b[32..96], &mut out.q, 0);
    high_bits(&b[..32], &mut out.q, 2, 4);
}

pub(super) fn q4_k(b: &[u8; 144], out: &mut UnpackedBlock) {
    scales_and_mins(b, out);
    nibbles_by_32(&b[16..], &mut out.q);
}

pub(super) fn q5_k(b: &[u8; 176], out: &mut UnpackedBlock) {
    scales_and_mins(b, out);
    nibbles_by_32(&b[48..], &mut out.q);
    high_bits(&b[16..48], &mut out.q, 4, 0);
}

pub(super) fn q6_k(b: &[u8; 210], out: &mut UnpackedBlock) {
    out.shape(256, 16, false);
    let d = half_at(b, 208);
    for (scale, &sub) in out.scale.iter_mut().zip(&b[192..208]) {
        *scale = d * f32::from(sub as i8);
    }
    let halves = out.q.as_chunks_mut::<128>().0.iter_mut();
    for ((q, low), high) in halves.zip(b[..128].chunks_exact(64)).zip(b[128..192].chunks_exact(32)) {
        for (k, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let low = low[32 * (k % 2)..].iter();
            for ((q, low), high) in q.iter_mut().zip(low).zip(high) {
                let low = low >> (4 * (k / 2)) & 15;
                let high = high >> (2 * k) & 3;
                *q = (low | high << 4) as i8 - 32;
            }
        }
    }
}

pub(super) fn q8_k(b: &[u8; 292], out: &mut UnpackedBlock) {
    out.one_scale(256, f32::from_bits(super::u32_at(b, 0)));
    signed_bytes(&b[4..260], &mut out.q);
}

/// The head of Q4_K and Q5_K: two halves, then eight 6-bit scales and eight 6-bit minima in twelve bytes.
fn scales_and_mins<const N: usize>(b: &[u8; N], out: &mut UnpackedBlock) {
    out.shape(256, 32, true);
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    let packed = &b[4..16];
    for j in 0..8 {
        let (scale, min) = if j < 4 {
            (packed[j] & 63, packed[j + 4] & 63)
        } else {
            let low = packed[j + 4];
            (low & 15 | packed[j - 4] >> 6 << 4, low >> 4 | packed[j] >> 6 << 4)
        };
        out.scale[j] = d * f32::from(scale);
        out.min[j] = -(dmin * f32::from(min));
    }
}

/// 64 bytes of two-bit codes, of which a byte holds four that are 32 values apart; subtracts `zero`.
pub(super) fn two_bit_codes(codes: &[u8], q: &mut [i8; 256], zero: i8) {
    for (q, codes) in q.as_chunks_mut::<128>().0.iter_mut().zip(codes.chunks_exact(32)) {
        for (k, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (q, code) in q.iter_mut().zip(codes) {
                *q = (code >> (2 * k) & 3) as i8 - zero;
            }
        }
    }
}

/// 128 bytes of four-bit codes; the low nibbles of 32 bytes come before the high nibbles of the same bytes.
fn nibbles_by_32(codes: &[u8], q: &mut [i8; 256]) {
    for (q, codes) in q.as_chunks_mut::<64>().0.iter_mut().zip(codes.chunks_exact(32)) {
        let (low, high) = q.split_at_mut(32);
        for ((low, high), code) in low.iter_mut().zip(high).zip(codes) {
            *low = (code & 15) as i8;
            *high = (code >> 4) as i8;
        }
    }
}

/// Bit `j` of byte `l` of `high` is bit `place` of value `32j + l`; subtracts `zero`.
fn high_bits(high: &[u8], q: &mut [i8; 256], place: u32, zero: i8) {
    for (j, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (q, high) in q.iter_mut().zip(high) {
            *q = (*q | ((high >> j & 1) << place) as i8) - zero;
        }
    }
}
