//! The matrix that yields the logits takes its activations rounded twice.
//!
//! Its rounding is the only one that no later layer evens out, and the one that picks the token: where the best tokens lie
//! close, 8 bits are too few. It reads few rows and much memory, so that the second product costs next to nothing.

use super::ir::{Ir, Node, Op, Source, Value};
use crate::linear::QBlock;

/// Rounds the activations of the last matrix twice, if it takes rounded ones.
pub(crate) fn round_twice(ir: &mut Ir) {
    let Some((head, rounding)) = head(ir) else { return };
    let Op::Quantize(Source::Plain(x)) = ir.nodes[rounding].op else { return };
    let width = ir.values[x].width;
    let rounded = &ir.values[ir.nodes[rounding].results[0]];
    // Runs of a row that meet matrices of their own are no single product.
    if rounded.per_row != ir.values[x].per_row || rounded.width != QBlock::count(width) {
        return;
    }
    let twice = ir.value(Value { width: 2 * rounded.width, ..rounded.clone() });
    if let Op::Linear { x, twice: flag, .. } = &mut ir.nodes[head].op {
        (*x, *flag) = (twice, true);
    }
    ir.nodes.insert(head, Node { op: Op::QuantizeTwice(x), results: vec![twice] });
}

/// The last matrix product before the logits, and what rounds its activations.
fn head(ir: &Ir) -> Option<(usize, usize)> {
    let producers = ir.producers();
    let mut node = producers[ir.output]?;
    loop {
        match ir.nodes[node].op {
            Op::Softcap { x, .. } | Op::Scale { x, .. } | Op::Select(x) => node = producers[x]?,
            Op::Linear { x, .. } => return Some((node, producers[x]?)),
            _ => return None,
        }
    }
}
