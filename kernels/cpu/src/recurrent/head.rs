//! What the recurrences over heads have in common: a state cut into strips of columns, gone through token after token.

use std::ptr::NonNull;

use super::{Run, Strip, View};
use crate::simd::{Floats, Kernel, LANES};

/// One head of a recurrence. `strip` counts its strips of columns, each as many pairs of vectors as the state has rows.
pub(crate) trait Recurrence<'a> {
    /// A token as the head meets it.
    type Token;
    /// What a token leaves to be done to the state before the next one meets it.
    type Left<F: Copy>: Copy;

    /// The head's number.
    fn head(&self) -> usize;
    /// Strips of a head.
    fn strips(&self) -> usize;
    /// Token of row `row` of the step.
    fn token(&self, row: usize) -> Self::Token;
    /// A token that was tentative in the step before, from its kept inputs. Its result is not wanted.
    fn kept(&self, inputs: &'a [f32]) -> Self::Token;
    /// Takes a token into a strip; writes the result of `row`.
    fn advance<S: Floats>(
        &self,
        s: S,
        state: &mut [Strip],
        left: Option<Self::Left<S::F>>,
        token: &Self::Token,
        strip: usize,
        row: Option<usize>,
    ) -> Option<Self::Left<S::F>>;
    /// Does what the last token left to be done.
    fn settle<S: Floats>(&self, s: S, state: &mut [Strip], left: Option<Self::Left<S::F>>);
}

/// A head of one sequence's state on its way through a step.
pub(crate) struct HeadRun<'a, R> {
    pub(crate) of: R,
    pub(crate) view: View,
    pub(crate) run: Run,
    /// A strip: as many pairs of vectors as the state has rows.
    pub(crate) scratch: &'a mut [Strip],
}

impl<'a, R: Recurrence<'a>> Kernel for HeadRun<'a, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(mut self, s: S) {
        for strip in 0..self.of.strips() {
            self.run_strip(s, strip);
        }
    }
}

impl<'a, R: Recurrence<'a>> HeadRun<'a, R> {
    #[inline(always)]
    fn run_strip<S: Floats>(&mut self, s: S, strip: usize) {
        let (of, state) = (&self.of, &mut *self.scratch);
        let at = (of.head() * of.strips() + strip) * state.len();
        // SAFETY: a value has as many strips for every head.
        let place = |value: NonNull<f32>| unsafe { value.as_ptr().cast::<Strip>().add(at) };
        match self.view.from {
            // SAFETY: this unit alone touches the head's strips.
            Some(from) => state.copy_from_slice(unsafe { std::slice::from_raw_parts(place(from), state.len()) }),
            None => state.fill([[0.0; LANES]; 2]),
        }
        let mut left = None;
        for index in 0..self.run.accepted {
            left = of.advance(s, state, left, &of.kept(self.view.kept_row(index)), strip, None);
        }
        let rows = self.run.rows();
        let certain = rows.start + self.run.certain;
        for row in rows.start..certain {
            left = of.advance(s, state, left, &of.token(row), strip, Some(row));
        }
        of.settle(s, state, left.take());
        // SAFETY: as above; what was in `to` has been read.
        unsafe { std::slice::from_raw_parts_mut(place(self.view.to), state.len()) }.copy_from_slice(state);
        for row in certain..rows.end {
            left = of.advance(s, state, left, &of.token(row), strip, Some(row));
        }
    }
}
