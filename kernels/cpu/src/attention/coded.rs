//! Attention on rotated heads as they lie in the cache: codes, a table of levels, a scale per key.
//!
//! Sums run over the levels. A key's scale is multiplied to its scores afterwards, a value's to its probabilities before: so
//! bits do not depend on how many queries share a tile.

use super::{
    kernels::{LINE, QUERY_GROUP, Row, ValueSource, groups},
    quantized::turbo::{GROUP, levels, words_of_rows},
};
use crate::{
    pool::{PAGE_ROWS, StateSlot},
    simd::{Floats, Kernel, LANES},
};

/// Evaluates `$body` with `$bits` as the bits of a code, for a `KvType` that has codes.
macro_rules! with_bits {
    ($ty:expr, $bits:ident => $body:expr) => {
        if $ty == ::bantam_backend::KvType::Turbo4 {
            const $bits: usize = 4;
            $body
        } else {
            const $bits: usize = 3;
            $body
        }
    };
}

pub(super) use with_bits;

/// A head of a page in codes.
#[derive(Clone, Copy)]
pub(super) struct Codes<'a, const BITS: usize> {
    /// Keys `[8 entries][byte][row]`, values `[row][byte]`; the scales behind them.
    bytes: &'a [u8],
    scales: &'a [u16; PAGE_ROWS],
    width: usize,
}

impl<'a, const BITS: usize> Codes<'a, BITS> {
    /// # Safety
    /// `head` must be a head of `slot` that nobody writes to meanwhile, and `BITS` those of its codes.
    pub(super) unsafe fn new(slot: &StateSlot, head: *const u8) -> Self {
        // SAFETY: a head is so long, and its scales lie behind its codes; heads are aligned.
        let (bytes, scales) = unsafe {
            let scales = &*head.add(slot.scales()).cast::<[u16; PAGE_ROWS]>();
            (std::slice::from_raw_parts(head, slot.head_bytes()), scales)
        };
        Codes { bytes, scales, width: slot.width() }
    }

    /// Bytes of a key's or value's codes.
    fn stride(self) -> usize {
        self.width / GROUP * BITS
    }

    /// The bytes of 8 entries of all keys, then of the next 8.
    pub(super) fn columns(self) -> &'a [[[u8; PAGE_ROWS]; BITS]] {
        self.bytes[..PAGE_ROWS * self.stride()].as_chunks::<PAGE_ROWS>().0.as_chunks::<BITS>().0
    }

    /// A scale for each key.
    #[inline(always)]
    pub(super) fn load_scales<S: Floats>(self, s: S) -> [S::F; 2] {
        let (halves, _) = self.scales.as_chunks::<LANES>();
        [s.load_f16(&halves[0]), s.load_f16(&halves[1])]
    }
}

/// As [`super::kernels::Scores`], of rotated queries with keys in codes.
pub(super) struct CodeScores<'a, const BITS: usize> {
    /// Queries, scaled and rotated: `[query / 8][entry][query % 8]`.
    pub(super) queries: &'a [f32],
    /// The first of them that is scored.
    pub(super) first: usize,
    pub(super) keys: Codes<'a, BITS>,
    /// A row per query from there on.
    pub(super) scores: &'a mut [Row],
    /// The keys of the next block, to be fetched meanwhile.
    pub(super) ahead: *const u8,
}

impl<const BITS: usize> Kernel for CodeScores<'_, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        for line in 0..self.keys.bytes.len() / LINE {
            s.prefetch(self.ahead.wrapping_add(line * LINE));
        }
        let mut rows = self.scores;
        for (group, members) in groups(self.first..self.first + rows.len()) {
            let width = QUERY_GROUP * self.keys.width;
            let queries = &self.queries[group * width..][..width];
            let mut first = members.start;
            while first < members.end {
                let done = match (members.end - first).min(S::SCORE_ROWS) {
                    8.. => score_rows::<S, BITS, 8>(s, queries, first, self.keys, rows),
                    4..8 => score_rows::<S, BITS, 4>(s, queries, first, self.keys, rows),
                    3 => score_rows::<S, BITS, 3>(s, queries, first, self.keys, rows),
                    2 => score_rows::<S, BITS, 2>(s, queries, first, self.keys, rows),
                    _ => score_rows::<S, BITS, 1>(s, queries, first, self.keys, rows),
                };
                first += done;
                rows = &mut rows[done..];
            }
        }
    }
}

