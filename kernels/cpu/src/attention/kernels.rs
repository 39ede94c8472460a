//! The three steps of attention on one block of 32 keys, for the queries of a tile.
//!
//! In every step a query's numbers are combined with the keys in rising order, whatever other queries share the tile.

use std::ops::Range;

use super::element::Element;
use crate::{
    pool::PAGE_ROWS,
    simd::{Floats, Kernel, LANES, math},
};

/// Queries that lie interleaved in memory.
pub(super) const QUERY_GROUP: usize = 8;

/// What is kept of the block's scores, then of its probabilities: one per key.
pub(super) type Row = [f32; PAGE_ROWS];

/// Scales queries and lays them out side by side: `out[entry][query] = sources[query][entry] · scale`.
pub(super) struct Interleave<'a> {
    pub(super) sources: [&'a [f32]; QUERY_GROUP],
    pub(super) scale: f32,
    pub(super) out: &'a mut [f32],
}

impl Kernel for Interleave<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, _: S) {
        let out = self.out.as_chunks_mut::<QUERY_GROUP>().0;
        let sources = self.sources.map(|source| &source[..out.len()]);
        for (entry, out) in out.iter_mut().enumerate() {
            for (out, source) in out.iter_mut().zip(&sources) {
                *out = source[entry] * self.scale;
            }
        }
    }
}

/// Keys of a block, `[entry][key]`.
pub(super) trait KeySource: Copy {
    /// Entries of a key.
    fn dim(self) -> usize;

    /// An entry of all keys.
    fn load<S: Floats>(self, s: S, entry: usize) -> Option<[S::F; 2]>;

    /// Fetches what `load` would load if the keys lay at `ahead`.
    fn fetch<S: Floats>(self, s: S, ahead: *const u8, entry: usize);
}

/// Numbers as they are.
pub(super) struct PlainKeys<'a, E: Element>(&'a [[[E::Bits; LANES]; 2]]);

impl<'a, E: Element> PlainKeys<'a, E> {
    /// Of whole entries.
    pub(super) fn new(keys: &'a [E::Bits]) -> Self {
        PlainKeys(keys.as_chunks::<LANES>().0.as_chunks::<2>().0)
    }
}

impl<E: Element> Clone for PlainKeys<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Element> Copy for PlainKeys<'_, E> {}

impl<E: Element> KeySource for PlainKeys<'_, E> {
    fn dim(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn load<S: Floats>(self, s: S, entry: usize) -> Option<[S::F; 2]> {
        let [low, high] = self.0.get(entry)?;
        Some([E::load(s, low), E::load(s, high)])
    }

    #[inline(always)]
    fn fetch<S: Floats>(self, s: S, ahead: *const u8, entry: usize) {
        let bytes = PAGE_ROWS * size_of::<E::Bits>();
        for line in 0..bytes / LINE {
            s.prefetch(ahead.wrapping_add(entry * bytes + line * LINE));
        }
    }
}

/// Scores of all keys of a block: `Σ_d q[d] · k[d]`, by rising `d`.
pub(super) struct Scores<'a, K: KeySource> {
    /// Queries, scaled: `[query / 8][entry][query % 8]`.
    pub(super) queries: &'a [f32],
    /// The first of them that is scored.
    pub(super) first: usize,
    pub(super) keys: K,
    /// A row per query from there on.
    pub(super) scores: &'a mut [Row],
    /// The keys of the next block, to be fetched meanwhile.
    pub(super) ahead: *const u8,
}

