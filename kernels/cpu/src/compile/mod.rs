//! From a graph to a plan that members of a team can run.

mod attributes;
pub(crate) mod chain;
mod fuse;
mod head;
pub(crate) mod ir;
mod lower;
mod narrow;
mod place;
mod recurrences;
mod schedule;
mod states;
mod weights;

pub(crate) use place::{FEW_ROWS, MaxRows, Places, Private};
pub(crate) use schedule::Schedule;
pub use states::{StateForms, state_forms};
pub(crate) use states::{StateLayout, StatePlaces, layout};
pub(crate) use weights::{IntegerTable, Loading, Table, Weights, load};

use bantam_backend::{CompileError, CustomOps, Limits};
use bantam_graph::{Checked, Rows};

use ir::{Attend, Best, Ir, Op, Value, ValueId};

/// What is computed, in which order, and where values lie.
#[derive(Debug)]
pub(crate) struct Plan {
    /// All values.
    pub(crate) values: Vec<Value>,
    /// The nodes in order.
    pub(crate) schedule: Schedule,
    /// Where values lie in the arena.
    pub(crate) places: Places,
    /// The logits.
    pub(crate) output: ValueId,
    /// Values over tokens that the caller may ask for.
    pub(crate) taps: Vec<ValueId>,
}

/// The two plans of a graph: they compute the same bits.
#[derive(Debug)]
pub(crate) struct Plans {
    /// Fused, and for logit rows only where that suffices.
    pub(crate) fast: Plan,
    /// Node by node, with every value that the graph names.
    pub(crate) plain: Plan,
}

/// Plans a checked graph; also says what integers a step of it may hold.
pub(crate) fn plan(
    checked: &Checked<'_>,
    places: &StatePlaces,
    weights: &mut Weights,
    index: &weights::Index,
    max: MaxRows,
    ops: Option<&dyn CustomOps>,
) -> Result<(Plans, Limits), CompileError> {
    let (mut ir, limits) = lower::lower(checked, places, weights, index, ops)?;
    head::round_twice(&mut ir);
    let plain = finish(&ir, schedule::one_by_one(&ir), max);
    fuse::remove_unused(&mut ir);
    let mut ir = narrow::narrow(ir);
    fuse::fuse(&mut ir);
    let fast = finish(&ir, schedule::schedule(&ir, weights, max.members), max);
    Ok((Plans { fast, plain }, limits))
}

fn finish(ir: &Ir, schedule: Schedule, max: MaxRows) -> Plan {
    let places = place::place(ir, &schedule, max);
    Plan { values: ir.values.clone(), schedule, places, output: ir.output, taps: ir.taps.clone() }
}

impl Plan {
    /// Strides of the row spaces of all values.
    pub(crate) fn strides(&self) -> impl Iterator<Item = usize> {
        self.values.iter().filter_map(|value| match value.rows {
            Rows::Strided { stride } => Some(stride),
            Rows::Tokens | Rows::Logits => None,
        })
    }

    /// Most rows of strips that the state of a unit of a recurrence takes.
    pub(crate) fn strip_rows(&self) -> usize {
        let rows = |op: &Op| match op {
            Op::Delta { shape, .. } => shape.key_dim,
            Op::Scan { scan, .. } => scan.shape.size,
            _ => 0,
        };
        self.schedule.nodes.iter().map(|node| rows(&node.op)).max().unwrap_or(0)
    }

    /// All attentions, with their row spaces.
    pub(crate) fn attentions(&self) -> impl Iterator<Item = (Rows, &Attend)> {
        self.schedule.nodes.iter().filter_map(|node| match &node.op {
            Op::Attend { q, attend, .. } => Some((self.values[*q].rows, attend)),
            _ => None,
        })
    }

    /// All choices of the rows that score highest.
    pub(crate) fn choices(&self) -> impl Iterator<Item = &Best> {
        self.schedule.nodes.iter().filter_map(|node| match &node.op {
            Op::TopKeys { best, .. } => Some(best),
            _ => None,
        })
    }
}
