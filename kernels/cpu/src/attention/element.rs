//! The number formats of cached keys and values.

use half::{bf16, f16};

use crate::simd::{Floats, LANES};

/// A number format of the cache.
pub(crate) trait Element {
    /// A stored number.
    type Bits: Copy + Default;

    /// 16 numbers as floats, exactly.
    fn load<S: Floats>(simd: S, bits: &[Self::Bits; LANES]) -> S::F;

    /// A number as a float, exactly.
    fn value(bits: Self::Bits) -> f32;

    /// Rounds floats to stored numbers, ties to even.
    fn store<S: Floats>(simd: S, bits: &mut [Self::Bits; LANES], value: S::F);
}

/// [`KvType::F32`].
pub(crate) struct Single;
/// [`KvType::F16`].
pub(crate) struct Half;
/// [`KvType::Bf16`].
pub(crate) struct Brain;

impl Element for Single {
    type Bits = f32;

    #[inline(always)]
    fn load<S: Floats>(simd: S, bits: &[f32; LANES]) -> S::F {
        simd.load(bits)
    }

    #[inline(always)]
    fn value(bits: f32) -> f32 {
        bits
    }

    #[inline(always)]
    fn store<S: Floats>(simd: S, bits: &mut [f32; LANES], value: S::F) {
        simd.store(bits, value);
    }
}

impl Element for Half {
    type Bits = u16;

    #[inline(always)]
    fn load<S: Floats>(simd: S, bits: &[u16; LANES]) -> S::F {
        simd.load_f16(bits)
    }

    #[inline(always)]
    fn value(bits: u16) -> f32 {
        f16::from_bits(bits).to_f32()
    }

    #[inline(always)]
    fn store<S: Floats>(simd: S, bits: &mut [u16; LANES], value: S::F) {
        simd.store_f16(bits, value);
    }
}

impl Element for Brain {
    type Bits = u16;

    #[inline(always)]
    fn load<S: Floats>(simd: S, bits: &[u16; LANES]) -> S::F {
        simd.load_bf16(bits)
    }

    #[inline(always)]
    fn value(bits: u16) -> f32 {
        bf16::from_bits(bits).to_f32()
    }

    #[inline(always)]
    fn store<S: Floats>(simd: S, bits: &mut [u16; LANES], value: S::F) {
        simd.store_bf16(bits, value);
    }
}

/// Evaluates `$body` with `$element` naming the [`Element`] of a [`KvType`]. A quantized type
/// is none: for it `$quantized` is evaluated.
macro_rules! with_element {
    ($ty:expr, $element:ident => $body:expr, quantized => $quantized:expr) => {
        match $ty {
            KvType::Q8_0 | KvType::Turbo4 | KvType::Turbo3 => $quantized,
            KvType::F32 => {
                type $element = $crate::attention::element::Single;
                $body
            }
            KvType::F16 => {
                type $element = $crate::attention::element::Half;
                $body
            }
            KvType::Bf16 => {
                type $element = $crate::attention::element::Brain;
                $body
            }
        }
    };
}

pub(crate) use with_element;
