//! Makes a graph's weights ready: packs matrices, decodes vectors, keeps tables as they lie in the file.

use std::collections::HashMap;

use bantam_backend::{CompileError, CustomOp, Progress, WeightData, WeightError, WeightSource};
use bantam_gguf::dequantize;
use bantam_graph::{Graph, NgramHash, Op, Weight};

use super::rope::RopeTable;
use crate::{
    isa::Isa,
    linear::{PackedMatrix, Packer},
};

/// A table of which single rows are read.
#[derive(Debug)]
pub(crate) struct Table {
    /// The rows, in the file's format.
    pub(crate) data: WeightData,
    /// Rows.
    pub(crate) rows: usize,
    /// Entries of a row.
    pub(crate) width: usize,
}

/// A table of integers.
#[derive(Debug)]
pub(crate) struct IntegerTable {
    /// Row after row.
    pub(crate) values: Vec<u32>,
    /// Rows.
    pub(crate) rows: usize,
    /// Entries of a row.
    pub(crate) width: usize,
    /// All entries are below this.
    pub(crate) below: usize,
}

/// A node with an op from outside.
#[derive(Debug)]
pub(crate) struct CustomNode {
    /// The node's name.
    pub(crate) node: String,
    /// What computes it.
    pub(crate) op: Box<dyn CustomOp>,
    /// Its weights, in [`Weights::vectors`].
    pub(crate) weights: Vec<usize>,
}

/// The weights of a program, ready for use; the IR refers to them by index.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// Matrices and stacks of matrices.
    pub(crate) matrices: Vec<PackedMatrix>,
    /// Vectors, as `f32`.
    pub(crate) vectors: Vec<Vec<f32>>,
    /// Tables.
    pub(crate) tables: Vec<Table>,
    /// Tables of integers.
    pub(crate) integers: Vec<IntegerTable>,
    /// Hashes of n-grams.
    pub(crate) hashes: Vec<NgramHash>,
    /// Ops from outside.
    pub(crate) customs: Vec<CustomNode>,
    /// Rotary frequencies.
    pub(crate) ropes: Vec<RopeTable>,
}

impl Table {
    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.data.ty.row_bytes(self.width).unwrap_or(0)
    }
}

impl Weights {
    /// Bytes of all weights in memory. Tables stay in the file.
    pub(crate) fn bytes(&self) -> u64 {
        let matrices: usize = self.matrices.iter().map(PackedMatrix::bytes).sum();
        let vectors: usize = self.vectors.iter().map(|v| size_of_val(v.as_slice())).sum();
        (matrices + vectors) as u64
    }
}

/// Index of each weight in the table of its role, by name.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// In [`Weights::matrices`].
    pub(crate) matrices: HashMap<String, usize>,
    /// In [`Weights::vectors`].
    pub(crate) vectors: HashMap<String, usize>,
    /// In [`Weights::tables`].
    pub(crate) tables: HashMap<String, usize>,
    /// In [`Weights::integers`].
    pub(crate) integers: HashMap<String, usize>,
}

impl Index {
    fn of(&mut self, role: Role) -> &mut HashMap<String, usize> {
        match role {
            Role::Matrix => &mut self.matrices,
            Role::Vector => &mut self.vectors,
            Role::Table => &mut self.tables,
            Role::Integers => &mut self.integers,
        }
    }
}

/// What an op does with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Multiplies by it.
    Matrix,
    /// Reads it whole, as f32.
    Vector,
    /// Reads single rows of it, which stay where they are.
    Table,
    /// Reads single rows of integers.
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

/// The weights that nodes of a graph name, each once in each of its roles: what [`CpuBackend`](crate::CpuBackend) loads.
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

/// How weights are made ready.
pub(crate) struct Loading {
    /// The path whose kernels use them.
    pub(crate) isa: Isa,
    /// Whether matrices are packed that could stay in the file.
    pub(crate) repack: bool,
}

/// Loads every weight that a node of a graph names, once for all graphs that have it.
pub(crate) fn load(
    graphs: &[&Graph],
    source: &dyn WeightSource,
    loading: &Loading,
    progress: Progress<'_>,
) -> Result<(Weights, Vec<Index>), CompileError> {
    let wanted = wanted(graphs);
    let total = wanted.iter().map(|w| elements(w.weight)).sum();
    let making = Making { packer: Packer::new(loading.isa), repack: loading.repack };
    let (mut weights, mut done) = (Weights::default(), 0);
    let mut indexes: Vec<Index> = graphs.iter().map(|_| Index::default()).collect();
    for Wanted { weight, roles, graphs } in &wanted {
        let data = source.load(weight)?;
        for role in roles {
            let at = load_as(*role, weight, &data, &making, &mut weights)?;
            for graph in graphs {
                indexes[*graph].of(*role).insert(weight.name.clone(), at);
            }
        }
        let stays = roles.contains(&Role::Matrix) && making.stays(&data);
        drop(data);
        if !stays {
            source.release(weight);
        }
        done += elements(weight);
        progress(done, total);
    }
    Ok((weights, indexes))
}

