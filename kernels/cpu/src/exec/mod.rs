//! Runs nodes: each member does its share.

mod attention;
mod chain;
mod custom;
mod elementwise;
pub(crate) mod experts;
pub(crate) mod frame;
mod input;
mod linear;
mod norm;
mod pool;
mod quantize;
mod recur;
mod rope;
pub(crate) mod route;
mod streams;
mod sums;
mod tables;
mod turn;
mod views;

use std::ops::Range;

use crate::{
    attention::store::{self, Heads},
    compile::{
        chain::EXPERT_TILES,
        ir::{Entry, Op, ValueId},
    },
    linear::QBlock,
    pool::StateSlot,
    simd::with_floats,
    team::Member,
};
use elementwise::{Combine, Map};
use frame::Frame;
use turn::Turn;

/// Entries below which splitting a loop over entries costs more than it saves.
const GRAIN: usize = 256;

/// Runs node `index` of the plan.
///
/// # Safety
/// All members must run the same nodes in the order of the plan, with the plan's barriers between them, on a step that
/// was checked against the pools.
pub(crate) unsafe fn run(frame: &Frame<'_>, member: &Member<'_>, index: usize) {
    if let Some(chain) = frame.plan.schedule.chain_of[index] {
        let chain = &frame.plan.schedule.chains[chain];
        // Its first product stands for all of it.
        if chain.products.first() == Some(&index) {
            // SAFETY: as this function's.
            unsafe { chain::run(frame, member, chain) };
        }
        return;
    }
    // SAFETY: as this function's.
    let turn = unsafe { Turn::new(frame, member, index) };
    if turn.rows() == 0 && !turn.op().is_recurrent() {
        return;
    }
    match turn.op() {
        Op::Input(source) => input::input(&turn, *source),
        Op::Embed { ids, table, scale } => {
            let (table, share) = (&frame.weights.tables[*table], member.share(turn.rows() * frame.width(*ids), 1));
            tables::embed(table, &turn.read(*ids)[share.clone()], *scale, turn.own(share, table.width));
        }
        Op::Lookup { ids, table } => tables::lookup(&turn, *ids, &frame.weights.integers[*table]),
        Op::NgramHash { places, hash } => tables::ngram_hash(&turn, places, &frame.weights.hashes[*hash]),
        Op::Dot { a, b, groups } => dot(&turn, *a, *b, *groups),
        Op::StreamGates { x, gating } => streams::gates(&turn, *x, gating),
        Op::StreamCollapse { x, weights, streams } => streams::collapse(&turn, *x, *streams, *weights),
        Op::StreamUpdate { x, y, post, mix } => {
            streams::update(&turn, &streams::Update { x: *x, y: *y, post: *post, mix: *mix });
        }
        Op::Angles { positions, rope } => {
            let (table, share) = (&frame.weights.ropes[*rope], member.share(turn.rows(), 1));
            rope::angles(table, &turn.read(*positions)[share.clone()], turn.own(share, turn.width()));
        }
        Op::Rope { x, angles, turning } => {
            let (angles, dims) = (turn.read(*angles), frame.width(*angles));
            let rotation = rope::Rotation { angles, dims, turning: *turning, isa: frame.isa };
            rotate(&turn, &rotation, *x);
        }
        Op::Norm { x, norm } => {
            let share = turn.share(turn.rows() * turn.width() / norm.group, 1);
            let x = &turn.read(*x)[share.start * norm.group..share.end * norm.group];
            norm::norm(frame, norm, x, share.clone(), turn.own(share, norm.group));
        }
        Op::Quantize(source) => quantize::quantize(&turn, *source),
        Op::QuantizeTwice(x) => quantize::quantize_twice(&turn, *x),
        Op::Linear { .. } => linear::linear(&turn),
        Op::Store { x, slot } => keep(&turn, *x, slot),
        Op::StoreOpen { x, gate, bias, pool } => pool::store(&turn, *x, *gate, *bias, pool),
        Op::Pool { pool, .. } => pool::pool(&turn, pool),
        Op::Convolve { .. } | Op::Delta { .. } | Op::Scan { .. } => recur::recur(&turn),
        Op::Attend { q, attend, beside, .. } => attention::attend(&turn, *q, attend, beside),
        Op::TopKeys { q, weights, best, .. } => attention::top_keys(&turn, *q, *weights, best),
        Op::Route { scores, ids, choose } => route::route(&turn, *scores, *ids, choose),
        Op::Assign { ids, experts } => {
            if let Some(out) = turn.alone() {
                experts::assign(turn.read(*ids), *experts, frame.width(*ids), out);
                if member.index() == 0 {
                    frame.tally.add(index, out, *experts);
                }
            }
        }
        Op::Experts { .. } => experts::pieces(&turn, |_| EXPERT_TILES, |piece| experts::piece(&turn, piece)),
        Op::Select(x) => match frame.plan.values[*x].entry {
            Entry::Float | Entry::Integer => select::<u32>(&turn, *x),
            Entry::Block => select::<QBlock>(&turn, *x),
        },
        Op::Custom { x, custom } => custom::custom(&turn, x, *custom),
        Op::Slice { x, cutting } => views::slice(&turn, *x, cutting),
        Op::Concat { parts, groups } => views::concat(&turn, parts, *groups),
        Op::Activate { .. }
        | Op::Exp { .. }
        | Op::Glu { .. }
        | Op::Softcap { .. }
        | Op::Add { .. }
        | Op::Mul { .. }
        | Op::Scale { .. }
        | Op::Affine { .. }
        | Op::Combine { .. } => entries(&turn),
    }
}

