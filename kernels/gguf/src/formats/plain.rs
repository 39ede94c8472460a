//! Formats that store values one by one.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::types::GgmlType;

/// Converts as many values as both `bytes` and `out` hold; block formats are not this function's business and yield
/// nothing.
pub(super) fn to_f32(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    match ty {
        GgmlType::F32 => each(bytes, out, f32::from_le_bytes),
        GgmlType::F16 => halves(bytes, out),
        GgmlType::BF16 => each(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
        GgmlType::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        GgmlType::I8 => each(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
        GgmlType::I16 => each(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
        GgmlType::I32 => each(bytes, out, |b| i32::from_le_bytes(b) as f32),
        GgmlType::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f32),
        _ => {}
    }
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (y, &b) in out.iter_mut().zip(bytes.as_chunks().0) {
        *y = value(b);
    }
}

/// Converts by the run, since `half` only uses the processor's conversion well on slices.
fn halves(bytes: &[u8], out: &mut [f32]) {
    let mut run = [f16::ZERO; 64];
    for (bytes, out) in bytes.chunks(128).zip(out.chunks_mut(64)) {
        for (h, &b) in run.iter_mut().zip(bytes.as_chunks().0) {
            *h = f16::from_le_bytes(b);
        }
        run[..out.len()].convert_to_f32_slice(out);
    }
}
