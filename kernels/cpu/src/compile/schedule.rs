//! Orders nodes into regions. Within a region all members of the team run freely; between regions stands a barrier.
//!
//! A node may share a region with the node whose result it reads in two cases:
//!
//! - both cut their work alike, so that each member reads what it wrote itself ([`items`]);
//! - the result is that of a product, and whoever computes a piece of it can go on with the piece at once ([`Chain`]).
//!
//! Otherwise it must wait for a barrier. In a step of few rows a barrier costs more than some nodes do: there every member
//! computes all of their rows for itself, and goes on without waiting ([`Schedule::joined`]).

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
    ops::Range,
};

use super::{
    chain::{Chain, Chains},
    ir::{Ir, Node, Op, Source, ValueId},
    weights::Weights,
};

/// Nodes in the order of execution, cut into regions.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// The nodes.
    pub(crate) nodes: Vec<Node>,
    /// The regions, as ranges of nodes.
    pub(crate) regions: Vec<Range<usize>>,
    /// Of each region, whether no barrier stands behind it in a step of few rows.
    pub(crate) joined: Vec<bool>,
    /// Products with what is made of their pieces.
    pub(crate) chains: Vec<Chain>,
    /// Of each node, which of `chains` it belongs to.
    pub(crate) chain_of: Vec<Option<usize>>,
}

impl Schedule {
    /// The nodes of joined regions: in a step of few rows each member has their results for itself.
    pub(crate) fn private_nodes(&self) -> impl Iterator<Item = &Node> {
        let joined = self.regions.iter().zip(&self.joined).filter(|(_, joined)| **joined);
        joined.flat_map(|(region, _)| &self.nodes[region.clone()])
    }
}

/// Orders the nodes so that few regions suffice: each takes every node that can run in it. `members` is the size of the
/// team, which chains must leave enough pieces for.
pub(crate) fn schedule(ir: &Ir, weights: &Weights, members: usize) -> Schedule {
    let producers = ir.producers();
    let mut chains = Chains::new(ir, weights, members);
    let operands = |node: &Node| node.op.operands().into_iter().filter_map(|v| Some((v, producers[v]?))).collect();
    let operands: Vec<Vec<(ValueId, usize)>> = ir.nodes.iter().map(operands).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); ir.nodes.len()];
    for (i, operands) in operands.iter().enumerate() {
        operands.iter().for_each(|(_, producer)| readers[*producer].push(i));
    }
    let mut missing: Vec<usize> = operands.iter().map(Vec::len).collect();
    let mut region_of: Vec<Option<usize>> = vec![None; ir.nodes.len()];
    let mut next: Vec<usize> = (0..ir.nodes.len()).filter(|i| missing[*i] == 0).collect();
    let mut order = Vec::new();
    let mut out = Schedule::default();
    while !next.is_empty() {
        let (region, start) = (out.regions.len(), order.len());
        // In the order of the IR. Each node is looked at twice at most: in a region where nothing is that it reads, it may run.
        let mut ready: BinaryHeap<Reverse<usize>> = next.drain(..).map(Reverse).collect();
        while let Some(Reverse(i)) = ready.pop() {
            let here: Vec<(ValueId, usize)> =
                operands[i].iter().copied().filter(|(_, producer)| region_of[*producer] == Some(region)).collect();
            let shares = |(value, producer): &(ValueId, usize)| {
                !chains.has(*producer) && may_follow(ir, &ir.nodes[*producer], &ir.nodes[i], *value)
            };
            if !here.iter().all(shares) && !chains.join(i, &here) {
                next.push(i);
                continue;
            }
            region_of[i] = Some(region);
            order.push(i);
            for reader in &readers[i] {
                missing[*reader] -= 1;
                if missing[*reader] == 0 {
                    ready.push(Reverse(*reader));
                }
            }
        }
        out.regions.push(start..order.len());
    }
    out.nodes = order.iter().map(|i| ir.nodes[*i].clone()).collect();
    (out.chains, out.chain_of) = chains.in_order(&order);
    out.joined = joined(ir, &out);
    out
}

/// Regions of what members can do for themselves at little cost, which have another one behind them.
fn joined(ir: &Ir, schedule: &Schedule) -> Vec<bool> {
    let outputs: HashSet<ValueId> = ir.outputs().collect();
    let is_cheap = |node: &Node| {
        matches!(node.op, Op::Quantize(_) | Op::Norm { .. } | Op::Route { .. } | Op::Assign { .. })
            && node.results.iter().all(|result| !outputs.contains(result))
    };
    let last = schedule.regions.len().saturating_sub(1);
    let regions = schedule.regions.iter().enumerate();
    regions.map(|(i, region)| i < last && schedule.nodes[region.clone()].iter().all(is_cheap)).collect()
}

