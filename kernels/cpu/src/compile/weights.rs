//! Makes a graph's weights ready: packs matrices, decodes vectors, keeps tables as they lie in the file.

use std::collections::HashMap;

use bantam_backend::{CompileError, Progress, WeightData, WeightError, WeightSource};
use bantam_gguf::dequantize;
use bantam_graph::{Graph, Op, Weight};

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

/// The weights of a program, ready for use; the IR refers to them by index.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// Matrices and stacks of matrices.
    pub(crate) matrices: Vec<PackedMatrix>,
    /// Vectors, as `f32`.
    pub(crate) vectors: Vec<Vec<f32>>,
    /// Tables.
    pub(crate) tables: Vec<Table>,
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
}

/// What an op does with a weight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Matrix,
    Vector,
    Table,
}

/// Loads every weight that a node of the graph names.
pub(crate) fn load(
    graph: &Graph,
    source: &dyn WeightSource,
    isa: Isa,
    progress: Progress<'_>,
) -> Result<(Weights, Index), CompileError> {
    let roles = roles(graph);
    let total = roles.iter().map(|(w, _)| elements(w)).sum();
    let packer = Packer::new(isa);
    let (mut weights, mut index, mut done) = (Weights::default(), Index::default(), 0);
    for (weight, roles) in &roles {
        let data = source.load(weight)?;
        for role in roles {
            load_as(*role, weight, &data, &packer, &mut weights, &mut index)?;
        }
        drop(data);
        source.release(weight);
        done += elements(weight);
        progress(done, total);
    }
    Ok((weights, index))
}

fn elements(weight: &Weight) -> u64 {
    weight.shape.iter().map(|n| *n as u64).product()
}

/// The weights that nodes name, in order of first use, with what is done with them.
fn roles(graph: &Graph) -> Vec<(&Weight, Vec<Role>)> {
    let mut roles: Vec<(&Weight, Vec<Role>)> = Vec::new();
    let mut position: HashMap<&str, usize> = HashMap::new();
    for node in &graph.nodes {
        for name in node.op.weights() {
            let role = role(&node.op, name);
            let Some(weight) = graph.weight(name) else { continue };
            let at = *position.entry(name).or_insert_with(|| {
                roles.push((weight, Vec::new()));
                roles.len() - 1
            });
            if !roles[at].1.contains(&role) {
                roles[at].1.push(role);
            }
        }
    }
    roles
}

fn role(op: &Op, name: &str) -> Role {
    match op {
        Op::Embed(_) => Role::Table,
        Op::Experts(_) => Role::Matrix,
        Op::Linear(o) if o.weight == name => Role::Matrix,
        _ => Role::Vector,
    }
}

fn load_as(
    role: Role,
    weight: &Weight,
    data: &WeightData,
    packer: &Packer,
    weights: &mut Weights,
    index: &mut Index,
) -> Result<(), CompileError> {
    match role {
        Role::Matrix => {
            index.matrices.insert(weight.name.clone(), weights.matrices.len());
            weights.matrices.push(pack(weight, data, packer)?);
        }
        Role::Vector => {
            let mut values = vec![0.0; data.shape.iter().product()];
            dequantize(data.ty, &data.bytes, &mut values).map_err(|e| refused(weight, &e))?;
            index.vectors.insert(weight.name.clone(), weights.vectors.len());
            weights.vectors.push(values);
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
            index.tables.insert(weight.name.clone(), weights.tables.len());
            weights.tables.push(Table { data: data.clone(), rows, width });
        }
    }
    Ok(())
}

fn pack(weight: &Weight, data: &WeightData, packer: &Packer) -> Result<PackedMatrix, CompileError> {
    let packed = match weight.shape[..] {
        [rows, cols] => packer.pack(data.ty, rows, cols, &data.bytes),
        [matrices, rows, cols] => packer.pack_stacked(data.ty, matrices, rows, cols, &data.bytes),
        _ => return Err(refused(weight, &"a matrix has two axes, a stack of matrices three")),
    };
    packed.map_err(|e| refused(weight, &e))
}

fn refused(weight: &Weight, why: &dyn std::fmt::Display) -> CompileError {
    CompileError::Weight(WeightError { weight: weight.name.clone(), why: why.to_string() })
}