impl<K: KeySource> Kernel for Scores<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let keys = self.keys;
        let mut ahead = Some(self.ahead);
        let mut rows = self.scores;
        for (group, members) in groups(self.first..self.first + rows.len()) {
            let queries = &self.queries[group * QUERY_GROUP * keys.dim()..][..QUERY_GROUP * keys.dim()];
            let queries = queries.as_chunks::<QUERY_GROUP>().0;
            let mut first = members.start;
            while first < members.end {
                let ahead = ahead.take();
                let done = match (members.end - first).min(S::SCORE_ROWS) {
                    8.. => score_rows::<S, K, 8>(s, queries, first, keys, rows, ahead),
                    4..8 => score_rows::<S, K, 4>(s, queries, first, keys, rows, ahead),
                    3 => score_rows::<S, K, 3>(s, queries, first, keys, rows, ahead),
                    2 => score_rows::<S, K, 2>(s, queries, first, keys, rows, ahead),
                    _ => score_rows::<S, K, 1>(s, queries, first, keys, rows, ahead),
                };
                first += done;
                rows = &mut rows[done..];
            }
        }
    }
}

/// The groups of interleaved queries in which some queries lie, and which of each group they are.
#[inline(always)]
pub(super) fn groups(queries: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    (queries.start / QUERY_GROUP..queries.end.div_ceil(QUERY_GROUP)).map(move |group| {
        let first = group * QUERY_GROUP;
        (group, queries.start.max(first) - first..queries.end.min(first + QUERY_GROUP) - first)
    })
}

/// Bytes that are fetched at once.
pub(super) const LINE: usize = 64;

/// Scores of `R` queries from `first` on; returns `R`. Fetches the keys of the next block along the way, if told to.
#[inline(always)]
fn score_rows<S: Floats, K: KeySource, const R: usize>(
    s: S,
    queries: &[[f32; QUERY_GROUP]],
    first: usize,
    keys: K,
    scores: &mut [Row],
    ahead: Option<*const u8>,
) -> usize {
    let mut sums = [[s.splat(0.0); 2]; R];
    for (d, query) in queries.iter().enumerate() {
        let Some(key) = keys.load(s, d) else { break };
        if let Some(ahead) = ahead {
            keys.fetch(s, ahead, d);
        }
        for (r, sum) in sums.iter_mut().enumerate() {
            let q = s.splat(query[(first + r) % QUERY_GROUP]);
            *sum = [s.fma(q, key[0], sum[0]), s.fma(q, key[1], sum[1])];
        }
    }
    for (row, sum) in scores.iter_mut().zip(sums) {
        let (halves, _) = row.as_chunks_mut::<LANES>();
        for (half, sum) in halves.iter_mut().zip(sum) {
            s.store(half, sum);
        }
    }
    R
}

/// A query's softmax so far: the greatest score, and the sum of `e^(score − greatest)` lane by lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    pub(super) greatest: f32,
    pub(super) sums: [f32; LANES],
}

impl Softmax {
    /// Of no keys.
    pub(super) const EMPTY: Softmax = Softmax { greatest: f32::NEG_INFINITY, sums: [0.0; LANES] };
}

/// Turns scores into probabilities relative to the greatest score so far.
pub(super) struct Soften<'a> {
    /// Scores, to become probabilities.
    pub(super) rows: &'a mut [Row],
    /// The keys of the block that each query sees, a bit for each.
    pub(super) visible: &'a [u32],
    /// The softmax so far.
    pub(super) softmax: &'a mut [Softmax],
    /// Factor that brings earlier sums to the new greatest score.
    pub(super) corrections: &'a mut [f32],
}

impl Kernel for Soften<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let queries = self.rows.iter_mut().zip(self.visible).zip(self.softmax).zip(self.corrections);
        for (((row, visible), softmax), correction) in queries {
            *correction = 1.0;
            if *visible == 0 {
                continue;
            }
            if *visible != u32::MAX {
                for (i, score) in row.iter_mut().enumerate() {
                    *score = if visible >> i & 1 == 1 { *score } else { f32::NEG_INFINITY };
                }
            }
            let (halves, _) = row.as_chunks_mut::<LANES>();
            let [low, high] = halves else { continue };
            let scores = [s.load(low), s.load(high)];
            let greatest = s.greatest(s.max(s.max(scores[0], scores[1]), s.splat(softmax.greatest)));
            let shift = s.splat(greatest);
            let weights = [math::exp(s, s.sub(scores[0], shift)), math::exp(s, s.sub(scores[1], shift))];
            let (before, added) = (s.load(&softmax.sums), s.add(weights[0], weights[1]));
            s.store(low, weights[0]);
            s.store(high, weights[1]);
            if greatest == softmax.greatest {
                // The factor would be one, and change nothing.
                s.store(&mut softmax.sums, s.add(before, added));
                continue;
            }
            let factor = math::exp(s, s.sub(s.splat(softmax.greatest), shift));
            s.store(&mut softmax.sums, s.fma(before, factor, added));
            softmax.greatest = greatest;
            *correction = s.first(factor);
        }
    }
}

