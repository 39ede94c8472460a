//! Vectors of 16 floats, and one implementation of them per instruction set.
//!
//! Kernels are generic over [`Floats`]; [`with_floats`] compiles them once for each instruction set. Within one set a
//! result never depends on how rows are grouped: an operation acts on each lane alone, and sums over lanes have one order.

pub(crate) mod math;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::isa::Isa;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Work that is compiled for one instruction set.
pub(crate) trait Kernel {
    /// What it yields.
    type Output;

    /// Does the work. Must be `#[inline(always)]`, as must everything it calls that uses `S`; closures are not, so none
    /// may use `S`.
    fn run<S: Floats>(self, simd: S) -> Self::Output;
}

/// One instruction set. A value of an implementation is proof that this machine has it.
pub(crate) trait Floats: Copy {
    /// 16 floats.
    type F: Copy;

    /// Rows whose attention scores for 32 keys fit in the registers.
    const SCORE_ROWS: usize;
    /// Rows whose sums over four vectors of values fit in the registers.
    const VALUE_ROWS: usize;

    /// Runs a kernel with the instruction set enabled.
    fn enter<K: Kernel>(self, kernel: K) -> K::Output;

    fn splat(self, value: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    /// `a × b + c`; fused where the machine can.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The lesser of each lane; `b` where either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// The greater of each lane; `b` where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// To the nearest integer, ties to even; for magnitudes below 2²².
    fn round(self, a: Self::F) -> Self::F;
    /// `2ⁿ` for integers `-126 ≤ n ≤ 127`.
    fn pow2(self, n: Self::F) -> Self::F;
    /// `then` in the lanes where `a < b`, `other` elsewhere.
    fn select_lt(self, a: Self::F, b: Self::F, then: Self::F, other: Self::F) -> Self::F;

    fn load(self, source: &[f32; LANES]) -> Self::F;
    fn store(self, target: &mut [f32; LANES], value: Self::F);
    /// 16 half-precision numbers, as bits.
    fn load_f16(self, source: &[u16; LANES]) -> Self::F;
    /// 16 integers.
    fn load_i8(self, source: &[i8; LANES]) -> Self::F;
    /// 16 bfloat16 numbers, as bits.
    fn load_bf16(self, source: &[u16; LANES]) -> Self::F;
    /// Rounds to the bits of half-precision numbers, ties to even.
    fn store_f16(self, target: &mut [u16; LANES], value: Self::F);
    /// Rounds to the bits of bfloat16 numbers, ties to even.
    fn store_bf16(self, target: &mut [u16; LANES], value: Self::F);
    /// Integers from -128 to 127; NaN gives 0.
    fn store_i8(self, target: &mut [i8; LANES], value: Self::F);
    /// Lane `i` of vector `j` becomes lane `j` of vector `i`.
    fn transpose(self, vectors: [Self::F; LANES]) -> [Self::F; LANES];
    /// In lane `i` the lane of `table` that the low four bits of `words[i] >> shift` name.
    fn look_up(self, table: Self::F, words: &[u32; LANES], shift: u32) -> Self::F;
    /// In lane `i` the lane of `table` that the low four bits of `words[i / 8] >> (i % 8 × BITS)` name.
    fn look_up_run<const BITS: usize>(self, table: Self::F, words: [u32; 2]) -> Self::F;
    /// Asks for the cache line at `address`, which need not be mapped, into the second-level cache.
    fn prefetch(self, address: *const u8);

    /// The first lane.
    #[inline(always)]
    fn first(self, a: Self::F) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, a);
        lanes[0]
    }

    /// The greatest lane.
    #[inline(always)]
    fn greatest(self, a: Self::F) -> f32 {
        self.fold(a, |x, y| if x > y { x } else { y })
    }

    /// The sum over lanes, by halves.
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        self.fold(a, |x, y| x + y)
    }

    /// Combines lane `i` with lane `i + 8`, then those by 4, 2 and 1.
    #[inline(always)]
    fn fold(self, a: Self::F, f: impl Fn(f32, f32) -> f32) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, a);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = f(lanes[i], lanes[i + half]);
            }
            half /= 2;
        }
        lanes[0]
    }

    /// Up to 16 floats, `fill` in the lanes beyond.
    #[inline(always)]
    fn load_some(self, source: &[f32], fill: f32) -> Self::F {
        if let Some(whole) = source.first_chunk() {
            return self.load(whole);
        }
        let mut lanes = [fill; LANES];
        let len = source.len().min(LANES);
        lanes[..len].copy_from_slice(&source[..len]);
        self.load(&lanes)
    }

    /// As many lanes as `target` has room for.
    #[inline(always)]
    fn store_some(self, target: &mut [f32], value: Self::F) {
        if let Some(whole) = target.first_chunk_mut() {
            return self.store(whole, value);
        }
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes, value);
        let len = target.len().min(LANES);
        target[..len].copy_from_slice(&lanes[..len]);
    }
}

