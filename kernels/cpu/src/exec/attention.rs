//! Attention and the choice of what it sees, piece by piece.

use super::turn::Turn;
use crate::{
    attention::{Attention, Cut, top_keys},
    compile::ir::{Attend, Beside, Best, ValueId},
};

/// Does as many pieces of an attention as this member gets hold of.
pub(super) fn attend(turn: &Turn<'_>, q: ValueId, attend: &Attend, beside: &Beside) {
    let frame = turn.frame;
    let Some(pieces) = frame.prepared.pieces(frame.plan.values[q].rows, Cut::of(attend)) else { return };
    let attention = Attention {
        attend,
        pools: frame.pools,
        step: frame.step,
        rows: turn.row_map(),
        pieces,
        partials: frame.partials,
        isa: frame.isa,
        q: turn.read(q),
        sinks: attend.sinks.map(|sinks| frame.weights.vectors[sinks].as_slice()),
        chosen_blocks: beside.chosen_blocks.map(|ids| turn.read(ids)),
        chosen_rows: beside.chosen_rows.map(|ids| turn.read(ids)),
        own: beside.own.map(|own| own.map(|x| turn.read(x))),
        first_rows: frame.prepared.first_rows(),
        out: turn.out(0),
    };
    let scratch = turn.scratch();
    while let Some(piece) = turn.claims().next(pieces.len()) {
        // SAFETY: a piece is claimed once; the writes to the cache stand before a barrier, and the step was checked.
        unsafe { attention.run(piece, &mut scratch.piece) };
    }
}

/// Chooses rows for this member's queries.
pub(super) fn top_keys(turn: &Turn<'_>, q: ValueId, weights: Option<ValueId>, best: &Best) {
    let frame = turn.frame;
    let choice = top_keys::Choice {
        best,
        pool: &frame.pools[best.k.group],
        step: frame.step,
        rows: turn.row_map(),
        isa: frame.isa,
        q: turn.read(q),
        weights: weights.map(|weights| turn.read(weights)),
    };
    let scratch = turn.scratch();
    while let Some(row) = turn.claims().next(turn.rows()) {
        // SAFETY: a row is claimed once; the writes to the state stand before a barrier, and the step was checked.
        unsafe { choice.run(row, &mut scratch.candidates, turn.own(row..row + 1, best.count)) };
    }
}
