//! Causal depthwise convolution over the last few tokens.
//!
//! A unit is a run of channels. To it the sequence is one list of rows: those of the state, the accepted tentative ones, and
//! the step's. A result is a weighted sum of rows of that list, and the new state is another part of it.

use std::ops::Range;

use super::{Run, View};
use crate::simd::{Floats, Kernel, LANES};

/// Channels of a unit.
pub(crate) const CHANNELS: usize = 16 * LANES;

/// The unit's channels of a token before the first one.
static ZEROS: [f32; CHANNELS] = [0.0; CHANNELS];

/// One run of channels of one sequence.
pub(crate) struct Conv<'a> {
    /// Operand, all rows of the step.
    pub(crate) x: &'a [f32],
    /// Entries of a row.
    pub(crate) width: usize,
    /// `[taps, width]`; the last tap meets the token itself.
    pub(crate) weight: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    /// Tokens between two taps.
    pub(crate) dilation: usize,
    /// Rows of the state.
    pub(crate) rows: usize,
    pub(crate) view: View,
    pub(crate) run: Run,
    /// First channel of the unit.
    pub(crate) channel: usize,
    /// Results, all rows of the step, of which this unit writes its own channels.
    pub(crate) out: *mut f32,
}

impl Conv<'_> {
    fn channels(&self) -> usize {
        CHANNELS.min(self.width - self.channel)
    }

    /// Where the unit's channels of row `index` of the sequence's list lie; none: they are zeros.
    fn place(&self, index: usize) -> Option<*const f32> {
        let (kept, first) = (self.rows, self.rows + self.run.accepted);
        if index >= first {
            let row = self.run.first + index - first;
            return Some(self.x[row * self.width + self.channel..].as_ptr());
        }
        let row = if index >= kept {
            // SAFETY: the slot keeps the operand of every accepted row.
            self.view.kept.map(|rows| unsafe { rows.add((index - kept) * self.view.inputs) })
        } else {
            // SAFETY: the value has `rows` rows of `width`.
            self.view.from.map(|value| unsafe { value.add(index * self.width) })
        };
        // SAFETY: the row has `width` entries.
        row.map(|row| unsafe { row.add(self.channel) }.as_ptr().cast_const())
    }

    /// Leaves the last rows of the list up to the last certain row. Rows move to lower places only, so the lowest goes first
    /// where both lie in one slot.
    fn leave(&self) {
        let first = self.run.accepted + self.run.certain;
        for to in 0..self.rows {
            // SAFETY: the value has `rows` rows of `width`, of which this unit writes its own channels; both places have as
            // many entries, and may be the same.
            unsafe {
                let target = self.view.to.add(to * self.width + self.channel).as_ptr();
                match self.place(first + to) {
                    Some(from) => std::ptr::copy(from, target, self.channels()),
                    None => std::ptr::write_bytes(target, 0, self.channels()),
                }
            }
        }
    }
}

impl Kernel for Conv<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        match self.weight.len() / self.width {
            3 => self.rows::<S, 3>(s),
            4 => self.rows::<S, 4>(s),
            taps => self.rows_of(s, taps),
        }
        self.leave();
    }
}

/// A result is the bias, then `weight · x + sum` by rising tap; tokens before the first one are zeros.
///
/// Row after row, since the channels of a row are neighbours in memory and those of a channel are far apart.
impl Conv<'_> {
    /// All results, for a number of taps that is known when this is compiled.
    #[inline(always)]
    fn rows<S: Floats, const TAPS: usize>(&self, s: S) {
        for (i, row) in self.run.rows().enumerate() {
            let mut tokens = [ZEROS.as_slice(); TAPS];
            for (tap, token) in tokens.iter_mut().enumerate() {
                *token = self.token(i, TAPS - 1 - tap);
            }
            self.row(s, row, &tokens);
        }
    }

    /// All results.
    #[inline(always)]
    fn rows_of<S: Floats>(&self, s: S, taps: usize) {
        for (i, row) in self.run.rows().enumerate() {
            let out = self.result(row);
            for (v, out) in out.chunks_mut(LANES).enumerate() {
                let lanes = v * LANES..v * LANES + out.len();
                let mut sum = self.bias(s, &lanes);
                for tap in 0..taps {
                    let x = s.load_some(&self.token(i, taps - 1 - tap)[lanes.clone()], 0.0);
                    sum = s.fma(self.weights(s, tap, &lanes), x, sum);
                }
                s.store_some(out, sum);
            }
        }
    }

    /// The results of a row, whose taps meet `tokens`.
    #[inline(always)]
    fn row<S: Floats, const TAPS: usize>(&self, s: S, row: usize, tokens: &[&[f32]; TAPS]) {
        for (v, out) in self.result(row).chunks_mut(LANES).enumerate() {
            let lanes = v * LANES..v * LANES + out.len();
            let mut sum = self.bias(s, &lanes);
            for (tap, token) in tokens.iter().enumerate() {
                sum = s.fma(self.weights(s, tap, &lanes), s.load_some(&token[lanes.clone()], 0.0), sum);
            }
            s.store_some(out, sum);
        }
    }

    /// The unit's channels of the token that is `back` taps before token `i` of the step.
    #[inline(always)]
    fn token(&self, i: usize, back: usize) -> &[f32] {
        match self.place(self.rows + self.run.accepted + i - back * self.dilation) {
            // SAFETY: the unit's channels of a row, which nobody writes before this unit leaves its state.
            Some(x) => unsafe { std::slice::from_raw_parts(x, self.channels()) },
            None => &ZEROS[..self.channels()],
        }
    }

    /// Weights of a tap for some of the unit's channels.
    #[inline(always)]
    fn weights<S: Floats>(&self, s: S, tap: usize, lanes: &Range<usize>) -> S::F {
        s.load_some(&self.weight[tap * self.width + self.channel..][lanes.clone()], 0.0)
    }

    #[inline(always)]
    fn bias<S: Floats>(&self, s: S, lanes: &Range<usize>) -> S::F {
        match self.bias {
            Some(bias) => s.load_some(&bias[self.channel..][lanes.clone()], 0.0),
            None => s.splat(0.0),
        }
    }

    /// The unit's channels of a row of the result.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "a unit takes each row once")]
    fn result(&self, row: usize) -> &mut [f32] {
        // SAFETY: channels that this unit alone writes.
        unsafe { std::slice::from_raw_parts_mut(self.out.add(row * self.width + self.channel), self.channels()) }
    }
}
