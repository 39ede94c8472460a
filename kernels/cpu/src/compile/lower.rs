//! From the graph to the IR: names become indexes, ops become nodes as coarse as one loop.

mod attention;
mod custom;
mod moe;
mod rows;
mod streams;

use std::collections::HashMap;

use bantam_backend::{CompileError, CustomOps, Limits};
use bantam_graph::{Checked, InputSource, Node, Op};

use super::{
    ir::{self, Entry, Gating, Ir, Source, Value, ValueId},
    states::StatePlaces,
    weights::{Index, Weights},
};
use crate::{
    linear::{ActivationKind, QBlock},
    pool::StateSlot,
};

/// Lowers a checked graph. `places` says where each of the graph's states lies.
pub(crate) fn lower(
    checked: &Checked<'_>,
    places: &StatePlaces,
    weights: &mut Weights,
    index: &Index,
    ops: Option<&dyn CustomOps>,
) -> Result<(Ir, Limits), CompileError> {
    let mut lowering = Lowering {
        checked,
        places,
        weights,
        index,
        ops,
        ir: Ir::default(),
        names: HashMap::new(),
        written: HashMap::new(),
        rounded: HashMap::new(),
        angles: HashMap::new(),
        origins: HashMap::new(),
        limits: Limits::default(),
    };
    for node in &checked.graph.nodes {
        lowering.node(node).map_err(|why| CompileError::Unsupported { node: node.name.clone(), why })?;
    }
    lowering.ir.output = lowering.names.get(checked.graph.output.as_str()).copied().unwrap_or_default();
    lowering.ir.taps = checked.graph.taps.iter().filter_map(|tap| lowering.names.get(tap).copied()).collect();
    Ok((lowering.ir, lowering.limits))
}

/// Where integers come from, and so what they can be.
#[derive(Clone, Copy)]
enum Origin {
    Input(InputSource),
    /// An op that yields integers below this.
    Below(usize),
    /// Rows of a state, each of which stands for so many tokens.
    TopKeys(usize),
}

pub(super) type Lowered<T = ()> = Result<T, String>;

pub(super) struct Lowering<'a> {
    pub(super) checked: &'a Checked<'a>,
    pub(super) places: &'a StatePlaces,
    pub(super) weights: &'a mut Weights,
    index: &'a Index,
    ops: Option<&'a dyn CustomOps>,
    pub(super) ir: Ir,
    /// The graph's values.
    names: HashMap<String, ValueId>,
    /// The writes of states so far.
    pub(super) written: HashMap<String, ValueId>,
    /// The 8-bit form of a value in runs of some length, made once for all its readers.
    rounded: HashMap<(ValueId, usize), ValueId>,
    /// The angles of a rope, by positions and table.
    angles: HashMap<(ValueId, usize), ValueId>,
    origins: HashMap<ValueId, Origin>,
    limits: Limits,
}

