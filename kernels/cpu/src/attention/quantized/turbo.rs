//! Rotated heads in codes of few bits ([`KvType::Turbo4`], [`KvType::Turbo3`]): TurboQuant, arXiv 2504.19874, without the
//! residual.
//!
//! The entries of a rotated head are spread nearly like normal ones of the same mean square, whatever the head was. So one
//! table of the best levels for the normal distribution serves all heads; what a head has of its own is one scale, with which
//! its levels come as near to it as they can. Eight codes fill as many bytes as a code has bits, the first code lowest.

use bantam_backend::KvType;
use half::f16;

use super::{HeadRoom, rotation::rotate_in};
use crate::{
    attention::{
        coded::{Codes, with_bits},
        kernels::LINE,
    },
    isa::Isa,
    pool::{PAGE_ROWS, StateSlot},
    simd::{Floats, Kernel, LANES, with_floats},
};

/// Codes that fill whole bytes.
pub(in crate::attention) const GROUP: usize = 8;

/// The positive levels of 4 bits: those with which the rounded standard normal is nearest to the exact one in the mean square
/// (Lloyd–Max). Each is the mean of the numbers for which it stands.
const LEVELS_4: [f32; 8] =
    [0.128_395_03, 0.388_048_3, 0.656_759_1, 0.942_340_5, 1.256_231_2, 1.618_046_4, 2.069_017_2, 2.732_589_6];

/// The positive levels of 3 bits.
const LEVELS_3: [f32; 4] = [0.245_094_18, 0.756_005_3, 1.343_909_3, 2.151_945_7];

/// The level of each code, by rising level. The bits that follow a code may be any: shorter tables are repeated for them.
pub(in crate::attention) const fn levels(bits: usize) -> [f32; LANES] {
    let positive: &[f32] = if bits == 4 { &LEVELS_4 } else { &LEVELS_3 };
    let (mut table, mut i) = ([0.0; LANES], 0);
    while i < LANES {
        let (code, half) = (i % (2 * positive.len()), positive.len());
        table[i] = if code < half { -positive[half - 1 - code] } else { positive[code - half] };
        i += 1;
    }
    table
}

/// Halfway from each level to the next; infinite behind the last.
const fn bounds(bits: usize) -> [f32; LANES] {
    let (levels, mut bounds, mut i) = (levels(bits), [f32::INFINITY; LANES], 0);
    while i + 1 < 1 << bits {
        bounds[i] = (levels[i] + levels[i + 1]) / 2.0;
        i += 1;
    }
    bounds
}

/// Rotates the head of `dim` entries that was put into the room, and finds its codes and scale. A head with an entry that is
/// no number, or whose scale no half float holds, has NaN as its scale.
pub(super) fn encode(isa: Isa, ty: KvType, dim: usize, room: &mut HeadRoom) -> f16 {
    let HeadRoom { entries, words } = room;
    let width = ty.width(dim);
    let (entries, words) = (&mut entries[..width], &mut words[..width / GROUP]);
    let scale = f16::from_f32(with_bits!(ty, BITS => with_floats(isa, Encode::<BITS> { entries, words })));
    if scale.is_finite() { scale } else { f16::NAN }
}

/// Makes entries of the codes in the room, still rotated.
pub(super) fn decode(isa: Isa, ty: KvType, dim: usize, scale: f16, room: &mut HeadRoom) {
    let HeadRoom { entries, words } = room;
    let width = ty.width(dim);
    let (entries, words, scale) = (&mut entries[..width], &words[..width / GROUP], scale.to_f32());
    with_bits!(ty, BITS => with_floats(isa, Decode::<BITS> { entries, words, scale }));
}

/// Writes row `place` of a head.
///
/// # Safety
/// `head` must be a head of `slot`, and nobody else may touch the row.
pub(super) unsafe fn write(slot: &StateSlot, head: *mut u8, place: usize, words: &[u32], scale: f16) {
    let bytes = slot.ty.code_bits().unwrap_or(0);
    for i in 0..slot.stored() {
        let byte = words[i / bytes].to_le_bytes()[i % bytes];
        // SAFETY: one of the head's bytes of codes, and this row's alone.
        unsafe { head.add(slot.entry(place, i)).write(byte) };
    }
    // SAFETY: one of the head's scales, and this row's alone; heads are aligned.
    unsafe { head.add(slot.scales()).cast::<u16>().add(place).write(scale.to_bits()) };
}

/// Reads the codes of row `row` of a head.
///
/// # Safety
/// `head` must be that of a page of the slot that nobody writes to, and `row` below [`PAGE_ROWS`].
pub(super) unsafe fn read(slot: &StateSlot, head: *const u8, row: usize, words: &mut [u32]) {
    let bytes = slot.ty.code_bits().unwrap_or(0);
    for (w, word) in words[..slot.width() / GROUP].iter_mut().enumerate() {
        let mut little_endian = [0; 4];
        for (b, byte) in little_endian[..bytes].iter_mut().enumerate() {
            // SAFETY: one of the head's bytes of codes.
            *byte = unsafe { *head.add(slot.entry(row, w * bytes + b)) };
        }
        *word = u32::from_le_bytes(little_endian);
    }
}

struct Encode<'a, const BITS: usize> {
    entries: &'a mut [f32],
    words: &'a mut [u32],
}

