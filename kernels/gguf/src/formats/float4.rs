//! Formats whose four-bit codes look up sixteen values: IQ4_NL, IQ4_XS, MXFP4, NVFP4.

use super::{UnpackedBlock, half_at, u16_at};

/// The values of the IQ4 codes.
const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The values of E2M1 codes (sign, two exponent bits, one mantissa bit), doubled to be whole.
const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(super) fn iq4_nl(b: &[u8; 18], out: &mut UnpackedBlock) {
    out.one_scale(32, half_at(b, 0));
    look_up(&IQ4_VALUES, &b[2..], &mut out.q[..32]);
}

pub(super) fn iq4_xs(b: &[u8; 136], out: &mut UnpackedBlock) {
    out.shape(256, 32, false);
    let (d, high) = (half_at(b, 0), u16_at(b, 2));
    for (g, scale) in out.scale[..8].iter_mut().enumerate() {
        let low = b[4 + g / 2] >> (4 * (g % 2)) & 15;
        let high = (high >> (2 * g) & 3) as u8;
        *scale = d * f32::from((low | high << 4) as i8 - 32);
    }
    for (q, codes) in out.q.as_chunks_mut::<32>().0.iter_mut().zip(b[8..].chunks_exact(16)) {
        look_up(&IQ4_VALUES, codes, q);
    }
}

pub(super) fn mxfp4(b: &[u8; 17], out: &mut UnpackedBlock) {
    out.one_scale(32, half_of_e8m0(b[0]));
    look_up(&E2M1_DOUBLED, &b[1..], &mut out.q[..32]);
}

pub(super) fn nvfp4(b: &[u8; 36], out: &mut UnpackedBlock) {
    out.shape(64, 16, false);
    for (scale, &code) in out.scale.iter_mut().zip(&b[..4]) {
        *scale = half_of_ue4m3(code);
    }
    for (q, codes) in out.q.as_chunks_mut::<16>().0.iter_mut().zip(b[4..].chunks_exact(8)) {
        look_up(&E2M1_DOUBLED, codes, q);
    }
}

/// Low nibbles fill the first half of `q`, high nibbles the second.
fn look_up(values: &[i8; 16], codes: &[u8], q: &mut [i8]) {
    let (low, high) = q.split_at_mut(q.len() / 2);
    for ((low, high), code) in low.iter_mut().zip(high).zip(codes) {
        *low = values[usize::from(code & 15)];
        *high = values[usize::from(code >> 4)];
    }
}

/// 2^(e−128): half of the power of two that an E8M0 byte stands for; the two smallest are subnormal.
fn half_of_e8m0(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}

/// Half of the value of a UE4M3 byte: four exponent bits with bias 7, three mantissa bits; the top bit is ignored, and
/// 0x7F, which would be NaN, counts as zero.
fn half_of_ue4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(code >> 3 & 15), code & 7);
    match code & 0x7F {
        0x7F => 0.0,
        0..8 => f32::from(mantissa) / 1024.0,
        _ => (1.0 + f32::from(mantissa) / 8.0) * f32::from_bits((exponent + 119) << 23),
    }
}