/// The nodes in the order of the IR, each in a region of its own.
pub(crate) fn one_by_one(ir: &Ir) -> Schedule {
    let count = ir.nodes.len();
    Schedule {
        nodes: ir.nodes.clone(),
        regions: (0..count).map(|i| i..i + 1).collect(),
        joined: vec![false; count],
        chains: Vec::new(),
        chain_of: vec![None; count],
    }
}

/// Whether `reader` may read `value` in the region in which `writer` yields it.
fn may_follow(ir: &Ir, writer: &Node, reader: &Node, value: ValueId) -> bool {
    match (items(ir, writer), items(ir, reader)) {
        (Some(w), Some(r)) => w == r && own_operands(ir, &reader.op).contains(&value),
        _ => false,
    }
}

/// How a node's work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items {
    /// Into so many runs of a row.
    Runs(usize),
    /// Into entries, of which a row has so many.
    Entries(usize),
}

/// For nodes whose members share out the rows' items in order, each item being the same part of the rows of the
/// [`own_operands`] and of the result: how rows are cut.
fn items(ir: &Ir, node: &Node) -> Option<Items> {
    let result = &ir.values[*node.results.first()?];
    match &node.op {
        Op::Norm { norm, .. } => Some(Items::Runs(result.width / norm.group)),
        Op::Rope { turning, .. } => Some(Items::Runs(result.width / turning.head_dim)),
        Op::Store { slot, .. } => Some(Items::Runs(slot.heads)),
        op if op.is_entrywise() => Some(Items::Entries(result.per_row * result.width)),
        _ => None,
    }
}

/// The operands of which a member reads just its own items.
pub(super) fn own_operands(ir: &Ir, op: &Op) -> Vec<ValueId> {
    match op {
        Op::Mul { a, b } if ir.values[*a].width == ir.values[*b].width => vec![*a, *b],
        Op::Norm { x, .. }
        | Op::Rope { x, .. }
        | Op::Store { x, .. }
        | Op::Activate { x, .. }
        | Op::Exp { x }
        | Op::Softcap { x, .. }
        | Op::Scale { x, .. }
        | Op::Affine { x, .. }
        | Op::Quantize(Source::Plain(x))
        | Op::Mul { a: x, .. } => vec![*x],
        Op::Add { a, b } | Op::Glu { gate: a, up: b, .. } | Op::Quantize(Source::Glu(a, b, _)) => vec![*a, *b],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use bantam_backend::{CompileOptions, KvType};
    use bantam_gguf::GgmlType;

    use crate::{
        compile::{Loading, MaxRows, layout, load, plan},
        isa::Isa,
        model::{MIXTURE, PLAIN, Shape, WINDOWED, quantized},
    };

    /// Barriers that a layer of the model has in a step of many rows, and in one of few.
    fn barriers_a_layer(shape: Shape, members: usize) -> [usize; 2] {
        let [less, more] = [3, 5].map(|layers| barriers(Shape { layers, ..shape }, members));
        [0, 1].map(|i| (more[i] - less[i]).div_ceil(2))
    }

    fn barriers(shape: Shape, members: usize) -> [usize; 2] {
        let (graph, max) = (shape.graph(), MaxRows { tokens: 64, logits: 64, members });
        let checked = bantam_graph::check(&graph).unwrap();
        let options = CompileOptions {
            max_rows: 64,
            max_logit_rows: 64,
            max_tentative: 0,
            k_type: KvType::F16,
            v_type: KvType::F16,
            repack: true,
            ops: None,
        };
        let (_, layouts) = layout(std::slice::from_ref(&checked), &options).unwrap();
        let loading = Loading { isa: Isa::detect(), repack: true };
        let (mut weights, indexes) = load(&[&graph], &shape.weights(), &loading, &mut |_, _| {}).unwrap();
        let (plans, _) = plan(&checked, &layouts[0].places, &mut weights, &indexes[0], max, None).unwrap();
        let schedule = plans.fast.schedule;
        [schedule.regions.len(), schedule.joined.iter().filter(|joined| !**joined).count()]
    }

    #[test]
    fn a_dense_layer_has_five_barriers_in_a_step_of_few_rows() {
        for shape in [PLAIN, Shape { qk_norm: true, ..PLAIN }, Shape { head_dim: 32, ..WINDOWED }] {
            let [many, few] = barriers_a_layer(quantized(shape, GgmlType::Q8_0), 2);
            assert!(few <= 5 && many <= 8, "{shape:?}: {few}, {many} with many rows");
        }
    }

    #[test]
    fn a_mixture_has_seven_and_what_is_made_of_its_result() {
        let [_, few] = barriers_a_layer(quantized(MIXTURE, GgmlType::Q8_0), 2);
        assert!(few <= 7, "{few}");
    }

    #[test]
    fn heads_are_left_to_all_members_where_there_are_too_few_pieces() {
        let shape = quantized(Shape { qk_norm: true, ..PLAIN }, GgmlType::Q8_0);
        let [two, many] = [2, 64].map(|members| barriers_a_layer(shape, members)[1]);
        assert!(two < many, "{two} barriers with two members, {many} with many");
    }
}
