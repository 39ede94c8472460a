//! Computes for logit rows only whatever no state needs.
//!
//! Values that the write of some state, a tap or an op that reads all rows depends on are wide: they are computed for every
//! token. All others are narrow.
//! Where a narrow node reads a wide value, the logit rows are selected there; so the family's own `select` moves up to
//! the last write of state. A step without logit rows ends there.

use std::collections::HashMap;

use bantam_graph::Rows;

use super::ir::{Ir, Node, Op, Value, ValueId};

/// Narrows an IR.
pub(crate) fn narrow(ir: Ir) -> Ir {
    let wide = wide_nodes(&ir);
    let mut pass = Narrow { out: Ir { values: ir.values, taps: ir.taps, ..Ir::default() }, selected: HashMap::new() };
    for (node, wide) in ir.nodes.into_iter().zip(wide) {
        if wide {
            pass.out.nodes.push(node);
        } else {
            pass.narrow(node);
        }
    }
    pass.out.output = pass.selected.get(&ir.output).copied().unwrap_or(ir.output);
    pass.out
}

/// Which nodes some write of state, a tap, or an op that reads all rows depends on, writes and taps included.
fn wide_nodes(ir: &Ir) -> Vec<bool> {
    let producers = ir.producers();
    let mut wide: Vec<bool> = ir.nodes.iter().map(|n| n.op.writes_state()).collect();
    let whole = ir.nodes.iter().flat_map(|node| node.op.whole_operands());
    for i in ir.taps.iter().copied().chain(whole).filter_map(|value| producers[value]) {
        wide[i] = true;
    }
    for i in (0..ir.nodes.len()).rev().filter(|i| wide[*i]).collect::<Vec<_>>() {
        mark(ir, &producers, &mut wide, i);
    }
    wide
}

fn mark(ir: &Ir, producers: &[Option<usize>], wide: &mut [bool], node: usize) {
    let mut pending = vec![node];
    while let Some(i) = pending.pop() {
        for producer in ir.nodes[i].op.operands().into_iter().filter_map(|v| producers[v]) {
            if !std::mem::replace(&mut wide[producer], true) {
                pending.push(producer);
            }
        }
    }
}

struct Narrow {
    out: Ir,
    /// The narrow twin of a value.
    selected: HashMap<ValueId, ValueId>,
}

impl Narrow {
    fn narrow(&mut self, mut node: Node) {
        match node.op {
            // The step knows its inputs for logit rows as well: nothing is to be selected.
            Op::Input(_) => {}
            Op::Select(x) => {
                let narrow = self.logit_rows(x);
                self.selected.insert(node.results[0], narrow);
                return;
            }
            _ => {
                let whole = node.op.whole_operands();
                node.op.for_each_operand(|v| *v = if whole.contains(v) { *v } else { self.logit_rows(*v) });
            }
        }
        for result in &node.results {
            self.out.values[*result].rows = Rows::Logits;
        }
        self.out.nodes.push(node);
    }

    /// The value over logit rows that holds the same as `x`.
    fn logit_rows(&mut self, x: ValueId) -> ValueId {
        if let Some(narrow) = self.selected.get(&x) {
            return *narrow;
        }
        let value = &self.out.values[x];
        if value.rows == Rows::Logits || value.width == 0 {
            return x;
        }
        let narrow = self.out.push(Op::Select(x), Value { name: String::new(), rows: Rows::Logits, ..value.clone() });
        self.selected.insert(x, narrow);
        narrow
    }
}
