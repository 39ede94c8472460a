//! Recurrent state: slots, and the ops that advance them token after token.
//!
//! Every op works alike. It reads the value in slot `from`, takes in the accepted ones of the tentative rows kept there,
//! computes the step's rows, and leaves in slot `to` the value after the rows that are certain and the inputs of those that
//! are tentative ([`bantam_backend::RecurrentStep`]). A row's arithmetic is the same whether it is replayed, certain or
//! tentative, first or last in its step: so bits do not depend on chunks or speculation.
//!
//! Work is cut into units (a head, a run of channels) that touch parts of a value of their own, so a slot can be advanced
//! in place. Kept inputs are read by all units; those of the new tentative rows go to the slot's other bank.

pub(crate) mod conv;
pub(crate) mod delta;
mod head;
mod slots;
pub(crate) mod ssm;

pub(crate) use head::HeadRun;
pub(crate) use slots::{SlotPool, View, slot_bytes};

use std::ops::Range;

use crate::simd::LANES;

/// Columns of a state that are advanced together: two vectors.
pub(crate) type Strip = [[f32; LANES]; 2];

/// Columns of a [`Strip`].
pub(crate) const STRIP: usize = 2 * LANES;

/// The rows that a unit goes through for one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Row of the step at which the sequence begins.
    pub(crate) first: usize,
    /// Kept rows that are taken in before.
    pub(crate) accepted: usize,
    /// Rows of the step that are taken in for good.
    pub(crate) certain: usize,
    /// Rows of the step after them.
    pub(crate) tentative: usize,
}

impl Run {
    /// The sequence's rows in the step.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.first..self.first + self.certain + self.tentative
    }
}

/// Strips that `columns` columns take.
pub(crate) fn strips(columns: usize) -> usize {
    columns.div_ceil(STRIP)
}

/// Both vectors of a strip from up to [`STRIP`] floats, zeros in the lanes beyond.
#[inline(always)]
fn load_strip<S: crate::simd::Floats>(s: S, source: &[f32]) -> [S::F; 2] {
    let (low, high) = source.split_at(source.len().min(LANES));
    [s.load_some(low, 0.0), s.load_some(high, 0.0)]
}

/// As many lanes of a strip as `target` has room for.
#[inline(always)]
fn store_strip<S: crate::simd::Floats>(s: S, target: &mut [f32], value: [S::F; 2]) {
    let (low, high) = target.split_at_mut(target.len().min(LANES));
    s.store_some(low, value[0]);
    s.store_some(high, value[1]);
}

/// Columns `strip` of a row part of `columns` entries.
fn columns(strip: usize, columns: usize) -> Range<usize> {
    strip * STRIP..columns.min((strip + 1) * STRIP)
}
