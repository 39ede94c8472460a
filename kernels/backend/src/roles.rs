//! What a program needs of each weight.

use std::collections::HashMap;

use bantam_graph::{Graph, Op, Weight};

/// What an op does with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Multiplied with.
    Matrix,
    /// Read as numbers, entry by entry.
    Vector,
    /// Single rows are read.
    Table,
    /// Single rows of integers are read.
    Integers,
}

/// A weight in one of its roles.
#[derive(Clone, Copy, Debug)]
pub struct WeightUse<'g> {
    /// The weight.
    pub weight: &'g Weight,
    /// What is done with it.
    pub role: Role,
    /// The first node that does so, by its index in [`Graph::nodes`].
    pub node: usize,
}

/// The weights that nodes of a graph name, each once in each of its roles: what a backend loads.
pub fn weight_uses(graph: &Graph) -> Vec<WeightUse<'_>> {
    let weights: HashMap<&str, &Weight> = graph.weights.iter().map(|w| (w.name.as_str(), w)).collect();
    let mut uses: Vec<WeightUse<'_>> = Vec::new();
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (node, op) in graph.nodes.iter().map(|node| &node.op).enumerate() {
        for name in op.weights() {
            let Some(weight) = weights.get(name) else { continue };
            let (role, known) = (role(op, name), positions.entry(name).or_default());
            if known.iter().all(|at| uses[*at].role != role) {
                known.push(uses.len());
                uses.push(WeightUse { weight, role, node });
            }
        }
    }
    uses
}

/// A weight, what is done with it, and the graphs that have it.
#[derive(Debug)]
pub struct Wanted<'g> {
    /// The weight.
    pub weight: &'g Weight,
    /// What is done with it.
    pub roles: Vec<Role>,
    /// Indexes of the graphs.
    pub graphs: Vec<usize>,
}

/// The weights that nodes name, in order of first use. Graphs may have different weights of one name.
pub fn wanted<'g>(graphs: &[&'g Graph]) -> Vec<Wanted<'g>> {
    let mut wanted: Vec<Wanted<'g>> = Vec::new();
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (g, graph) in graphs.iter().enumerate() {
        let weights: HashMap<&str, &Weight> = graph.weights.iter().map(|w| (w.name.as_str(), w)).collect();
        let named = graph.nodes.iter().flat_map(|node| node.op.weights().into_iter().map(move |name| (&node.op, name)));
        for (op, name) in named {
            let Some(weight) = weights.get(name) else { continue };
            let known = positions.entry(name).or_default();
            let at = known.iter().copied().find(|at| wanted[*at].weight == *weight).unwrap_or_else(|| {
                known.push(wanted.len());
                wanted.push(Wanted { weight, roles: Vec::new(), graphs: Vec::new() });
                wanted.len() - 1
            });
            let (role, entry) = (role(op, name), &mut wanted[at]);
            if !entry.roles.contains(&role) {
                entry.roles.push(role);
            }
            if !entry.graphs.contains(&g) {
                entry.graphs.push(g);
            }
        }
    }
    wanted
}

/// What an op does with the weight `name`.
fn role(op: &Op, name: &str) -> Role {
    match op {
        Op::Embed(_) => Role::Table,
        Op::Lookup(_) => Role::Integers,
        Op::Experts(o) if o.up == name || [&o.gate, &o.down].contains(&&Some(name.into())) => Role::Matrix,
        Op::Linear(o) if o.weight == name => Role::Matrix,
        _ => Role::Vector,
    }
}
