//! Runs chains: each piece of the products, and at once what follows on it.

use std::ops::Range;

use super::{
    elementwise::Map,
    experts,
    frame::{Frame, PieceRow},
    linear, norm, quantize, rope,
    turn::Turn,
};
use crate::{
    attention::store::Heads,
    compile::{
        chain::Chain,
        ir::{Op, ValueId},
    },
    linear::PackedMatrix,
    team::{Member, share},
};

/// Runs this member's part of a chain.
///
/// # Safety
/// As [`super::run`].
pub(super) unsafe fn run(frame: &Frame<'_>, member: &Member<'_>, chain: &Chain) {
    let links = Links { frame, member, chain };
    let Some(&lead) = chain.products.first() else { return };
    let lead = links.turn(lead);
    if lead.rows() == 0 {
        return;
    }
    match lead.op() {
        Op::Linear { matrix, .. } => links.columns(&lead, &frame.weights.matrices[*matrix]),
        Op::Experts { .. } => experts::pieces(
            &lead,
            |rows| chain.tiles_at_once(rows),
            |piece| {
                links.products().for_each(|turn| experts::piece(&turn, piece));
                links.tail().for_each(|turn| follow(&turn, piece.results(), &piece.columns));
            },
        ),
        _ => {}
    }
}

/// A chain as a member runs it.
struct Links<'a> {
    frame: &'a Frame<'a>,
    member: &'a Member<'a>,
    chain: &'a Chain,
}

impl<'a> Links<'a> {
    fn turn(&self, node: usize) -> Turn<'a> {
        // SAFETY: whoever made the links promised so for the chain's nodes.
        unsafe { Turn::new(self.frame, self.member, node) }
    }

    fn products(&self) -> impl Iterator<Item = Turn<'a>> {
        self.chain.products.iter().map(|node| self.turn(*node))
    }

    fn tail(&self) -> impl Iterator<Item = Turn<'a>> {
        self.chain.tail.iter().map(|node| self.turn(*node))
    }

    /// Takes pieces of the columns, and cuts them so that results stay in the cache until they are read.
    fn columns(&self, lead: &Turn<'_>, matrix: &PackedMatrix) {
        let (grain, rows) = (self.chain.grain, lead.rows());
        let step = self.chain.tiles_at_once(rows);
        let bytes = matrix.bytes() * self.chain.products.len();
        linear::pieces(lead, bytes.saturating_mul(rows), matrix.tiles().div_ceil(grain), |parts, part| {
            let tiles = share(matrix.tiles(), grain, part, parts);
            for first in tiles.clone().step_by(step) {
                self.piece(rows, first..(first + step).min(tiles.end), matrix);
            }
        });
    }

    /// Computes some columns of the products, and what follows on them.
    fn piece(&self, rows: usize, tiles: Range<usize>, matrix: &PackedMatrix) {
        self.products().for_each(|turn| linear::columns(&turn, tiles.clone()));
        let columns = linear::columns_of(matrix, &tiles);
        let rows = (0..rows).map(|row| PieceRow { number: row, row });
        self.tail().for_each(|turn| follow(&turn, rows.clone(), &columns));
    }
}

/// Computes columns `columns` of some rows of the first result.
fn follow(turn: &Turn<'_>, rows: impl Iterator<Item = PieceRow>, columns: &Range<usize>) {
    match turn.op() {
        Op::Store { x, slot } => {
            let (layout, heads) = (turn.frame.layout(*x, columns), columns.start / slot.dim..columns.end / slot.dim);
            let x = Heads { values: turn.read(*x), pitch: layout.pitch, first: layout.first / slot.dim };
            super::keep_heads(turn, x, slot, (0..turn.rows(), heads));
        }
        Op::Quantize(source) => quantize::columns(turn, *source, rows, columns),
        _ => follow_in_floats(turn, rows, columns),
    }
}

fn follow_in_floats(turn: &Turn<'_>, rows: impl Iterator<Item = PieceRow>, columns: &Range<usize>) {
    let (frame, out, layout) = (turn.frame, turn.out::<f32>(0), turn.layout(columns));
    let read = |value: ValueId| (turn.read::<f32>(value), frame.layout(value, columns));
    // SAFETY: this member alone takes these columns, each once.
    let own = |row: PieceRow| unsafe { out.part(layout.entries(row, columns)) };
    match turn.op() {
        Op::Norm { x, norm } => {
            let ((x, at), groups) = (read(*x), columns.start / norm.group..columns.end / norm.group);
            rows.for_each(|row| norm::norm(frame, norm, &x[at.entries(row, columns)], groups.clone(), own(row)));
        }
        Op::Rope { x, angles, turning } => {
            let ((x, at), dims) = (read(*x), frame.width(*angles));
            let rotation = rope::Rotation { angles: turn.read(*angles), dims, turning: *turning, isa: frame.isa };
            let (dim, heads) = (turning.head_dim, turn.width() / turning.head_dim);
            for row in rows {
                let first = row.row * heads;
                let items = first + columns.start / dim..first + columns.end / dim;
                rotation.rotate(&x[at.entries(row, columns)], heads, items, own(row));
            }
        }
        Op::Glu { gate, up, gating } => {
            let ((gate, gate_at), (up, up_at)) = (read(*gate), read(*up));
            for row in rows {
                let (gate, up) = (&gate[gate_at.entries(row, columns)], &up[up_at.entries(row, columns)]);
                Map::Glu(gate, up, *gating).apply(frame.isa, own(row));
            }
        }
        Op::Activate { x, act } => {
            let (x, at) = read(*x);
            rows.for_each(|row| Map::Activate(&x[at.entries(row, columns)], *act).apply(frame.isa, own(row)));
        }
        _ => {}
    }
}
