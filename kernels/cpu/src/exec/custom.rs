//! Ops that the graph's language does not have.

use bantam_backend::CustomRows;
use bantam_graph::MAX_CUSTOM_OPERANDS;

use super::turn::Turn;
use crate::compile::ir::ValueId;

/// Has this member's rows computed. Where the op cannot, the rows are zeros and the step is a failure.
pub(super) fn custom(turn: &Turn<'_>, x: &[ValueId], node: usize) {
    let rows = turn.member.share(turn.rows(), 1);
    if rows.is_empty() {
        return;
    }
    let custom = &turn.frame.weights.customs[node];
    // On the stack: steps allocate nothing.
    let mut operands: [&[f32]; MAX_CUSTOM_OPERANDS] = [&[]; MAX_CUSTOM_OPERANDS];
    for (operand, value) in operands.iter_mut().zip(x) {
        let width = turn.frame.width(*value);
        *operand = &turn.read::<f32>(*value)[rows.start * width..rows.end * width];
    }
    let mut weights: [&[f32]; MAX_CUSTOM_OPERANDS] = [&[]; MAX_CUSTOM_OPERANDS];
    for (weight, vector) in weights.iter_mut().zip(&custom.weights) {
        *weight = &turn.frame.weights.vectors[*vector];
    }
    let out = turn.own::<f32>(rows.clone(), turn.width());
    let (x, weights) = (&operands[..x.len()], &weights[..custom.weights.len()]);
    if let Err(why) = custom.op.run(CustomRows { rows: rows.len(), x, weights, out: &mut *out }) {
        out.fill(0.0);
        let _ = turn.frame.fault.set(format!("node `{}`: {why}", custom.node));
    }
}
