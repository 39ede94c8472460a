//! Hyper-connections: how blocks read and rewrite several residual streams.

use bantam_graph::{Act, Scoring};

use super::{
    GRAIN,
    elementwise::{Map, runs},
    sums::Sum,
    turn::Turn,
};
use crate::{
    compile::ir::{StreamGating, ValueId},
    isa::Isa,
    simd::with_floats,
};

/// Computes this member's rows of all three gates.
pub(super) fn gates(turn: &Turn<'_>, x: ValueId, gating: &StreamGating) {
    let (rows, width, streams) = (turn.member.share(turn.rows(), 1), turn.frame.width(x), gating.streams);
    let [scale, base] = [gating.scale, gating.base].map(|v| turn.frame.weights.vectors[v].as_slice());
    let [pre, post, mix] = [0, 1, 2].map(|number| turn.own_rows::<f32>(number, rows.clone()));
    let logits = turn.own_rows::<f32>(3, rows.clone());
    let x = &turn.read::<f32>(x)[rows.start * width..rows.end * width];
    for (i, (x, logits)) in x.chunks_exact(width).zip(logits.chunks_exact_mut(width)).enumerate() {
        for (j, ((logit, x), base)) in logits.iter_mut().zip(x).zip(base).enumerate() {
            *logit = x * scale[(j / streams).min(2)] + base;
        }
        let (first, rest) = logits.split_at(streams);
        let (second, pairs) = rest.split_at(streams);
        let isa = turn.frame.isa;
        sigmoids(isa, first, 1.0, gating.eps, &mut pre[i * streams..][..streams]);
        sigmoids(isa, second, 2.0, 0.0, &mut post[i * streams..][..streams]);
        balance(isa, pairs, gating, &mut mix[i * pairs.len()..][..pairs.len()]);
    }
}

/// `factor · sigmoid(x) + offset`.
fn sigmoids(isa: Isa, x: &[f32], factor: f32, offset: f32, out: &mut [f32]) {
    Map::Activate(x, Act::Sigmoid).apply(isa, out);
    out.iter_mut().for_each(|y| *y = factor * *y + offset);
}

/// Makes the rows (sources) and columns (destinations) of a matrix of logits sum to about 1.
fn balance(isa: Isa, logits: &[f32], gating: &StreamGating, mix: &mut [f32]) {
    let (streams, eps) = (gating.streams, gating.eps);
    for (x, row) in logits.chunks_exact(streams).zip(mix.chunks_exact_mut(streams)) {
        let greatest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Map::Score(x, Scoring::Softmax, greatest).apply(isa, row);
        let total = with_floats(isa, Sum(row));
        row.iter_mut().for_each(|share| *share = *share / total + eps);
    }
    divide_columns(mix, streams, eps);
    for _ in 1..gating.iterations {
        for row in mix.chunks_exact_mut(streams) {
            let total = row.iter().sum::<f32>() + eps;
            row.iter_mut().for_each(|share| *share /= total);
        }
        divide_columns(mix, streams, eps);
    }
}

fn divide_columns(mix: &mut [f32], streams: usize, eps: f32) {
    for column in 0..streams {
        let total = mix.iter().skip(column).step_by(streams).sum::<f32>() + eps;
        mix.iter_mut().skip(column).step_by(streams).for_each(|share| *share /= total);
    }
}

/// Computes this member's entries of the row that all streams make: the sum over streams, by rising stream.
pub(super) fn collapse(turn: &Turn<'_>, x: ValueId, streams: usize, weights: Option<ValueId>) {
    let width = turn.width();
    let entries = turn.member.share(turn.rows() * width, GRAIN);
    let (first, x) = (entries.start, turn.read::<f32>(x));
    let weights = weights.map(|w| (turn.read::<f32>(w), turn.frame.width(w)));
    let out = turn.own::<f32>(entries.clone(), 1);
    out.fill(0.0);
    for (row, piece) in runs(entries, width) {
        let column = first + piece.start - row * width;
        for stream in 0..streams {
            let (out, at) = (&mut out[piece.clone()], (row * streams + stream) * width + column);
            let x = &x[at..];
            match weights {
                None => out.iter_mut().zip(x).for_each(|(y, x)| *y += x),
                Some((w, n)) if n == streams => {
                    let w = w[row * streams + stream];
                    out.iter_mut().zip(x).for_each(|(y, x)| *y += w * x);
                }
                Some((w, _)) => out.iter_mut().zip(x).zip(&w[at..]).for_each(|((y, x), w)| *y += w * x),
            }
        }
    }
}

/// What goes into the streams.
pub(super) struct Update {
    pub(super) x: Option<ValueId>,
    pub(super) y: ValueId,
    pub(super) post: ValueId,
    pub(super) mix: Option<ValueId>,
}

/// Computes this member's new streams: the block's result first, then the old streams by rising number.
pub(super) fn update(turn: &Turn<'_>, update: &Update) {
    let (streams, width) = (turn.frame.width(update.post), turn.frame.width(update.y));
    let items = turn.member.share(turn.rows() * streams, GRAIN.div_ceil(width));
    let (y, post) = (turn.read::<f32>(update.y), turn.read::<f32>(update.post));
    let [x, mix] = [update.x, update.mix].map(|v| v.map(|v| turn.read::<f32>(v)));
    for (out, item) in turn.own::<f32>(items.clone(), width).chunks_exact_mut(width).zip(items) {
        let (row, stream) = (item / streams, item % streams);
        let y = &y[row * width..][..width];
        out.iter_mut().zip(y).for_each(|(out, y)| *out = post[item] * y);
        let Some(x) = x else { continue };
        let old = |stream: usize| &x[(row * streams + stream) * width..][..width];
        match mix {
            None => out.iter_mut().zip(old(stream)).for_each(|(out, x)| *out += x),
            Some(mix) => {
                for source in 0..streams {
                    let share = mix[(row * streams + source) * streams + stream];
                    out.iter_mut().zip(old(source)).for_each(|(out, x)| *out += share * x);
                }
            }
        }
    }
}
