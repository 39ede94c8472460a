//! Fusions: patterns of nodes that one pass over memory can do. None changes a bit of any result.

use super::ir::{Ir, Op, Source};

/// All fusions, and the removal of what they leave unused.
pub(crate) fn fuse(ir: &mut Ir) {
    round_at_once(ir);
    add_at_once(ir);
    remove_unused(ir);
}

/// A norm or gated unit whose only reader rounds it to 8 bits is computed while rounding.
pub(crate) fn round_at_once(ir: &mut Ir) {
    let (uses, producers) = (ir.uses(), ir.producers());
    for i in 0..ir.nodes.len() {
        let Op::Quantize(Source::Plain(x)) = ir.nodes[i].op else { continue };
        let Some(producer) = producers[x].filter(|_| uses[x] == 1) else { continue };
        let (width, per_row) = (ir.values[x].width, ir.values[x].per_row);
        // Runs of a row that are rounded apart are no rows that a norm could be computed of.
        if ir.nodes[i].results.iter().any(|rounded| ir.values[*rounded].per_row != per_row) {
            continue;
        }
        ir.nodes[i].op = match ir.nodes[producer].op {
            Op::Norm { x, norm } if norm.group == width => Op::Quantize(Source::Norm(x, norm)),
            Op::Glu { gate, up, gating } => Op::Quantize(Source::Glu(gate, up, gating)),
            _ => continue,
        };
    }
}

/// A linear whose only reader adds something to it adds it itself.
pub(crate) fn add_at_once(ir: &mut Ir) {
    let (uses, producers) = (ir.uses(), ir.producers());
    for i in 0..ir.nodes.len() {
        let Op::Add { a, b } = ir.nodes[i].op else { continue };
        for (product, add) in [(a, b), (b, a)] {
            let Some(Op::Linear { x, matrix, bias, add: None, twice }) =
                producers[product].map(|p| ir.nodes[p].op.clone())
            else {
                continue;
            };
            if uses[product] == 1 && product != add {
                ir.nodes[i].op = Op::Linear { x, matrix, bias, add: Some(add), twice };
                break;
            }
        }
    }
}

/// Removes nodes whose results nobody reads. Writes of state stay.
pub(crate) fn remove_unused(ir: &mut Ir) {
    let producers = ir.producers();
    let mut kept = vec![false; ir.nodes.len()];
    let stores = (0..ir.nodes.len()).filter(|i| ir.nodes[*i].op.writes_state());
    let mut pending: Vec<usize> = stores.chain(ir.outputs().filter_map(|output| producers[output])).collect();
    while let Some(i) = pending.pop() {
        if !std::mem::replace(&mut kept[i], true) {
            pending.extend(ir.nodes[i].op.operands().into_iter().filter_map(|v| producers[v]));
        }
    }
    let mut kept = kept.into_iter();
    ir.nodes.retain(|_| kept.next().unwrap_or(false));
}