/// Runs `kernel` on the path `isa`, or on the portable one where this machine lacks it.
pub(crate) fn with_floats<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512Vnni => {
            if let Some(simd) = avx512::Avx512::new() {
                return simd.enter(kernel);
            }
        }
        Isa::Avx2 => {
            if let Some(simd) = avx2::Avx2::new() {
                return simd.enter(kernel);
            }
        }
        Isa::Portable => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    portable::Portable.enter(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways of looking up the codes of some words.
    struct LookUp([u32; LANES], u32);

    impl Kernel for LookUp {
        type Output = [[f32; LANES]; 3];

        #[inline(always)]
        fn run<S: Floats>(self, s: S) -> [[f32; LANES]; 3] {
            let LookUp(words, shift) = self;
            let table = s.load(&std::array::from_fn(|i| i as f32));
            let pair = [words[0], words[1]];
            let found =
                [s.look_up(table, &words, shift), s.look_up_run::<3>(table, pair), s.look_up_run::<4>(table, pair)];
            let mut lanes = [[0.0; LANES]; 3];
            for (lanes, found) in lanes.iter_mut().zip(found) {
                s.store(lanes, found);
            }
            lanes
        }
    }

    /// Both ways of rounding to 16 bits.
    struct Round([f32; LANES]);

    impl Kernel for Round {
        type Output = [[u16; LANES]; 2];

        #[inline(always)]
        fn run<S: Floats>(self, s: S) -> [[u16; LANES]; 2] {
            let (mut half, mut brain) = ([0; LANES], [0; LANES]);
            s.store_f16(&mut half, s.load(&self.0));
            s.store_bf16(&mut brain, s.load(&self.0));
            [half, brain]
        }
    }

    #[test]
    fn numbers_are_rounded_to_16_bits() {
        // Every sign and exponent, with the digits at which rounding turns.
        let digits = [0, 1, 0x0fff, 0x1000, 0x1001, 0x3000, 0x7fff, 0x8000, 0x8001, 0x1_8000, 0x40_0000, 0x7f_ffff];
        let numbers: Vec<f32> =
            (0..512u32).flat_map(|high| digits.map(|digits| f32::from_bits(high << 23 | digits))).collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for x in numbers.as_chunks::<LANES>().0 {
                let [half, brain] = with_floats(isa, Round(*x));
                assert_eq!(half, x.map(|x| half::f16::from_f32(x).to_bits()), "{isa:?}, {x:?}");
                assert_eq!(brain, x.map(|x| half::bf16::from_f32(x).to_bits()), "{isa:?}, {x:?}");
            }
        }
    }

    struct Integers([f32; LANES]);

    impl Kernel for Integers {
        type Output = ([i8; LANES], [f32; LANES]);

        #[inline(always)]
        fn run<S: Floats>(mut self, s: S) -> ([i8; LANES], [f32; LANES]) {
            let mut integers = [0; LANES];
            s.store_i8(&mut integers, s.load(&self.0));
            s.store(&mut self.0, s.load_i8(&integers));
            (integers, self.0)
        }
    }

    #[test]
    fn integers_come_back() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for first in (-128..=127i16).step_by(LANES) {
                let numbers: [f32; LANES] = std::array::from_fn(|i| f32::from(first) + i as f32);
                let (integers, back) = with_floats(isa, Integers(numbers));
                assert_eq!((integers.map(f32::from), back), (numbers, numbers), "{isa:?}");
            }
            assert_eq!(with_floats(isa, Integers([f32::NAN; LANES])).0, [0; LANES], "{isa:?}");
        }
    }

    struct Transpose([[f32; LANES]; LANES]);

    impl Kernel for Transpose {
        type Output = [[f32; LANES]; LANES];

        #[inline(always)]
        fn run<S: Floats>(mut self, s: S) -> [[f32; LANES]; LANES] {
            let mut vectors = [s.splat(0.0); LANES];
            for (vector, lanes) in vectors.iter_mut().zip(&self.0) {
                *vector = s.load(lanes);
            }
            for (lanes, vector) in self.0.iter_mut().zip(s.transpose(vectors)) {
                s.store(lanes, vector);
            }
            self.0
        }
    }

    #[test]
    fn squares_are_transposed() {
        use std::array::from_fn;
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let found = with_floats(isa, Transpose(from_fn(|i| from_fn(|j| (i * LANES + j) as f32))));
            let wanted: [[f32; LANES]; LANES] = from_fn(|i| from_fn(|j| (j * LANES + i) as f32));
            assert_eq!(found, wanted, "{isa:?}");
        }
    }

    #[test]
    fn codes_are_looked_up() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for shift in 0..32 {
                let words = std::array::from_fn(|i| 0x9e37_79b9u32.wrapping_mul(i as u32 * 32 + shift + 1));
                let run = |bits: usize| std::array::from_fn(|i| ((words[i / 8] >> (i % 8 * bits)) % 16) as f32);
                let wanted = [words.map(|word| ((word >> shift) % 16) as f32), run(3), run(4)];
                assert_eq!(with_floats(isa, LookUp(words, shift)), wanted, "{isa:?}, shift {shift}");
            }
        }
    }
}
