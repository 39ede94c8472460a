//! Orders nodes into regions. Within a region all members of the team run freely; between regions stands a barrier.
//!
//! A node may share a region with the node whose result it reads only if both cut their work alike, so that each member
//! reads what it wrote itself ([`items`]). Otherwise it must wait for a barrier.
//!
//! In a step of few rows a barrier costs more than rounding them does: there every member rounds all rows for itself, and
//! goes on without waiting ([`Schedule::joined`]).

use std::ops::Range;

use super::ir::{Ir, Node, Op, ValueId};

/// Nodes in the order of execution, cut into regions.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// The nodes.
    pub(crate) nodes: Vec<Node>,
    /// The regions, as ranges of nodes.
    pub(crate) regions: Vec<Range<usize>>,
    /// Of each region, whether no barrier stands behind it in a step of few rows.
    pub(crate) joined: Vec<bool>,
}

impl Schedule {
    /// The nodes of joined regions: in a step of few rows each member has their results for itself.
    pub(crate) fn private_nodes(&self) -> impl Iterator<Item = &Node> {
        let joined = self.regions.iter().zip(&self.joined).filter(|(_, joined)| **joined);
        joined.flat_map(|(region, _)| &self.nodes[region.clone()])
    }
}

/// Orders the nodes so that few regions suffice: each takes every node that can run in it.
pub(crate) fn schedule(ir: &Ir) -> Schedule {
    let producers = ir.producers();
    let mut region_of: Vec<Option<usize>> = vec![None; ir.nodes.len()];
    let mut waiting: Vec<usize> = (0..ir.nodes.len()).collect();
    let mut out = Schedule::default();
    while !waiting.is_empty() {
        let region = out.regions.len();
        let start = out.nodes.len();
        waiting.retain(|&i| {
            let node = &ir.nodes[i];
            let fits = node.op.operands().into_iter().all(|v| match producers[v] {
                None => true,
                Some(p) => match region_of[p] {
                    None => false,
                    Some(r) => r < region || may_follow(ir, &ir.nodes[p], node, v),
                },
            });
            if fits {
                region_of[i] = Some(region);
                out.nodes.push(node.clone());
            }
            !fits
        });
        if out.nodes.len() == start {
            // Only an IR that is no acyclic graph gets here; the checker refuses those before.
            break;
        }
        out.regions.push(start..out.nodes.len());
    }
    out.joined = joined(&out);
    out
}

/// Regions that only round, and have another one behind them.
fn joined(schedule: &Schedule) -> Vec<bool> {
    let rounds =
        |region: &Range<usize>| schedule.nodes[region.clone()].iter().all(|node| matches!(node.op, Op::Quantize(_)));
    let last = schedule.regions.len().saturating_sub(1);
    schedule.regions.iter().enumerate().map(|(i, region)| i < last && rounds(region)).collect()
}

/// The nodes in the order of the IR, each in a region of its own.
pub(crate) fn one_by_one(ir: &Ir) -> Schedule {
    let regions = (0..ir.nodes.len()).map(|i| i..i + 1).collect();
    Schedule { nodes: ir.nodes.clone(), regions, joined: vec![false; ir.nodes.len()] }
}

/// Whether `reader` may read `value` in the region in which `writer` yields it.
fn may_follow(ir: &Ir, writer: &Node, reader: &Node, value: ValueId) -> bool {
    match (items(ir, writer), items(ir, reader)) {
        (Some(w), Some(r)) => w == r && own_operand(&reader.op) == Some(value),
        _ => false,
    }
}

/// For nodes whose members share out `rows × items` in order, each item being the same part of the row of the
/// [`own_operand`] and of the result: the items of a row.
pub(crate) fn items(ir: &Ir, node: &Node) -> Option<usize> {
    let own = own_operand(&node.op)?;
    match &node.op {
        Op::Norm { norm, .. } => Some(ir.values[own].width / norm.group),
        Op::Rope { turning, .. } => Some(ir.values[own].width / turning.head_dim),
        Op::Store { slot, .. } => Some(slot.heads),
        _ => None,
    }
}

/// The operand of which a member reads just its own items.
fn own_operand(op: &Op) -> Option<ValueId> {
    match op {
        Op::Norm { x, .. } | Op::Rope { x, .. } | Op::Store { x, .. } => Some(*x),
        _ => None,
    }
}