impl Lowering<'_> {
    fn node(&mut self, node: &Node) -> Lowered {
        let name = node.name.as_str();
        let op = match &node.op {
            Op::Input { source } => {
                let id = self.define(name, ir::Op::Input(*source))?;
                self.origins.insert(id, Origin::Input(*source));
                return Ok(());
            }
            Op::Embed(o) => self.embed(o)?,
            Op::Linear(o) => self.linear(o)?,
            Op::Norm(o) => self.norm(o)?,
            Op::Rope(o) => self.rope(o)?,
            Op::Attention(o) => self.attention(o)?,
            Op::TopKeys(o) => return self.top_keys(name, o),
            Op::Experts(o) => self.experts(o)?,
            Op::Route(o) => return self.route(name, o),
            Op::Store { x, state } => return self.store(x, state),
            Op::Pool(o) => self.pool(o)?,
            Op::ShortConv(o) => self.short_conv(o)?,
            Op::DeltaRule(o) => self.delta_rule(o)?,
            Op::Ssm(o) => self.ssm(o)?,
            Op::Select { x, .. } => {
                let x = self.value(x)?;
                let id = self.define(name, ir::Op::Select(x))?;
                if let Some(origin) = self.origins.get(&x).copied() {
                    self.origins.insert(id, origin);
                }
                return Ok(());
            }
            Op::Activate { x, act } => ir::Op::Activate { x: self.value(x)?, act: *act },
            Op::Glu(o) => {
                let gating = Gating { act: o.act, limit: o.limit };
                ir::Op::Glu { gate: self.value(&o.gate)?, up: self.value(&o.up)?, gating }
            }
            Op::Add { a, b } => ir::Op::Add { a: self.value(a)?, b: self.value(b)? },
            Op::Mul { a, b } => ir::Op::Mul { a: self.value(a)?, b: self.value(b)? },
            Op::Scale { x, factor, offset } => ir::Op::Scale { x: self.value(x)?, factor: *factor, offset: *offset },
            Op::Affine(o) => self.affine(o)?,
            Op::Slice(o) => self.slice(o)?,
            Op::Concat(o) => self.concat(o)?,
            Op::Dot { a, b, groups } => ir::Op::Dot { a: self.value(a)?, b: self.value(b)?, groups: *groups },
            Op::Lookup(o) => return self.lookup(name, o),
            Op::NgramHash(o) => return self.ngram_hash(name, o),
            Op::StreamGates(o) => return self.stream_gates(name, o),
            Op::StreamCollapse(o) => self.stream_collapse(o)?,
            Op::StreamUpdate(o) => self.stream_update(o)?,
            Op::Custom(o) => self.custom(name, o)?,
            Op::Softcap { x, cap } => ir::Op::Softcap { x: self.value(x)?, cap: *cap },
        };
        self.define(name, op).map(drop)
    }

    /// Adds the node that yields the graph's value `name`.
    fn define(&mut self, name: &str, op: ir::Op) -> Lowered<ValueId> {
        let value = self.typed(name)?;
        let id = self.ir.push(op, value);
        self.names.insert(name.into(), id);
        Ok(id)
    }

    /// Adds the graph's value `name`, one of several that a node yields.
    fn result(&mut self, name: &str) -> Lowered<ValueId> {
        let value = self.typed(name)?;
        let id = self.ir.value(value);
        self.names.insert(name.into(), id);
        Ok(id)
    }

    /// The graph's value `name`, as the checker typed it.
    fn typed(&self, name: &str) -> Lowered<Value> {
        let t = self.checked.types.get(name).ok_or_else(|| format!("value `{name}` has no type"))?;
        Ok(Value::new(name, t.rows, t.width, if t.integer { Entry::Integer } else { Entry::Float }))
    }

    /// Where a state of rows lies.
    pub(super) fn slot(&self, state: &str) -> Lowered<StateSlot> {
        self.places.rows.get(state).copied().ok_or_else(|| format!("state `{state}` has no place"))
    }

    pub(super) fn value(&self, name: &str) -> Lowered<ValueId> {
        self.names.get(name).copied().ok_or_else(|| format!("operand `{name}` is not computed before it"))
    }

    pub(super) fn vector(&self, name: &str) -> Lowered<usize> {
        self.index.vectors.get(name).copied().ok_or_else(|| format!("weight `{name}` is not loaded"))
    }

    fn matrix(&self, name: &str) -> Lowered<usize> {
        self.index.matrices.get(name).copied().ok_or_else(|| format!("weight `{name}` is not loaded"))
    }

    /// `x` in the form in which a matrix takes it, run by run.
    fn activations(&mut self, x: ValueId, matrix: usize) -> ValueId {
        match self.weights.matrices[matrix].activation() {
            ActivationKind::Float => x,
            ActivationKind::Quantized => self.rounded(x, self.weights.matrices[matrix].cols()),
        }
    }

    /// Each run of `len` entries of a row, rounded by itself.
    fn rounded(&mut self, x: ValueId, len: usize) -> ValueId {
        if let Some(rounded) = self.rounded.get(&(x, len)) {
            return *rounded;
        }
        let value = &self.ir.values[x];
        let (per_row, width) = (value.per_row * (value.width / len), QBlock::count(len));
        let result = Value { name: String::new(), per_row, width, entry: Entry::Block, ..value.clone() };
        let rounded = self.ir.push(ir::Op::Quantize(Source::Plain(x)), result);
        self.rounded.insert((x, len), rounded);
        rounded
    }
}
