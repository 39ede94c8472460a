//! The path of every machine: plain loops over arrays of lanes.

use std::array::from_fn;

use half::{bf16, f16};

use super::{Floats, Kernel, LANES};

/// Needs nothing of the machine.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Adding and subtracting this rounds to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;

impl Floats for Portable {
    type F = [f32; LANES];

    const SCORE_ROWS: usize = 2;
    const VALUE_ROWS: usize = 1;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        [value; LANES]
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        a.map(f32::sqrt)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Without the instruction `mul_add` is a slow library call.
        if cfg!(target_arch = "aarch64") {
            from_fn(|i| a[i].mul_add(b[i], c[i]))
        } else {
            from_fn(|i| a[i] * b[i] + c[i])
        }
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        a.map(|x| (x + ROUND) - ROUND)
    }

    #[inline(always)]
    fn pow2(self, n: Self::F) -> Self::F {
        n.map(|n| f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23))
    }

    #[inline(always)]
    fn select_lt(self, a: Self::F, b: Self::F, then: Self::F, other: Self::F) -> Self::F {
        from_fn(|i| if a[i] < b[i] { then[i] } else { other[i] })
    }

    #[inline(always)]
    fn load(self, source: &[f32; LANES]) -> Self::F {
        *source
    }

    #[inline(always)]
    fn store(self, target: &mut [f32; LANES], value: Self::F) {
        *target = value;
    }

    #[inline(always)]
    fn load_f16(self, source: &[u16; LANES]) -> Self::F {
        source.map(f16_value)
    }

    #[inline(always)]
    fn load_i8(self, source: &[i8; LANES]) -> Self::F {
        source.map(f32::from)
    }

    #[inline(always)]
    fn load_bf16(self, source: &[u16; LANES]) -> Self::F {
        source.map(|bits| bf16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    fn store_f16(self, target: &mut [u16; LANES], value: Self::F) {
        *target = value.map(|x| f16::from_f32(x).to_bits());
    }

    #[inline(always)]
    fn store_bf16(self, target: &mut [u16; LANES], value: Self::F) {
        *target = value.map(|x| bf16::from_f32(x).to_bits());
    }

    #[inline(always)]
    fn store_i8(self, target: &mut [i8; LANES], value: Self::F) {
        *target = value.map(|x| x as i8);
    }

    #[inline(always)]
    fn transpose(self, vectors: [Self::F; LANES]) -> [Self::F; LANES] {
        from_fn(|i| from_fn(|j| vectors[j][i]))
    }

    #[inline(always)]
    fn look_up(self, table: Self::F, words: &[u32; LANES], shift: u32) -> Self::F {
        words.map(|word| table[(word >> shift) as usize % LANES])
    }

    #[inline(always)]
    fn look_up_run<const BITS: usize>(self, table: Self::F, words: [u32; 2]) -> Self::F {
        from_fn(|i| table[(words[i / 8] >> (i % 8 * BITS)) as usize % LANES])
    }

    #[inline(always)]
    fn prefetch(self, _address: *const u8) {}
}

/// The value of half-precision bits, without branches so that loops over it vectorise.
#[inline(always)]
fn f16_value(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Moves the exponent's bias from 15 to 127, denormals included; infinities and NaN are put right after.
    let finite = (f32::from_bits(magnitude) * f32::from_bits((254 - 15) << 23)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let value = if magnitude >= 0x0f80_0000 { special } else { finite };
    f32::from_bits(value | (u32::from(bits & 0x8000) << 16))
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::f16_value;

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_value(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#06x}");
        }
    }
}