/// The ops that work entry by entry.
fn entries(turn: &Turn<'_>) {
    let share = turn.member.share(turn.rows() * turn.width(), GRAIN);
    let read = |v: &ValueId| &turn.read::<f32>(*v)[share.clone()];
    let out = turn.own(share.clone(), 1);
    let isa = turn.frame.isa;
    match turn.op() {
        Op::Activate { x, act } => Map::Activate(read(x), *act).apply(isa, out),
        Op::Exp { x } => Map::Exp(read(x)).apply(isa, out),
        Op::Glu { gate, up, gating } => Map::Glu(read(gate), read(up), *gating).apply(isa, out),
        Op::Softcap { x, cap } => Map::Softcap(read(x), *cap).apply(isa, out),
        Op::Add { a, b } => elementwise::add(read(a), read(b), out),
        Op::Scale { x, factor, offset } => elementwise::scale(read(x), *factor, *offset, out),
        Op::Mul { a, b } => {
            out.copy_from_slice(read(a));
            let len = turn.width() / turn.frame.width(*b);
            elementwise::spread(out, share.start, turn.read(*b), len, |a, b| a * b);
        }
        Op::Affine { x, scale, bias } => {
            out.copy_from_slice(read(x));
            let vector = |v: &usize| turn.frame.weights.vectors[*v].as_slice();
            if let Some(scale) = scale.as_ref().map(vector) {
                elementwise::spread(out, share.start, scale, turn.width() / scale.len(), |x, scale| x * scale);
            }
            if let Some(bias) = bias.as_ref().map(vector) {
                elementwise::spread(out, share.start, bias, turn.width() / bias.len(), |x, bias| x + bias);
            }
        }
        Op::Combine { y, weights } => {
            let used = turn.frame.width(*weights);
            Combine { y: turn.read(*y), weights: turn.read(*weights), width: turn.width(), used }.run(share, out);
        }
        _ => {}
    }
}

fn rotate(turn: &Turn<'_>, rotation: &rope::Rotation<'_>, x: ValueId) {
    let head_dim = rotation.turning.head_dim;
    let heads = turn.width() / head_dim;
    let share = turn.member.share(turn.rows() * heads, 1);
    let x = &turn.read(x)[share.start * head_dim..share.end * head_dim];
    rotation.rotate(x, heads, share.clone(), turn.own(share, head_dim));
}

/// Products of runs.
fn dot(turn: &Turn<'_>, a: ValueId, b: ValueId, groups: usize) {
    let run = turn.frame.width(a) / groups;
    let items = turn.member.share(turn.rows() * groups, GRAIN.div_ceil(run));
    let of = |value: ValueId| &turn.read::<f32>(value)[items.start * run..items.end * run];
    let runs = of(a).chunks_exact(run).zip(of(b).chunks_exact(run));
    for (out, (a, b)) in turn.own::<f32>(items.clone(), 1).iter_mut().zip(runs) {
        *out = with_floats(turn.frame.isa, sums::Dot(a, b));
    }
}

/// Writes rows to a state.
fn keep(turn: &Turn<'_>, x: ValueId, slot: &StateSlot) {
    // The cut of what made `x`: there may be no barrier between.
    let items = turn.member.share(turn.rows() * slot.heads, 1);
    let rows = Heads { values: turn.read(x), pitch: slot.heads * slot.dim, first: 0 };
    rectangles(items, slot.heads).into_iter().for_each(|part| keep_heads(turn, rows, slot, part));
}

/// Writes some heads of some rows to a state.
fn keep_heads(turn: &Turn<'_>, x: Heads<'_>, slot: &StateSlot, part: (Range<usize>, Range<usize>)) {
    let (pool, step) = (&turn.frame.pools[slot.group], (turn.frame.step, turn.row_map()));
    let room = turn.scratch().piece.head_room();
    // SAFETY: a turn's step was checked; no page is written twice in a step, and this member's items are its own.
    unsafe { store::store(x, (pool, slot), step, part, turn.frame.isa, room) }
}

/// The rows and heads of items (row, head): the rest of a row, whole rows, the start of a row.
fn rectangles(items: Range<usize>, heads: usize) -> [(Range<usize>, Range<usize>); 3] {
    let (first, last) = (items.start.div_ceil(heads), items.end / heads);
    if first > last {
        return [(last..first, items.start % heads..items.end % heads), (0..0, 0..0), (0..0, 0..0)];
    }
    let (rest, start) = (
        (items.start / heads..first, items.start % heads..heads),
        (last..items.end.div_ceil(heads), 0..items.end % heads),
    );
    [rest, (first..last, 0..heads), start]
}

/// The logit rows of a value over tokens.
fn select<T: Copy>(turn: &Turn<'_>, x: ValueId) {
    let width = turn.frame.plan.values[x].per_row * turn.width();
    let wanted = &turn.frame.step.logit_rows;
    let share = turn.member.share(wanted.len(), 1);
    let (from, to) = (turn.read::<T>(x), turn.own::<T>(share.clone(), width));
    for (to, row) in to.chunks_exact_mut(width).zip(&wanted[share]) {
        to.copy_from_slice(&from[*row as usize * width..][..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::rectangles;

    #[test]
    fn rectangles_hold_each_item_once() {
        for heads in 1..5 {
            for (start, end) in (0..24).flat_map(|start| (start..24).map(move |end| (start, end))) {
                let parts = rectangles(start..end, heads).into_iter();
                let of_part = |(rows, of): (std::ops::Range<usize>, std::ops::Range<usize>)| {
                    rows.flat_map(move |row| of.clone().map(move |head| row * heads + head))
                };
                assert_eq!(parts.flat_map(of_part).collect::<Vec<_>>(), (start..end).collect::<Vec<_>>());
            }
        }
    }
}
