//! Where values lie: one piece of memory for all, in which values that are never alive together share their place.

use bantam_graph::Rows;

use super::ir::{Ir, ValueId};

/// Alignment of a value, in bytes: that of the widest load.
const ALIGN: usize = 256;

/// Most rows of each row space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxRows {
    pub(crate) tokens: usize,
    pub(crate) logits: usize,
}

impl MaxRows {
    /// Those of a space: a step of `n` tokens closes at most a block more than fit in it, for each of its sequences; and no
    /// more than one for a token.
    pub(crate) fn of(self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens | Rows::Strided { .. } => self.tokens,
            Rows::Logits => self.logits,
        }
    }
}

/// Where each value begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Offset of each value, in bytes.
    pub(crate) offsets: Vec<u64>,
    /// Bytes in all.
    pub(crate) bytes: usize,
}

/// A taken range: its bytes, and after which node it is free.
struct Taken {
    start: usize,
    end: usize,
    until: usize,
}

/// Places values in the order in which they are made, each in the first gap that is wide enough. `host` values are there
/// from the start: they are brought along with the step.
pub(crate) fn place(ir: &Ir, max: MaxRows, host: &[bool]) -> Option<Places> {
    let last = ir.nodes.len();
    let mut until = vec![0; ir.values.len()];
    let mut from = vec![last; ir.values.len()];
    for (i, node) in ir.nodes.iter().enumerate() {
        ir.operands(node).into_iter().for_each(|v| until[v] = i);
        for result in &node.results {
            from[*result] = if host[*result] { 0 } else { i };
            until[*result] = until[*result].max(i);
        }
    }
    ir.outputs().for_each(|output| until[output] = last);
    let mut order: Vec<ValueId> = (0..ir.values.len()).filter(|v| from[*v] < last).collect();
    order.sort_by_key(|v| from[*v]);
    let mut places = Places { offsets: vec![0; ir.values.len()], bytes: 0 };
    let mut taken: Vec<Taken> = Vec::new();
    for v in order {
        let value = &ir.values[v];
        let bytes =
            max.of(value.rows).checked_mul(value.width)?.checked_mul(4)?.max(1).checked_next_multiple_of(ALIGN)?;
        taken.retain(|t| t.until >= from[v]);
        let (mut at, mut start) = (0, 0);
        for t in &taken {
            if t.start - start >= bytes {
                break;
            }
            (start, at) = (t.end, at + 1);
        }
        let end = start.checked_add(bytes)?;
        taken.insert(at, Taken { start, end, until: until[v] });
        places.offsets[v] = start as u64;
        places.bytes = places.bytes.max(end);
    }
    Some(places)
}