/// Values of a block, `[key][entry]`.
pub(super) trait ValueSource: Copy {
    /// Entries of a value.
    fn dim(self) -> usize;

    /// `V` vectors of a key's entries from `entry` on, which must be there.
    fn load<S: Floats, const V: usize>(self, s: S, key: usize, entry: usize) -> Option<[S::F; V]>;

    /// A key's entries from `entry` to the last, fewer than a vector has.
    fn load_rest<S: Floats>(self, s: S, key: usize, entry: usize) -> S::F;

    /// Fetches what `load` would load if the values lay at `ahead`.
    fn fetch<S: Floats, const V: usize>(self, s: S, ahead: *const u8, key: usize, entry: usize);
}

/// Numbers as they are.
pub(super) struct Plain<'a, E: Element> {
    pub(super) values: &'a [E::Bits],
    pub(super) dim: usize,
}

impl<E: Element> Clone for Plain<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Element> Copy for Plain<'_, E> {}

impl<E: Element> ValueSource for Plain<'_, E> {
    fn dim(self) -> usize {
        self.dim
    }

    #[inline(always)]
    fn load<S: Floats, const V: usize>(self, s: S, key: usize, entry: usize) -> Option<[S::F; V]> {
        let bits = first_vectors::<_, V>(&self.values[key * self.dim + entry..])?;
        let mut vectors = [s.splat(0.0); V];
        for v in 0..V {
            vectors[v] = E::load(s, &bits[v]);
        }
        Some(vectors)
    }

    #[inline(always)]
    fn load_rest<S: Floats>(self, s: S, key: usize, entry: usize) -> S::F {
        let mut value = [E::Bits::default(); LANES];
        let rest = &self.values[key * self.dim + entry..(key + 1) * self.dim];
        value[..rest.len()].copy_from_slice(rest);
        E::load(s, &value)
    }

    #[inline(always)]
    fn fetch<S: Floats, const V: usize>(self, s: S, ahead: *const u8, key: usize, entry: usize) {
        let bytes = size_of::<E::Bits>();
        for line in 0..V * LANES * bytes / LINE {
            s.prefetch(ahead.wrapping_add((key * self.dim + entry) * bytes + line * LINE));
        }
    }
}

/// Adds the values of a block: `sum · correction + Σ_key p[key] · v[key]`, by rising key.
pub(super) struct Values<'a, V: ValueSource> {
    /// Probabilities, a row per query.
    pub(super) rows: &'a [Row],
    /// Factors on the sums so far.
    pub(super) corrections: &'a [f32],
    /// The keys that every one of the queries sees.
    pub(super) visible: Range<usize>,
    /// The values.
    pub(super) values: V,
    /// Sums, [`padded`] entries per query.
    pub(super) sums: &'a mut [f32],
    /// The values of the next block, to be fetched meanwhile.
    pub(super) ahead: *const u8,
}

/// The first `V` vectors of a slice.
#[inline(always)]
fn first_vectors<T, const V: usize>(slice: &[T]) -> Option<&[[T; LANES]; V]> {
    slice.as_chunks::<LANES>().0.first_chunk()
}

/// Entries of a value, filled up to whole vectors.
pub(super) fn padded(dim: usize) -> usize {
    dim.next_multiple_of(LANES)
}

