//! Blocks of tokens to rows: storing the rows of open blocks, joining those of closed ones.

use bantam_backend::SequenceStep;

use super::turn::Turn;
use crate::{
    compile::ir::{PoolBlocks, ValueId},
    pool::Pool,
    simd::{Floats, Kernel, LANES, with_floats},
    step::RowMap,
};

/// Channels that a member joins at a time.
const CHANNELS: usize = 4 * LANES;

/// Where the rows of a sequence's open and just closed blocks lie.
#[derive(Clone, Copy)]
struct Rows<'a> {
    pool: &'a Pool,
    blocks: &'a PoolBlocks,
    sequence: &'a SequenceStep,
}

impl<'a> Rows<'a> {
    fn of(turn: &Turn<'a>, blocks: &'a PoolBlocks, map: &RowMap, row: usize) -> Self {
        let frame = turn.frame;
        let sequence = &frame.step.sequences[map.sequences[row] as usize];
        Rows { pool: &frame.pools[blocks.slot.group], blocks, sequence }
    }

    /// The row of the token at `position`: `blocks.slot.dim` floats.
    fn row(&self, position: usize) -> *mut f32 {
        let slot = &self.blocks.slot;
        let (page, place) = slot.place(position);
        let page = self.sequence.tables[slot.group][page];
        // SAFETY: a page has room for all its rows of a state.
        unsafe { self.pool.head(slot, page, 0).cast::<f32>().add(place * slot.dim) }
    }
}

/// Writes the rows of all tokens.
pub(super) fn store(turn: &Turn<'_>, x: ValueId, gate: Option<ValueId>, bias: Option<usize>, blocks: &PoolBlocks) {
    let (map, width) = (turn.row_map(), turn.frame.width(x));
    let (x, gate) = (turn.read::<f32>(x), gate.map(|gate| turn.read::<f32>(gate)));
    let bias = bias.map(|bias| turn.frame.weights.vectors[bias].as_slice());
    for row in turn.member.share(map.len(), 1) {
        let position = map.positions[row] as usize;
        let target = Rows::of(turn, blocks, map, row).row(position);
        let part = row * width..(row + 1) * width;
        // SAFETY: the row is this token's alone, and as wide as operand and gate together.
        let target = unsafe { std::slice::from_raw_parts_mut(target, blocks.slot.dim) };
        let (values, logits) = target.split_at_mut(width);
        values.copy_from_slice(&x[part.clone()]);
        if let Some(gate) = gate {
            logits.copy_from_slice(&gate[part]);
            if let Some(bias) = bias {
                let place = position % blocks.stride;
                logits.iter_mut().zip(&bias[place * width..]).for_each(|(logit, bias)| *logit += bias);
            }
        }
    }
}

/// Joins the rows of the blocks that the step closes.
pub(super) fn pool(turn: &Turn<'_>, blocks: &PoolBlocks) {
    let (map, width) = (turn.row_map(), turn.width());
    let runs = width.div_ceil(CHANNELS);
    for item in turn.member.share(map.len() * runs, 1) {
        let (row, run) = (item / runs, item % runs);
        let channels = run * CHANNELS..width.min((run + 1) * CHANNELS);
        let (rows, first) = (Rows::of(turn, blocks, map, row), map.positions[row] as usize);
        let start = row * width;
        // SAFETY: a run of channels of a row is one item, and items are shared out once.
        let out = unsafe { turn.out(0).part(start + channels.start..start + channels.end) };
        with_floats(turn.frame.isa, Join { rows, first, width, channel: channels.start, out });
    }
}

/// A run of channels of one block's row.
struct Join<'a> {
    rows: Rows<'a>,
    /// First token of the block.
    first: usize,
    /// Channels of the result.
    width: usize,
    /// First channel of the run.
    channel: usize,
    out: &'a mut [f32],
}

impl Join<'_> {
    /// Tokens whose rows meet: those of the block before come first.
    fn tokens(&self) -> std::ops::Range<usize> {
        let PoolBlocks { stride, overlap, .. } = *self.rows.blocks;
        let before = if overlap && self.first >= stride { stride } else { 0 };
        self.first - before..self.first + stride
    }

    /// Entries of the token at `position` from channel `channel` on, and their logits if there are any.
    #[inline(always)]
    fn load<S: Floats>(&self, s: S, position: usize, channel: usize, lanes: usize) -> (S::F, S::F) {
        let PoolBlocks { gated, overlap, .. } = *self.rows.blocks;
        let row = self.rows.row(position);
        let own_half = if overlap && position >= self.first { self.width } else { 0 };
        let operand = if overlap { 2 * self.width } else { self.width };
        let at = own_half + channel;
        // SAFETY: the row holds the operand and, with a gate, as many logits behind it; the step has written or kept it.
        let part = |at: usize| unsafe { std::slice::from_raw_parts(row.add(at).cast_const(), lanes) };
        let value = s.load_some(part(at), 0.0);
        (value, if gated { s.load_some(part(operand + at), 0.0) } else { s.splat(0.0) })
    }
}

impl Kernel for Join<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let tokens = self.tokens();
        for first in (0..self.out.len()).step_by(LANES) {
            let (channel, lanes) = (self.channel + first, LANES.min(self.out.len() - first));
            let mut greatest = s.splat(f32::NEG_INFINITY);
            for token in tokens.clone() {
                greatest = s.max(self.load(s, token, channel, lanes).1, greatest);
            }
            let (mut sum, mut weights) = (s.splat(0.0), s.splat(0.0));
            for token in tokens.clone() {
                let (value, logit) = self.load(s, token, channel, lanes);
                let weight = crate::simd::math::exp(s, s.sub(logit, greatest));
                sum = s.fma(value, weight, sum);
                weights = s.add(weights, weight);
            }
            let joined = s.div(sum, weights);
            // SAFETY: the lanes lie in the result of this item.
            let out = unsafe { std::slice::from_raw_parts_mut(self.out.as_ptr().add(first).cast_mut(), lanes) };
            s.store_some(out, joined);
        }
    }
}
