//! Chains: products, and what is made of their results piece by piece while a piece lies in a cache.
//!
//! A piece is a run of columns of the result, in all rows. The queries' heads are normalised and turned, keys and values
//! stored, the gate and the way up joined and rounded by the member that has just computed them: no barrier, and no way to
//! memory and back.

use std::collections::{HashMap, HashSet};

use super::{
    ir::{Entry, Ir, Node, Op, Source, ValueId},
    schedule::own_operands,
    weights::Weights,
};
use crate::{
    linear::{PackedMatrix, QBlock},
    simd::LANES,
};

/// Products whose results have equal columns, with the nodes that follow on each piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The products.
    pub(crate) products: Vec<usize>,
    /// What follows, in order.
    pub(crate) tail: Vec<usize>,
    /// Tiles that a piece is a multiple of.
    pub(crate) grain: usize,
    /// Results that only the chain reads: a member has room for a piece of them, not for all.
    pub(crate) local: Vec<ValueId>,
}

/// Bytes of results of products that a member makes before it goes on with them: little enough to lie in its second-level
/// cache until they are read.
const RESULTS: usize = 256 << 10;

impl Chain {
    /// Tiles that a member computes of each product at a time, in so many rows.
    pub(crate) fn tiles_at_once(&self, rows: usize) -> usize {
        let bytes = self.products.len() * rows * self.grain * LANES * size_of::<f32>();
        (RESULTS / bytes.max(1)).max(1) * self.grain
    }

    /// Most entries of a result that a member makes at a time, in up to so many rows.
    pub(crate) fn entries_at_once(&self, rows: usize) -> usize {
        (RESULTS / self.products.len().max(1) / size_of::<f32>()).max(rows * self.grain * LANES)
    }
}

/// Tiles of an expert's matrix that are a piece.
pub(crate) const EXPERT_TILES: usize = 16;

/// Most nodes that follow in a chain: more than any has, and few enough to be copied whenever it grows.
const LONGEST_TAIL: usize = 32;

/// The chains of an IR as they grow.
pub(super) struct Chains<'a> {
    ir: &'a Ir,
    weights: &'a Weights,
    members: usize,
    /// Tiles of all products of the same operand.
    tiles: HashMap<ValueId, usize>,
    /// Nodes are those of the IR. A chain that another one has taken in is empty.
    chains: Vec<Chain>,
    chain_of: Vec<Option<usize>>,
}

impl<'a> Chains<'a> {
    pub(super) fn new(ir: &'a Ir, weights: &'a Weights, members: usize) -> Self {
        let (chains, chain_of) = (Vec::new(), vec![None; ir.nodes.len()]);
        let mut chains = Chains { ir, weights, members, tiles: HashMap::new(), chains, chain_of };
        for (i, node) in ir.nodes.iter().enumerate() {
            if let Op::Linear { x, .. } = &node.op {
                *chains.tiles.entry(*x).or_default() += chains.matrix(i).map_or(0, PackedMatrix::tiles);
            }
        }
        chains
    }

    /// Whether a node belongs to a chain.
    pub(super) fn has(&self, node: usize) -> bool {
        self.chain_of[node].is_some()
    }

    /// Puts node `i` at the end of the chain that yields the operands `here`, each with its producer, if there is one.
    pub(super) fn join(&mut self, i: usize, here: &[(ValueId, usize)]) -> bool {
        let Some(joined) = self.joined(i, here) else { return false };
        for node in joined.products.iter().chain(&joined.tail) {
            if let Some(old) = self.chain_of[*node].replace(self.chains.len()) {
                self.chains[old].products.clear();
                self.chains[old].tail.clear();
            }
        }
        self.chains.push(joined);
        true
    }

    /// The chain that node `i` would be the end of.
    fn joined(&self, i: usize, here: &[(ValueId, usize)]) -> Option<Chain> {
        let node = &self.ir.nodes[i];
        let own = own_operands(self.ir, &node.op);
        let grain = self.grain(node)?;
        let mut joined = Chain { products: Vec::new(), tail: Vec::new(), grain, local: Vec::new() };
        for (value, producer) in here {
            if !own.contains(value) || self.space(*value) != self.space(*node.results.first()?) {
                return None;
            }
            match self.chain_of[*producer] {
                Some(chain) if joined.products == self.chains[chain].products => {}
                Some(chain) if joined.products.is_empty() => {
                    let known = &self.chains[chain];
                    joined = Chain { grain: common_multiple(grain, known.grain), ..known.clone() };
                }
                None if joined.tail.is_empty() && self.may_lead(*producer, &joined.products) => {
                    joined.products.push(*producer);
                }
                _ => return None,
            }
        }
        joined.tail.push(i);
        (joined.tail.len() <= LONGEST_TAIL && self.leaves_enough_pieces(&joined)).then_some(joined)
    }

