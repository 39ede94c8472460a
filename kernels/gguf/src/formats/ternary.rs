//! The ternary formats of 256 values: TQ1_0 and TQ2_0.

use super::k_quants::two_bit_codes;
use super::{UnpackedBlock, half_at};

pub(super) fn tq2_0(b: &[u8; 66], out: &mut UnpackedBlock) {
    out.one_scale(256, half_at(b, 64));
    two_bit_codes(&b[..64], &mut out.q, 1);
}

/// Digits of base 3, five in a byte of the first 48 and four in the last four.
pub(super) fn tq1_0(b: &[u8; 54], out: &mut UnpackedBlock) {
    out.one_scale(256, half_at(b, 52));
    let (first, rest) = out.q.split_at_mut(160);
    let (second, last) = rest.split_at_mut(80);
    digits(&b[..32], first);
    digits(&b[32..48], second);
    digits(&b[48..52], last);
}

/// The most significant digit of every byte, then the next of every byte, and so on. A byte is a fixed-point fraction
/// of 256, so multiplying by 3 shifts the next digit out of its top.
fn digits(bytes: &[u8], q: &mut [i8]) {
    let mut power = 1u8;
    for q in q.chunks_exact_mut(bytes.len()) {
        for (q, byte) in q.iter_mut().zip(bytes) {
            let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
            *q = digit as i8 - 1;
        }
        power = power.wrapping_mul(3);
    }
}