impl<V: ValueSource> Kernel for Values<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let stride = padded(self.values.dim());
        let mut first = 0;
        while first < self.rows.len() {
            let part = Part {
                rows: &self.rows[first..],
                corrections: &self.corrections[first..],
                visible: self.visible.clone(),
                values: self.values,
                ahead: (first == 0).then_some(self.ahead),
            };
            let sums = &mut self.sums[first * stride..];
            first += match part.rows.len().min(S::VALUE_ROWS) {
                4.. => part.add_all::<S, 4>(s, sums),
                3 => part.add_all::<S, 3>(s, sums),
                2 => part.add_all::<S, 2>(s, sums),
                _ => part.add_all::<S, 1>(s, sums),
            };
        }
    }
}

/// The queries of [`Values`] from some query on.
struct Part<'a, V> {
    rows: &'a [Row],
    corrections: &'a [f32],
    visible: Range<usize>,
    values: V,
    ahead: Option<*const u8>,
}

impl<Source: ValueSource> Part<'_, Source> {
    /// All entries of the first `R` queries; returns `R`.
    #[inline(always)]
    fn add_all<S: Floats, const R: usize>(&self, s: S, sums: &mut [f32]) -> usize {
        let dim = self.values.dim();
        let whole = dim / LANES * LANES;
        let mut entry = 0;
        while entry < whole {
            entry += match (whole - entry) / LANES {
                4.. => self.add::<S, R, 4>(s, sums, entry),
                2 | 3 => self.add::<S, R, 2>(s, sums, entry),
                _ => self.add::<S, R, 1>(s, sums, entry),
            };
        }
        if whole < dim {
            self.add_rest::<S, R>(s, sums, whole);
        }
        R
    }

    /// `V` vectors of entries from `entry` on; returns the number of entries.
    #[inline(always)]
    fn add<S: Floats, const R: usize, const V: usize>(&self, s: S, sums: &mut [f32], entry: usize) -> usize {
        let stride = padded(self.values.dim());
        // As arrays, so that all loops but that over keys have a known length and the totals stay in registers.
        let Some((rows, corrections)) = self.rows.first_chunk::<R>().zip(self.corrections.first_chunk::<R>()) else {
            return V * LANES;
        };
        let mut totals = [[s.splat(0.0); V]; R];
        for r in 0..R {
            let Some(vectors) = first_vectors::<_, V>(&sums[r * stride + entry..]) else { continue };
            let correction = s.splat(corrections[r]);
            for v in 0..V {
                totals[r][v] = s.mul(s.load(&vectors[v]), correction);
            }
        }
        let visible = self.visible.start..self.visible.end.min(PAGE_ROWS);
        for key in visible {
            let Some(values) = self.values.load::<S, V>(s, key, entry) else { continue };
            if let Some(ahead) = self.ahead {
                self.values.fetch::<S, V>(s, ahead, key, entry);
            }
            for v in 0..V {
                for r in 0..R {
                    totals[r][v] = s.fma(s.splat(rows[r][key]), values[v], totals[r][v]);
                }
            }
        }
        for r in 0..R {
            let vectors = sums[r * stride + entry..].as_chunks_mut::<LANES>().0;
            let Some(vectors) = vectors.first_chunk_mut::<V>() else { continue };
            for v in 0..V {
                s.store(&mut vectors[v], totals[r][v]);
            }
        }
        V * LANES
    }

    /// The entries that fill no vector.
    #[inline(always)]
    fn add_rest<S: Floats, const R: usize>(&self, s: S, sums: &mut [f32], entry: usize) {
        let stride = padded(self.values.dim());
        for r in 0..R {
            let Some(sum) = sums[r * stride + entry..].first_chunk_mut::<LANES>() else { continue };
            let mut total = s.mul(s.load(sum), s.splat(self.corrections[r]));
            for key in self.visible.clone() {
                total = s.fma(s.splat(self.rows[r][key]), self.values.load_rest(s, key, entry), total);
            }
            s.store(sum, total);
        }
    }
}