    /// Rows of a value: its space, and how many per row of that.
    fn space(&self, value: ValueId) -> (bantam_graph::Rows, usize) {
        let value = &self.ir.values[value];
        (value.rows, value.per_row)
    }

    /// Tiles that pieces must be multiples of for a node to follow on them; none if it cannot.
    fn grain(&self, node: &Node) -> Option<usize> {
        let columns = match &node.op {
            Op::Norm { norm, .. } => norm.group,
            Op::Rope { turning, .. } => turning.head_dim,
            Op::Store { slot, .. } => slot.dim,
            Op::Quantize(Source::Plain(_) | Source::Glu(..)) => QBlock::LEN,
            Op::Glu { .. } | Op::Activate { .. } => LANES,
            _ => return None,
        };
        let own = *own_operands(self.ir, &node.op).first()?;
        let width = self.ir.values[own].width;
        let spaces = node.results.iter().map(|result| self.ir.values[*result].per_row);
        let is_by_row = spaces.into_iter().all(|per_row| per_row == self.ir.values[own].per_row);
        (is_by_row && columns.is_multiple_of(LANES) && width.is_multiple_of(columns)).then_some(columns / LANES)
    }

    /// Whether a product may lead a chain beside the others.
    fn may_lead(&self, node: usize, others: &[usize]) -> bool {
        let Some(matrix) = self.matrix(node) else { return false };
        let beside = |other: &usize| {
            *other != node
                && self.matrix(*other).is_some_and(|m| m.rows() == matrix.rows())
                && assigned(&self.ir.nodes[*other].op) == assigned(&self.ir.nodes[node].op)
        };
        others.iter().all(beside)
    }

    /// The matrix of a product whose columns are those of its result.
    fn matrix(&self, node: usize) -> Option<&'a PackedMatrix> {
        let Node { op, results } = &self.ir.nodes[node];
        match op {
            Op::Linear { matrix, .. } => {
                let (matrix, result) = (&self.weights.matrices[*matrix], &self.ir.values[*results.first()?]);
                (matrix.matrices() == 1 && matrix.rows() == result.width && result.per_row == 1).then_some(matrix)
            }
            Op::Experts { matrix, .. } => Some(&self.weights.matrices[*matrix]),
            _ => None,
        }
    }

    /// Whether the products on the same operand are cut into twice as many pieces as there are members, at least.
    fn leaves_enough_pieces(&self, chain: &Chain) -> bool {
        let Some(lead) = chain.products.first().map(|lead| &self.ir.nodes[*lead].op) else { return false };
        let Op::Linear { x, .. } = lead else { return EXPERT_TILES.is_multiple_of(chain.grain) };
        2 * self.members * chain.grain <= self.tiles.get(x).copied().unwrap_or(0)
    }

    /// The chains by their places in an order of the nodes, and of each place which chain it belongs to.
    pub(super) fn in_order(self, order: &[usize]) -> (Vec<Chain>, Vec<Option<usize>>) {
        let mut places = vec![0; self.ir.nodes.len()];
        order.iter().enumerate().for_each(|(place, node)| places[*node] = place);
        let placed = |nodes: &[usize]| nodes.iter().map(|node| places[*node]).collect();
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); self.ir.values.len()];
        for (i, node) in self.ir.nodes.iter().enumerate() {
            node.op.operands().into_iter().for_each(|value| readers[value].push(i));
        }
        let outputs: HashSet<ValueId> = self.ir.outputs().collect();
        let chain = |chain: &Chain| Chain {
            products: placed(&chain.products),
            tail: placed(&chain.tail),
            grain: chain.grain,
            local: self.local(chain, &readers, &outputs),
        };
        let chains = self.chains.iter().map(chain).collect();
        (chains, order.iter().map(|node| self.chain_of[*node]).collect())
    }

    /// Floats that a chain yields and alone reads, where each value has these readers and some leave the step.
    fn local(&self, chain: &Chain, readers: &[Vec<usize>], outputs: &HashSet<ValueId>) -> Vec<ValueId> {
        let results = chain.products.iter().chain(&chain.tail).flat_map(|node| &self.ir.nodes[*node].results).copied();
        let is_local = |value: &ValueId| {
            self.ir.values[*value].entry == Entry::Float
                && self.ir.values[*value].width > 0
                && readers[*value].iter().all(|node| chain.tail.contains(node))
                && !outputs.contains(value)
        };
        results.filter(is_local).collect()
    }
}

/// Which rows each expert gets, for products of experts.
fn assigned(op: &Op) -> Option<ValueId> {
    match op {
        Op::Experts { assigned, .. } => Some(*assigned),
        _ => None,
    }
}

fn common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}
