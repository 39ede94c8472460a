//! Recurrences: which member does which unit, and what is kept of tentative rows.

use bantam_backend::RecurrentStep;

use super::turn::Turn;
use crate::{
    compile::ir::{Convolve, Op, ScanOf, ValueId},
    recurrent::{HeadRun, Run, View, conv, delta, ssm},
    simd::with_floats,
};

/// Advances the state of every sequence.
pub(super) fn recur(turn: &Turn<'_>) {
    match turn.op() {
        Op::Convolve { x, conv } => {
            convolve(turn, *x, conv);
            keep(turn, conv.state, &[*x]);
        }
        Op::Delta { operands: [q, k, decay, v, beta], shape, state } => {
            let operands = delta::Operands {
                q: turn.read(*q),
                k: turn.read(*k),
                decay: turn.read(*decay),
                v: turn.read(*v),
                beta: turn.read(*beta),
            };
            let out = turn.out(0).start();
            units(turn, *state, shape.heads, |view, run, head| {
                let (of, scratch) = (delta::Delta { shape: *shape, operands, head, out }, turn.scratch());
                let scratch = &mut scratch.strips[..shape.key_dim];
                with_floats(turn.frame.isa, HeadRun { of, view, run, scratch });
            });
            keep(turn, *state, &[*k, *decay, *v, *beta]);
        }
        Op::Scan { operands: [x, b, c, dt], scan } => {
            selective_scan(turn, [*x, *b, *c, *dt], scan);
            keep(turn, scan.state, &[*x, *b, *dt]);
        }
        _ => {}
    }
}

fn convolve(turn: &Turn<'_>, x: ValueId, o: &Convolve) {
    let vectors = &turn.frame.weights.vectors;
    let (width, out) = (turn.width(), turn.out(0).start());
    let (x, weight) = (turn.read(x), vectors[o.weight].as_slice());
    let bias = o.bias.map(|bias| vectors[bias].as_slice());
    let rows = (weight.len() / width - 1) * o.dilation;
    units(turn, o.state, width.div_ceil(conv::CHANNELS), |view, run, unit| {
        let channel = unit * conv::CHANNELS;
        let unit = conv::Conv { x, width, weight, bias, dilation: o.dilation, rows, view, run, channel, out };
        with_floats(turn.frame.isa, unit);
    });
}

fn selective_scan(turn: &Turn<'_>, [x, b, c, dt]: [ValueId; 4], o: &ScanOf) {
    let vectors = &turn.frame.weights.vectors;
    let operands = ssm::Operands {
        x: turn.read(x),
        b: turn.read(b),
        c: turn.read(c),
        dt: turn.read(dt),
        a: &vectors[o.a],
        d: o.d.map(|d| vectors[d].as_slice()),
    };
    let out = turn.out(0).start();
    units(turn, o.state, o.shape.heads, |view, run, head| {
        let of = ssm::Scan { shape: o.shape, operands, head, out };
        let scratch = &mut turn.scratch().strips[..o.shape.size];
        with_floats(turn.frame.isa, HeadRun { of, view, run, scratch });
    });
}

/// Claims units until none is left: `count` of each sequence.
fn units(turn: &Turn<'_>, state: usize, count: usize, mut work: impl FnMut(View, Run, usize)) {
    let sequences = turn.frame.step.sequences.len();
    while let Some(claimed) = turn.claims().next(sequences * count) {
        if let Some((view, run)) = sequence(turn, state, claimed / count) {
            work(view, run, claimed % count);
        }
    }
}

/// How a sequence of the step meets a state.
fn sequence(turn: &Turn<'_>, state: usize, index: usize) -> Option<(View, Run)> {
    let sequence = &turn.frame.step.sequences[index];
    let recurrent: &RecurrentStep = sequence.recurrent.as_ref()?;
    let view = turn.frame.slots?.view(state, recurrent);
    let RecurrentStep { accepted, tentative, .. } = *recurrent;
    let first = turn.frame.prepared.first_rows()[index];
    Some((view, Run { first, accepted, certain: sequence.rows - tentative, tentative }))
}

/// Keeps the inputs of tentative rows. They go where no unit reads, so nobody needs to wait.
fn keep(turn: &Turn<'_>, state: usize, inputs: &[ValueId]) {
    for index in turn.member.share(turn.frame.step.sequences.len(), 1) {
        let Some((view, run)) = sequence(turn, state, index) else { continue };
        for (kept, row) in run.rows().skip(run.certain).enumerate() {
            let mut at = kept * view.inputs;
            for input in inputs {
                let width = turn.frame.width(*input);
                let row: &[f32] = &turn.read(*input)[row * width..][..width];
                // SAFETY: the bank has room for the inputs of every tentative row, and this member alone writes those of this
                // sequence.
                unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), view.keep.as_ptr().add(at), width) };
                at += width;
            }
        }
    }
}
