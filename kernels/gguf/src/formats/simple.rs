//! Blocks of 32, 64 or 128 values under one scale: Q4_0 to Q8_1, Q1_0, Q2_0.

use super::{UnpackedBlock, half_at, u32_at};

pub(super) fn q4_0(b: &[u8; 18], out: &mut UnpackedBlock) {
    out.one_scale(32, half_at(b, 0));
    nibbles(&b[2..], &mut out.q, 8);
}

pub(super) fn q4_1(b: &[u8; 20], out: &mut UnpackedBlock) {
    scale_and_min(b, out);
    nibbles(&b[4..], &mut out.q, 0);
}

pub(super) fn q5_0(b: &[u8; 22], out: &mut UnpackedBlock) {
    out.one_scale(32, half_at(b, 0));
    nibbles(&b[6..], &mut out.q, 0);
    fifth_bits(u32_at(b, 2), &mut out.q, 16);
}

pub(super) fn q5_1(b: &[u8; 24], out: &mut UnpackedBlock) {
    scale_and_min(b, out);
    nibbles(&b[8..], &mut out.q, 0);
    fifth_bits(u32_at(b, 4), &mut out.q, 0);
}

pub(super) fn q8_0(b: &[u8; 34], out: &mut UnpackedBlock) {
    out.one_scale(32, half_at(b, 0));
    signed_bytes(&b[2..], &mut out.q);
}

pub(super) fn q8_1(b: &[u8; 36], out: &mut UnpackedBlock) {
    out.one_scale(32, half_at(b, 0));
    signed_bytes(&b[4..], &mut out.q);
}

/// One bit a value: 1 is +d, 0 is −d.
pub(super) fn q1_0(b: &[u8; 18], out: &mut UnpackedBlock) {
    out.one_scale(128, half_at(b, 0));
    for (q, byte) in out.q.as_chunks_mut::<8>().0.iter_mut().zip(&b[2..]) {
        for (bit, q) in q.iter_mut().enumerate() {
            *q = (byte >> bit & 1) as i8 * 2 - 1;
        }
    }
}

/// Two bits a value, neighbours in a byte: −d, 0, d, 2d.
pub(super) fn q2_0(b: &[u8; 18], out: &mut UnpackedBlock) {
    out.one_scale(64, half_at(b, 0));
    for (q, byte) in out.q.as_chunks_mut::<4>().0.iter_mut().zip(&b[2..]) {
        for (pair, q) in q.iter_mut().enumerate() {
            *q = (byte >> (2 * pair) & 3) as i8 - 1;
        }
    }
}

/// Signed bytes, as they are.
pub(super) fn signed_bytes(bytes: &[u8], q: &mut [i8]) {
    q.iter_mut().zip(bytes).for_each(|(q, &byte)| *q = byte as i8);
}

/// Sixteen bytes whose low nibbles are values 0–15 and whose high nibbles are values 16–31; subtracts `zero`.
fn nibbles(bytes: &[u8], q: &mut [i8; 256], zero: i8) {
    let (low, high) = q[..32].split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = (byte & 15) as i8 - zero;
        *high = (byte >> 4) as i8 - zero;
    }
}

/// Bit `i` of `bits` is the fifth bit of value `i`; subtracts `zero`.
fn fifth_bits(bits: u32, q: &mut [i8; 256], zero: i8) {
    for (i, q) in q[..32].iter_mut().enumerate() {
        *q = (*q | ((bits >> i & 1) << 4) as i8) - zero;
    }
}

fn scale_and_min<const N: usize>(b: &[u8; N], out: &mut UnpackedBlock) {
    out.shape(32, 32, true);
    out.scale[0] = half_at(b, 0);
    out.min[0] = half_at(b, 2);
}
