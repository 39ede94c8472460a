//! Runs chains: each piece of the products, and at once what follows on it.

use std::ops::Range;

use super::{elementwise::Map, experts, frame::Frame, linear, norm, quantize, rope, turn::Turn};
use crate::{
    compile::{chain::Chain, ir::Op},
    linear::PackedMatrix,
    simd::LANES,
    team::{Member, share},
};

/// Bytes of results that a member makes before it goes on with them: they shall still lie in its second-level cache.
const RESULTS: usize = 256 << 10;

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
        Op::Experts { .. } => experts::pieces(&lead, |piece| {
            links.products().for_each(|turn| experts::piece(&turn, piece));
            let runs = piece.entries.iter().map(|entry| *entry as usize);
            links.tail().for_each(|turn| follow(&turn, runs.clone(), &piece.columns));
        }),
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
        let unit_bytes = self.chain.products.len() * rows * grain * LANES * size_of::<f32>();
        let step = (RESULTS / unit_bytes.max(1)).max(1) * grain;
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
        self.tail().for_each(|turn| follow(&turn, 0..rows, &columns));
    }
}

/// Computes columns `columns` of some runs of the first result.
fn follow(turn: &Turn<'_>, runs: impl Iterator<Item = usize>, columns: &Range<usize>) {
    match turn.op() {
        Op::Store { x, slot } => super::keep_heads(turn, *x, slot, columns.start / slot.dim..columns.end / slot.dim),
        Op::Quantize(source) => quantize::columns(turn, *source, runs, columns),
        _ => follow_in_floats(turn, runs, columns),
    }
}

fn follow_in_floats(turn: &Turn<'_>, runs: impl Iterator<Item = usize>, columns: &Range<usize>) {
    let (frame, width, out) = (turn.frame, turn.width(), turn.out::<f32>(0));
    let entries = runs.map(|run| (run, run * width + columns.start..run * width + columns.end));
    // SAFETY: this member alone takes these columns, each once.
    let own = |entries: Range<usize>| unsafe { out.part(entries) };
    match turn.op() {
        Op::Norm { x, norm } => {
            let (x, groups) = (turn.read(*x), columns.start / norm.group..columns.end / norm.group);
            for (_, entries) in entries {
                norm::norm(frame, norm, &x[entries.clone()], groups.clone(), own(entries));
            }
        }
        Op::Rope { x, angles, turning } => {
            let (x, angles, dims) = (turn.read(*x), turn.read(*angles), frame.width(*angles));
            let rotation = rope::Rotation { angles, dims, turning: *turning, isa: frame.isa };
            let (dim, heads) = (turning.head_dim, width / turning.head_dim);
            for (run, entries) in entries {
                let items = run * heads + columns.start / dim..run * heads + columns.end / dim;
                rotation.rotate(&x[entries.clone()], heads, items, own(entries));
            }
        }
        Op::Glu { gate, up, gating } => {
            let (gate, up) = (turn.read(*gate), turn.read(*up));
            for (_, entries) in entries {
                Map::Glu(&gate[entries.clone()], &up[entries.clone()], *gating).apply(frame.isa, own(entries));
            }
        }
        Op::Activate { x, act } => {
            let x = turn.read(*x);
            for (_, entries) in entries {
                Map::Activate(&x[entries.clone()], *act).apply(frame.isa, own(entries));
            }
        }
        _ => {}
    }
}
