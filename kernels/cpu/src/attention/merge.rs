//! Merging the results of segments, in the order of the keys.

use std::ops::Range;

use super::kernels::{Softmax, padded};
use crate::{
    isa::Isa,
    memory::Zeroed,
    simd::{Floats, Kernel, LANES, math, with_floats},
};

/// Places for results of segments, at most; a step that would need more leaves tiles uncut.
const PLACES: usize = 1 << 14;

/// Places that a program has; a member that works alone never needs any.
pub(crate) fn places(members: usize) -> usize {
    if members > 1 { PLACES } else { 0 }
}

/// What finished segments come to, query by query.
#[derive(Debug)]
pub(super) struct Totals {
    greatest: Vec<f32>,
    weights: Vec<f32>,
    sums: Vec<f32>,
}

impl Totals {
    /// For `queries` queries with values of at most `dim` entries.
    pub(super) fn new(queries: usize, dim: usize) -> Self {
        let sums = vec![0.0; queries * padded(dim)];
        Totals { greatest: vec![f32::NEG_INFINITY; queries], weights: vec![0.0; queries], sums }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.greatest.fill(f32::NEG_INFINITY);
    }

    /// Writes the result of query `index`: zeros if it saw no key. A sink is the score of one more key, of a value of zeros.
    pub(super) fn write(&self, isa: Isa, index: usize, sink: Option<f32>, out: &mut [f32]) {
        let (stride, seen) = (padded(out.len()), self.greatest[index]);
        if seen == f32::NEG_INFINITY {
            return out.fill(0.0);
        }
        let sums = &self.sums[index * stride..];
        match sink {
            None => {
                with_floats(isa, Divide { sums, by: self.weights[index], out });
            }
            Some(sink) => {
                let share = with_floats(isa, WithSink { seen, weight: self.weights[index], sink });
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * share);
            }
        }
    }
}

/// `sums / by`.
struct Divide<'a> {
    sums: &'a [f32],
    by: f32,
    out: &'a mut [f32],
}

impl Kernel for Divide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, _: S) {
        for (out, sum) in self.out.iter_mut().zip(self.sums) {
            *out = sum / self.by;
        }
    }
}

/// What a query's sums are multiplied by where a sink takes part in its softmax.
struct WithSink {
    /// The greatest score.
    seen: f32,
    /// The sum of `e^(score − greatest)`.
    weight: f32,
    /// The sink's score.
    sink: f32,
}

impl Kernel for WithSink {
    type Output = f32;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> f32 {
        let greatest = s.splat(if self.sink > self.seen { self.sink } else { self.seen });
        let keys = math::exp(s, s.sub(s.splat(self.seen), greatest));
        let sink = math::exp(s, s.sub(s.splat(self.sink), greatest));
        s.greatest(s.div(keys, s.fma(s.splat(self.weight), keys, sink)))
    }
}

/// A segment's result for one query.
#[derive(Clone, Copy)]
pub(super) struct Result<'a> {
    /// Greatest score; −∞ where the query sees no key.
    pub(super) greatest: f32,
    /// Sum of `e^(score − greatest)`.
    pub(super) weight: f32,
    /// Sum of the values times that, in whole vectors.
    pub(super) sums: &'a [f32],
}

/// The sum over a softmax's lanes.
pub(super) struct Weight<'a>(pub(super) &'a Softmax);

impl Kernel for Weight<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Floats>(self, s: S) -> f32 {
        s.sum(s.load(&self.0.sums))
    }
}

/// Adds a segment's result to the total of query `index`.
pub(super) struct Merge<'a> {
    pub(super) totals: &'a mut Totals,
    pub(super) index: usize,
    pub(super) result: Result<'a>,
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let Merge { totals, index, result } = self;
        let stride = result.sums.len();
        let sums = &mut totals.sums[index * stride..(index + 1) * stride];
        let before = totals.greatest[index];
        if before == f32::NEG_INFINITY {
            sums.copy_from_slice(result.sums);
            totals.greatest[index] = result.greatest;
            totals.weights[index] = result.weight;
        } else if result.greatest != f32::NEG_INFINITY {
            let greatest = if result.greatest > before { result.greatest } else { before };
            let old = math::exp(s, s.splat(before - greatest));
            let new = math::exp(s, s.splat(result.greatest - greatest));
            let vectors = sums.as_chunks_mut::<LANES>().0.iter_mut().zip(result.sums.as_chunks::<LANES>().0);
            for (sum, added) in vectors {
                let merged = s.fma(s.load(added), new, s.mul(s.load(sum), old));
                s.store(sum, merged);
            }
            let weight = s.fma(s.splat(result.weight), new, s.mul(s.splat(totals.weights[index]), old));
            totals.weights[index] = s.greatest(weight);
            totals.greatest[index] = greatest;
        }
    }
}

/// Memory for the results of segments of tiles that several members work on.
#[derive(Debug)]
pub(crate) struct Partials {
    memory: Zeroed,
    places: usize,
    /// Floats of a place: greatest score and weight, up to a vector, then the sums.
    stride: usize,
}

impl Partials {
    /// For values of at most `dim` entries; `None` if there is no memory.
    pub(crate) fn new(places: usize, dim: usize) -> Option<Self> {
        let stride = LANES + padded(dim);
        Some(Partials { memory: Zeroed::new(places * stride * size_of::<f32>())?, places, stride })
    }

    fn place(&self, place: usize, range: Range<usize>) -> *mut f32 {
        assert!(place < self.places && range.end <= self.stride, "place {place} of {}", self.places);
        // SAFETY: just checked.
        unsafe { self.memory.start().cast::<f32>().as_ptr().add(place * self.stride + range.start) }
    }

    /// Keeps a result.
    ///
    /// # Safety
    /// Nobody else may use the place meanwhile.
    pub(super) unsafe fn put(&self, place: usize, result: Result<'_>) {
        let target = self.place(place, 0..LANES + result.sums.len());
        // SAFETY: the place has room for the head and the sums, and is the caller's.
        unsafe {
            *target = result.greatest;
            *target.add(1) = result.weight;
            std::ptr::copy_nonoverlapping(result.sums.as_ptr(), target.add(LANES), result.sums.len());
        }
    }

    /// A result that was kept, with `padded` sums.
    ///
    /// # Safety
    /// It must have been kept before, and nobody may write to the place while the result lives.
    pub(super) unsafe fn get(&self, place: usize, padded: usize) -> Result<'_> {
        let source = self.place(place, 0..LANES + padded);
        // SAFETY: as the caller promises.
        unsafe {
            let sums = std::slice::from_raw_parts(source.add(LANES), padded);
            Result { greatest: *source, weight: *source.add(1), sums }
        }
    }
}