/// Scores of `R` queries from `first` on; returns `R`.
#[inline(always)]
fn score_rows<S: Floats, const BITS: usize, const R: usize>(
    s: S,
    queries: &[f32],
    first: usize,
    keys: Codes<'_, BITS>,
    scores: &mut [Row],
) -> usize {
    let table = s.load(&const { levels(BITS) });
    let mut sums = [[s.splat(0.0); 2]; R];
    let queries = queries.as_chunks::<QUERY_GROUP>().0.as_chunks::<GROUP>().0;
    for (bytes, queries) in keys.columns().iter().zip(queries) {
        let words = words_of_rows(bytes);
        for (i, query) in queries.iter().enumerate() {
            let shift = (i * BITS) as u32;
            let key = [s.look_up(table, &words[0], shift), s.look_up(table, &words[1], shift)];
            for (r, sum) in sums.iter_mut().enumerate() {
                let q = s.splat(query[(first + r) % QUERY_GROUP]);
                *sum = [s.fma(q, key[0], sum[0]), s.fma(q, key[1], sum[1])];
            }
        }
    }
    let scales = keys.load_scales(s);
    for (row, sum) in scores.iter_mut().zip(sums) {
        for (half, (sum, scale)) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(sum.into_iter().zip(scales)) {
            s.store(half, s.mul(sum, scale));
        }
    }
    R
}

/// Multiplies the scales of a block's values to its probabilities.
pub(super) struct Weigh<'a, const BITS: usize> {
    /// Probabilities, a row per query.
    pub(super) rows: &'a mut [Row],
    pub(super) values: Codes<'a, BITS>,
}

impl<const BITS: usize> Kernel for Weigh<'_, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let scales = self.values.load_scales(s);
        for row in self.rows {
            for (half, scale) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(scales) {
                let weighed = s.mul(s.load(half), scale);
                s.store(half, weighed);
            }
        }
    }
}

impl<const BITS: usize> ValueSource for Codes<'_, BITS> {
    fn dim(self) -> usize {
        self.width
    }

    #[inline(always)]
    fn load<S: Floats, const V: usize>(self, s: S, key: usize, entry: usize) -> Option<[S::F; V]> {
        let table = s.load(&const { levels(BITS) });
        let bytes = &self.bytes[key * self.stride() + entry / GROUP * BITS..];
        let mut vectors = [s.splat(0.0); V];
        for (v, vector) in vectors.iter_mut().enumerate() {
            // What a word has beyond its codes is passed over; behind the last codes lie the scales.
            let low = bytes.get(2 * v * BITS..)?.first_chunk()?;
            let high = bytes.get((2 * v + 1) * BITS..)?.first_chunk()?;
            *vector = s.look_up_run::<BITS>(table, [u32::from_le_bytes(*low), u32::from_le_bytes(*high)]);
        }
        Some(vectors)
    }

    #[inline(always)]
    fn load_rest<S: Floats>(self, s: S, key: usize, entry: usize) -> S::F {
        // Rotated heads are whole vectors.
        self.load::<S, 1>(s, key, entry).map_or(s.splat(0.0), |[vector]| vector)
    }

    #[inline(always)]
    fn fetch<S: Floats, const V: usize>(self, s: S, ahead: *const u8, key: usize, entry: usize) {
        if entry == 0 {
            let first = key * self.stride();
            for line in first.div_ceil(LINE)..(first + self.stride()).div_ceil(LINE) {
                s.prefetch(ahead.wrapping_add(line * LINE));
            }
        }
    }
}
