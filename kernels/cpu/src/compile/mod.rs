//! From a graph to a plan that members of a team can run.

mod covered;
mod fuse;
pub(crate) mod ir;
mod lower;
mod narrow;
mod place;
mod rope;
mod schedule;
mod states;
mod weights;

pub(crate) use covered::covered;
pub(crate) use lower::Limits;
pub(crate) use place::{MaxRows, Places};
pub(crate) use rope::RopeTable;
pub(crate) use schedule::Schedule;
pub(crate) use states::layout;
pub(crate) use weights::{Table, Weights, load};

use std::collections::HashMap;

use bantam_backend::CompileError;
use bantam_graph::{Checked, Rows};

use crate::pool::StateSlot;
use ir::{Attend, Ir, Op, Value, ValueId};

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
}

/// The two plans of a program: they compute the same bits.
#[derive(Debug)]
pub(crate) struct Plans {
    /// Fused, and for logit rows only where that suffices.
    pub(crate) fast: Plan,
    /// Node by node, with every value that the graph names.
    pub(crate) plain: Plan,
    /// What integers a step may hold.
    pub(crate) limits: Limits,
}

/// Plans a checked graph.
pub(crate) fn plan(
    checked: &Checked<'_>,
    slots: &HashMap<String, StateSlot>,
    weights: &mut Weights,
    index: &weights::Index,
    max: MaxRows,
) -> Result<Plans, CompileError> {
    let (ir, limits) = lower::lower(checked, slots, weights, index)?;
    let plain = finish(&ir, schedule::one_by_one(&ir), max);
    let mut ir = narrow::narrow(ir);
    fuse::fuse(&mut ir);
    let fast = finish(&ir, schedule::schedule(&ir), max);
    Ok(Plans { fast, plain, limits })
}

fn finish(ir: &Ir, schedule: Schedule, max: MaxRows) -> Plan {
    let places = place::place(ir, &schedule, max);
    Plan { values: ir.values.clone(), schedule, places, output: ir.output }
}

impl Plan {
    /// All attentions, with their row spaces.
    pub(crate) fn attentions(&self) -> impl Iterator<Item = (Rows, &Attend)> {
        self.schedule.nodes.iter().filter_map(|node| match &node.op {
            Op::Attend { q, attend, .. } => Some((self.values[*q].rows, attend)),
            _ => None,
        })
    }
}