impl<const BITS: usize> Kernel for Encode<'_, BITS> {
    /// The scale with which the levels are nearest to the entries.
    type Output = f32;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> f32 {
        rotate_in(s, self.entries);
        let (vectors, table) = (self.entries.as_chunks::<LANES>().0, s.load(&const { levels(BITS) }));
        let mut squares = s.splat(0.0);
        for x in vectors {
            squares = s.fma(s.load(x), s.load(x), squares);
        }
        let spread = (s.sum(squares) / self.entries.len() as f32).sqrt();
        let (mut products, mut squares) = (s.splat(0.0), s.splat(0.0));
        for (x, words) in vectors.iter().zip(self.words.as_chunks_mut::<2>().0) {
            let x = s.load(x);
            *words = codes::<S, BITS>(s, x, spread);
            let level = s.look_up_run::<BITS>(table, *words);
            products = s.fma(x, level, products);
            squares = s.fma(level, level, squares);
        }
        s.sum(products) / s.sum(squares)
    }
}

/// The codes of 16 entries of a head whose entries have this root of the mean square.
#[inline(always)]
fn codes<S: Floats, const BITS: usize>(s: S, x: S::F, spread: f32) -> [u32; 2] {
    let mut below = s.splat(0.0);
    for bound in &const { bounds(BITS) }[..(1 << BITS) - 1] {
        below = s.add(below, s.select_lt(s.splat(bound * spread), x, s.splat(1.0), s.splat(0.0)));
    }
    let mut lanes = [0.0; LANES];
    s.store(&mut lanes, below);
    let mut words = [0; 2];
    for (i, code) in lanes.iter().enumerate() {
        words[i / GROUP] |= (*code as u32) << (i % GROUP * BITS);
    }
    words
}

struct Decode<'a, const BITS: usize> {
    entries: &'a mut [f32],
    words: &'a [u32],
    scale: f32,
}

impl<const BITS: usize> Kernel for Decode<'_, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let table = s.load(&const { levels(BITS) });
        for (x, words) in self.entries.as_chunks_mut::<LANES>().0.iter_mut().zip(self.words.as_chunks::<2>().0) {
            s.store(x, s.mul(s.look_up_run::<BITS>(table, *words), s.splat(self.scale)));
        }
    }
}

/// The words of 8 entries of a page's rows, of `BITS` bytes of each row.
#[inline(always)]
pub(in crate::attention) fn words_of_rows<const BITS: usize>(bytes: &[[u8; PAGE_ROWS]; BITS]) -> [[u32; LANES]; 2] {
    let mut words = [[0u32; LANES]; 2];
    for (b, bytes) in bytes.iter().enumerate() {
        for (words, bytes) in words.iter_mut().zip(bytes.as_chunks::<LANES>().0) {
            for (word, byte) in words.iter_mut().zip(bytes) {
                *word |= u32::from(*byte) << (8 * b);
            }
        }
    }
    words
}

/// Turns a head of keys into floats of the same layout, still rotated.
pub(super) struct Unpack<'a, const BITS: usize> {
    pub(super) codes: Codes<'a, BITS>,
    /// `[entry][row]`.
    pub(super) out: &'a mut [f32],
    /// A head that will be read next, to be fetched meanwhile.
    pub(super) ahead: *const u8,
}

impl<const BITS: usize> Kernel for Unpack<'_, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let (table, scales) = (s.load(&const { levels(BITS) }), self.codes.load_scales(s));
        let columns = self.out.as_chunks_mut::<LANES>().0.as_chunks_mut::<2>().0.as_chunks_mut::<GROUP>().0;
        for (group, (bytes, columns)) in self.codes.columns().iter().zip(columns).enumerate() {
            for line in 0..size_of_val(bytes).div_ceil(LINE) {
                s.prefetch(self.ahead.wrapping_add(group * size_of_val(bytes) + line * LINE));
            }
            let words = words_of_rows(bytes);
            for (i, column) in columns.iter_mut().enumerate() {
                for half in 0..2 {
                    let levels = s.look_up(table, &words[half], (i * BITS) as u32);
                    s.store(&mut column[half], s.mul(levels, scales[half]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn density(x: f64) -> f64 {
        (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
    }

    /// The share of the standard normal distribution from 0 to `x`, by its power series.
    fn share(x: f64) -> f64 {
        let (mut term, mut sum, mut n) = (x, x, 1.0);
        while term > 1e-17 * sum {
            n += 2.0;
            term *= x * x / n;
            sum += term;
        }
        density(x) * sum
    }

    /// Lloyd and Max's iteration, from levels at equal distances.
    fn best_levels(count: usize) -> Vec<f64> {
        let far = 9.0;
        let mut levels: Vec<f64> = (0..count).map(|i| 3.0 * (i as f64 + 0.5) / count as f64).collect();
        loop {
            let between = levels.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
            let bounds: Vec<f64> = std::iter::once(0.0).chain(between).chain([far]).collect();
            let mean = |cell: &[f64]| (density(cell[0]) - density(cell[1])) / (share(cell[1]) - share(cell[0]));
            let means: Vec<f64> = bounds.windows(2).map(mean).collect();
            let moved = means.iter().zip(&levels).fold(0.0f64, |moved, (a, b)| moved.max((a - b).abs()));
            levels = means;
            if moved < 1e-12 {
                return levels;
            }
        }
    }

    #[test]
    fn levels_are_the_best() {
        for (bits, table) in [(4, LEVELS_4.as_slice()), (3, LEVELS_3.as_slice())] {
            let best = best_levels(table.len());
            for (level, best) in table.iter().zip(&best) {
                assert!((f64::from(*level) - best).abs() < 1e-6, "{bits} bits: {level}, expected {best}");
            }
            let (levels, bounds) = (levels(bits), bounds(bits));
            let negative = levels[..table.len()].iter().rev().map(|level| -level);
            assert!(negative.eq(table.iter().copied()), "{bits} bits: as below zero so above");
            for (i, bound) in bounds[..2 * table.len() - 1].iter().enumerate() {
                assert!(levels[i] < *bound && *bound < levels[i + 1], "{bits} bits: bound {i}");
            }
        }
    }
}
