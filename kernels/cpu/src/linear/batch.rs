//! What a multiplication is given: activation rows, places for results, and the checks on both.

use super::activation::{ActivationKind, Activations, rows_in};
use super::matrix::PackedMatrix;
use super::simd::LANES;
use bantam_gguf::GgmlType;
use std::marker::PhantomData;
use std::ops::Range;

/// Why a multiplication is refused; nothing has been written then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatmulError {
    /// The activations come in the wrong form.
    #[error("{ty} weights take {expected:?} activations, found {found:?}")]
    Kind {
        /// Format of the weights.
        ty: GgmlType,
        /// The form they take.
        expected: ActivationKind,
        /// The form given.
        found: ActivationKind,
    },
    /// Something lies outside of what there is.
    #[error("{what} {index} asked for, of {count}")]
    Range {
        /// What was asked for.
        what: &'static str,
        /// The first one outside.
        index: usize,
        /// How many there are.
        count: usize,
    },
}

/// The activation rows of a multiplication and where their results go.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The rows to choose from.
    pub input: Activations<'a>,
    /// What rounding to 8 bits has left of them, rounded again, row by row: multiplied as well, and added. Float weights
    /// take none.
    pub rest: Option<Activations<'a>>,
    /// How many rows take part.
    pub rows: usize,
    /// Which input row is row `r` of the batch, `rows` of them; without it row `r` is.
    pub gather: Option<&'a [u32]>,
    /// Which output row takes row `r` of the batch, `rows` different ones; without it row `r` does.
    pub scatter: Option<&'a [u32]>,
}

impl<'a> Batch<'a> {
    /// The first `rows` rows, to as many output rows.
    pub fn first(input: Activations<'a>, rows: usize) -> Self {
        Self { input, rest: None, rows, gather: None, scatter: None }
    }
}

/// Output rows that several threads fill at once, each with tiles of its own.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    start: *mut f32,
    len: usize,
    stride: usize,
    /// The column at the start of a row.
    first: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: only `matmul` writes, whose callers promise that no two threads write the same place.
unsafe impl Send for Output<'_> {}
// SAFETY: as above.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    /// Output row `r` starts at `values[r * stride]`.
    pub fn new(values: &'a mut [f32], stride: usize) -> Self {
        Self { start: values.as_mut_ptr(), len: values.len(), stride, first: 0, borrow: PhantomData }
    }

    /// As [`Output::new`], for memory that the caller's threads share without a slice of it: `len` floats from `start` on.
    ///
    /// # Safety
    /// The floats must stay valid for writing for `'a`, and nobody may read or write those that a [`matmul`] fills
    /// while it runs.
    ///
    /// [`matmul`]: super::matmul
    pub unsafe fn from_raw(start: *mut f32, len: usize, stride: usize) -> Self {
        Self { start, len, stride, first: 0, borrow: PhantomData }
    }

    /// The same rows without the columns before `first`: a row starts with that one.
    #[must_use]
    pub fn from_column(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// The place of a row's column, which is not before the first one. Nothing is read or written.
    pub(super) fn place(&self, row: usize, column: usize) -> *mut f32 {
        self.start.wrapping_add(row * self.stride + column - self.first)
    }

    /// How many rows have the columns of `tiles` of a matrix.
    fn rows(&self, weights: &PackedMatrix, tiles: &Range<usize>) -> usize {
        if tiles.start * LANES < self.first {
            return 0;
        }
        rows_in(self.len, self.stride, (tiles.end * LANES).min(weights.rows()).saturating_sub(self.first))
    }
}

/// Refuses whatever would reach outside of the buffers.
pub(super) fn check(
    weights: &PackedMatrix,
    matrix: usize,
    batch: &Batch<'_>,
    output: &Output<'_>,
    tiles: &Range<usize>,
) -> Result<(), MatmulError> {
    let (expected, found) = (weights.activation(), batch.input.kind());
    if expected != found {
        return Err(MatmulError::Kind { ty: weights.ty(), expected, found });
    }
    within("matrix", matrix, weights.matrices())?;
    if let Some(last) = tiles.end.checked_sub(1) {
        within("tile", last, weights.tiles())?;
    }
    check_rows("input row", batch.rows, batch.gather, batch.input.rows(weights.cols()))?;
    if let Some(rest) = batch.rest {
        let (expected, found) = (ActivationKind::Quantized, rest.kind());
        if expected != found || weights.activation() != expected {
            return Err(MatmulError::Kind { ty: weights.ty(), expected: weights.activation(), found });
        }
        check_rows("input row", batch.rows, batch.gather, rest.rows(weights.cols()))?;
    }
    check_rows("output row", batch.rows, batch.scatter, output.rows(weights, tiles))
}

fn within(what: &'static str, index: usize, count: usize) -> Result<(), MatmulError> {
    if index < count { Ok(()) } else { Err(MatmulError::Range { what, index, count }) }
}

/// Refuses rows beyond `count`, and lists that are shorter than the batch.
fn check_rows(what: &'static str, rows: usize, list: Option<&[u32]>, count: usize) -> Result<(), MatmulError> {
    let Some(list) = list else {
        return rows.checked_sub(1).map_or(Ok(()), |last| within(what, last, count));
    };
    let list = list.get(..rows).ok_or(MatmulError::Range { what, index: rows, count: list.len() })?;
    list.iter().try_for_each(|row| within(what, *row as usize, count))
}
