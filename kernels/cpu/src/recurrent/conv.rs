//! Causal depthwise convolution over the last few tokens.
//!
//! A unit is a run of channels. To it the sequence is one list of rows: those of the state, the accepted tentative ones, and
//! the step's. A result is a weighted sum of rows of that list, and the new state is another part of it.

use super::{Run, View};
use crate::simd::{Floats, Kernel, LANES};

/// Channels of a unit.
pub(crate) const CHANNELS: usize = 4 * LANES;

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
        let taps = self.weight.len() / self.width;
        for (i, row) in self.run.rows().enumerate() {
            let own = self.rows + self.run.accepted + i;
            // SAFETY: this unit's channels of a row of the result.
            let out = unsafe {
                std::slice::from_raw_parts_mut(self.out.add(row * self.width + self.channel), self.channels())
            };
            for (v, out) in out.chunks_mut(LANES).enumerate() {
                let channel = self.channel + v * LANES;
                let lanes = channel..channel + out.len();
                let mut sum = match self.bias {
                    Some(bias) => s.load_some(&bias[lanes.clone()], 0.0),
                    None => s.splat(0.0),
                };
                for tap in 0..taps {
                    let Some(x) = self.place(own - (taps - 1 - tap) * self.dilation) else { continue };
                    let weight = &self.weight[tap * self.width..][lanes.clone()];
                    // SAFETY: the unit's channels, which nobody writes before this unit leaves its state.
                    let x = unsafe { std::slice::from_raw_parts(x.add(v * LANES), out.len()) };
                    sum = s.fma(s.load_some(weight, 0.0), s.load_some(x, 0.0), sum);
                }
                s.store_some(out, sum);
            }
        }
        self.leave();
    }
}