fn elements(weight: &Weight) -> u64 {
    weight.shape.iter().map(|n| *n as u64).product()
}

/// A weight, what is done with it, and the graphs that have it.
struct Wanted<'g> {
    weight: &'g Weight,
    roles: Vec<Role>,
    graphs: Vec<usize>,
}

/// The weights that nodes name, in order of first use. Graphs may have different weights of one name.
fn wanted<'g>(graphs: &[&'g Graph]) -> Vec<Wanted<'g>> {
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

fn role(op: &Op, name: &str) -> Role {
    match op {
        Op::Embed(_) => Role::Table,
        Op::Lookup(_) => Role::Integers,
        Op::Experts(o) if o.up == name || [&o.gate, &o.down].contains(&&Some(name.into())) => Role::Matrix,
        Op::Linear(o) if o.weight == name => Role::Matrix,
        _ => Role::Vector,
    }
}

/// Makes a weight ready for a role; its index in the role's table.
fn load_as(
    role: Role,
    weight: &Weight,
    data: &WeightData,
    making: &Making,
    weights: &mut Weights,
) -> Result<usize, CompileError> {
    match role {
        Role::Matrix => {
            weights.matrices.push(making.matrix(weight, data)?);
            Ok(weights.matrices.len() - 1)
        }
        Role::Vector => {
            let values = decoded(weight, data)?;
            weights.vectors.push(values);
            Ok(weights.vectors.len() - 1)
        }
        Role::Integers => {
            weights.integers.push(integers(weight, data)?);
            Ok(weights.integers.len() - 1)
        }
        Role::Table => {
            let [rows, width] = weight.shape[..] else { return Err(refused(weight, &"a table has two axes")) };
            let expected = data.ty.row_bytes(width).and_then(|bytes| bytes.checked_mul(rows));
            if expected != Some(data.bytes.len()) {
                let (ty, found) = (data.ty, data.bytes.len());
                return Err(refused(
                    weight,
                    &format!("{rows} rows of {width} values in {ty} do not take {found} bytes"),
                ));
            }
            weights.tables.push(Table { data: data.clone(), rows, width });
            Ok(weights.tables.len() - 1)
        }
    }
}

fn decoded(weight: &Weight, data: &WeightData) -> Result<Vec<f32>, CompileError> {
    let mut values = vec![0.0; data.shape.iter().product()];
    dequantize(data.ty, &data.bytes, &mut values).map_err(|e| refused(weight, &e))?;
    Ok(values)
}

fn integers(weight: &Weight, data: &WeightData) -> Result<IntegerTable, CompileError> {
    /// From here on floats skip integers.
    const EXACT: f32 = (1 << 24) as f32;
    let [rows, width] = weight.shape[..] else { return Err(refused(weight, &"a table has two axes")) };
    let entry = |x: &f32| {
        let fits = x.fract() == 0.0 && (0.0..EXACT).contains(x);
        if fits {
            Ok(*x as u32)
        } else {
            Err(refused(weight, &format!("expected integers from 0 to 2²⁴, found {x}")))
        }
    };
    let values = decoded(weight, data)?.iter().map(entry).collect::<Result<Vec<u32>, _>>()?;
    let below = values.iter().max().map_or(0, |greatest| *greatest as usize + 1);
    Ok(IntegerTable { values, rows, width, below })
}

/// Makes matrices.
struct Making {
    packer: Packer,
    repack: bool,
}

impl Making {
    /// Whether matrices are multiplied with where they lie. What had to be computed is in memory anyway, so it is packed.
    fn stays(&self, data: &WeightData) -> bool {
        !self.repack && !data.bytes.is_owned()
    }

    fn matrix(&self, weight: &Weight, data: &WeightData) -> Result<PackedMatrix, CompileError> {
        let (matrices, rows, cols) = match weight.shape[..] {
            [rows, cols] => (1, rows, cols),
            [matrices, rows, cols] => (matrices, rows, cols),
            _ => return Err(refused(weight, &"a matrix has two axes, a stack of matrices three")),
        };
        let matrix = if self.stays(data) {
            self.packer.keep(data.ty, matrices, rows, cols, data.bytes.clone())
        } else {
            self.packer.pack_stacked(data.ty, matrices, rows, cols, &data.bytes)
        };
        matrix.map_err(|e| refused(weight, &e))
    }
}

fn refused(weight: &Weight, why: &dyn std::fmt::Display) -> CompileError {
    CompileError::Weight(WeightError { weight: weight.name.clone(), why: why.to_string() })
}
