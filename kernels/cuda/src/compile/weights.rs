//! Makes weights ready: matrices on the device, vectors on both sides, tables where the file has them.

use std::{collections::HashMap, sync::Arc};

use bantam_backend::{CompileError, Progress, Role, Wanted, WeightData, WeightError, WeightSource, wanted};
use bantam_gguf::dequantize;
use bantam_graph::{Graph, Weight};

use super::{Compiling, Fit, host::HostTable, host::IntegerTable};
use crate::{
    device::{Address, Buffer, DeviceError},
    linear::{Linear, Matrix},
};

/// A vector, on the host and on the device.
struct Vector {
    there: Buffer,
    here: Arc<Vec<f32>>,
}

/// The weights of a program, by graph and name. Graphs that have the same weight share it.
#[derive(Default)]
pub(crate) struct Weights {
    matrices: HashMap<(usize, String), Arc<Matrix>>,
    vectors: HashMap<(usize, String), Arc<Vector>>,
    tables: HashMap<(usize, String), Arc<HostTable>>,
    integers: HashMap<(usize, String), Arc<IntegerTable>>,
    /// Bytes on the device.
    pub(crate) bytes: u64,
}

impl Weights {
    pub(crate) fn table(&self, graph: usize, name: &str) -> Fit<Arc<HostTable>> {
        find(&self.tables, graph, name)
    }

    pub(crate) fn integers(&self, graph: usize, name: &str) -> Fit<Arc<IntegerTable>> {
        find(&self.integers, graph, name)
    }

    pub(crate) fn matrix(&self, graph: usize, name: &str) -> Fit<Arc<Matrix>> {
        find(&self.matrices, graph, name)
    }
}

fn find<T>(weights: &HashMap<(usize, String), Arc<T>>, graph: usize, name: &str) -> Fit<Arc<T>> {
    weights.get(&(graph, name.to_owned())).cloned().ok_or_else(|| format!("weight `{name}` is not loaded"))
}

impl Compiling<'_> {
    /// Where a vector lies, and its entries.
    pub(super) fn vector(&self, name: &str) -> Fit<(Address, usize)> {
        let vector = find(&self.around.weights.vectors, self.around.graph, name)?;
        Ok((vector.there.address(), vector.here.len()))
    }

    pub(super) fn optional_vector(&self, name: &Option<String>) -> Fit<Option<(Address, usize)>> {
        name.as_deref().map(|name| self.vector(name)).transpose()
    }

    /// The entries of a vector.
    pub(super) fn host_vector(&self, name: &str) -> Fit<Arc<Vec<f32>>> {
        Ok(Arc::clone(&find(&self.around.weights.vectors, self.around.graph, name)?.here))
    }
}

/// Loads every weight that a node of a graph names, once for all graphs that have it.
pub(crate) fn load(
    graphs: &[&Graph],
    source: &dyn WeightSource,
    linear: &Linear,
    progress: Progress<'_>,
) -> Result<Weights, CompileError> {
    let wanted = wanted(graphs);
    let elements = |weight: &Weight| weight.shape.iter().map(|n| *n as u64).product::<u64>();
    let total = wanted.iter().map(|w| elements(w.weight)).sum();
    let (mut weights, mut done) = (Weights::default(), 0);
    for Wanted { weight, roles, graphs } in &wanted {
        let data = source.load(weight)?;
        for role in roles {
            load_as(*role, weight, &data, graphs, linear, &mut weights)?;
        }
        if !roles.contains(&Role::Table) {
            drop(data);
            source.release(weight);
        }
        done += elements(weight);
        progress(done, total);
    }
    Ok(weights)
}

fn load_as(
    role: Role,
    weight: &Weight,
    data: &WeightData,
    graphs: &[usize],
    linear: &Linear,
    weights: &mut Weights,
) -> Result<(), CompileError> {
    match role {
        Role::Matrix => {
            let shape = match weight.shape[..] {
                [rows, cols] => [1, rows, cols],
                [matrices, rows, cols] => [matrices, rows, cols],
                _ => return Err(refused(weight, &"a matrix has two axes, a stack of matrices three")),
            };
            let matrix = linear.matrix(data.ty, shape, &data.bytes, &weight.name).map_err(|e| refused(weight, &e))?;
            weights.bytes += matrix.bytes() as u64;
            insert(&mut weights.matrices, graphs, weight, matrix);
        }
        Role::Vector => {
            let here = decoded(weight, data)?;
            let there =
                Buffer::of_f32(linear.device(), &here, &weight.name).map_err(|e: DeviceError| refused(weight, &e))?;
            weights.bytes += there.bytes() as u64;
            insert(&mut weights.vectors, graphs, weight, Vector { there, here: Arc::new(here) });
        }
        Role::Table => {
            let [rows, width] = two_axes(weight)?;
            insert(&mut weights.tables, graphs, weight, HostTable { data: data.clone(), rows, width });
        }
        Role::Integers => insert(&mut weights.integers, graphs, weight, integers(weight, data)?),
    }
    Ok(())
}

fn insert<T>(all: &mut HashMap<(usize, String), Arc<T>>, graphs: &[usize], weight: &Weight, made: T) {
    let made = Arc::new(made);
    all.extend(graphs.iter().map(|graph| ((*graph, weight.name.clone()), Arc::clone(&made))));
}

fn two_axes(weight: &Weight) -> Result<[usize; 2], CompileError> {
    weight.shape.as_slice().try_into().map_err(|_| refused(weight, &"a table has two axes"))
}

fn decoded(weight: &Weight, data: &WeightData) -> Result<Vec<f32>, CompileError> {
    let mut values = vec![0.0; data.shape.iter().product()];
    dequantize(data.ty, &data.bytes, &mut values).map_err(|e| refused(weight, &e))?;
    Ok(values)
}

fn integers(weight: &Weight, data: &WeightData) -> Result<IntegerTable, CompileError> {
    /// From here on floats skip integers.
    const EXACT: f32 = (1 << 24) as f32;
    let [rows, width] = two_axes(weight)?;
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

fn refused(weight: &Weight, why: &dyn std::fmt::Display) -> CompileError {
    CompileError::Weight(WeightError { weight: weight.name.clone(), why: why.to_string() })
}
