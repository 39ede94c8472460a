//! From the graph to the IR: names become indexes, ops become nodes as coarse as one loop.

use std::collections::HashMap;

use bantam_backend::CompileError;
use bantam_graph::{Attention, Checked, Embed, Experts, InputSource, Linear, Node, Norm, Op, Rope, Route, Rows};

use super::{
    covered,
    ir::{self, Attend, Choose, Entry, Ir, RmsNorm, Source, Value, ValueId},
    rope::RopeTable,
    states::StatePlaces,
    weights::{Index, Weights},
};
use crate::{
    linear::{ActivationKind, QBlock},
    pool::StateSlot,
};

/// What an integer value can be at most, to be checked when a step arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Token ids are below this.
    pub(crate) tokens: Option<usize>,
    /// Positions are below this.
    pub(crate) positions: Option<usize>,
}

/// Lowers a checked graph. `places` says where each of the graph's states lies.
pub(crate) fn lower(
    checked: &Checked<'_>,
    places: &StatePlaces,
    weights: &mut Weights,
    index: &Index,
) -> Result<(Ir, Limits), CompileError> {
    let mut lowering = Lowering {
        checked,
        places,
        weights,
        index,
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
    /// Expert ids below this.
    Route(usize),
}

pub(super) type Lowered<T = ()> = Result<T, String>;

pub(super) struct Lowering<'a> {
    pub(super) checked: &'a Checked<'a>,
    pub(super) places: &'a StatePlaces,
    pub(super) weights: &'a mut Weights,
    index: &'a Index,
    pub(super) ir: Ir,
    /// The graph's values.
    names: HashMap<String, ValueId>,
    /// The writes of states so far.
    pub(super) written: HashMap<String, ValueId>,
    /// The 8-bit form of a value, made once for all its readers.
    rounded: HashMap<ValueId, ValueId>,
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
            Op::Glu(o) => ir::Op::Glu { gate: self.value(&o.gate)?, up: self.value(&o.up)?, act: o.act },
            Op::Add { a, b } => ir::Op::Add { a: self.value(a)?, b: self.value(b)? },
            Op::Mul { a, b } => ir::Op::Mul { a: self.value(a)?, b: self.value(b)? },
            Op::Scale { x, factor, .. } => ir::Op::Scale { x: self.value(x)?, factor: *factor },
            Op::Softcap { x, cap } => ir::Op::Softcap { x: self.value(x)?, cap: *cap },
            _ => return Err(covered::lacking("this op")),
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

    /// `x` in the form in which a matrix takes it.
    fn activations(&mut self, x: ValueId, matrix: usize) -> ValueId {
        match self.weights.matrices[matrix].activation() {
            ActivationKind::Float => x,
            ActivationKind::Quantized => self.rounded(x),
        }
    }

    fn rounded(&mut self, x: ValueId) -> ValueId {
        if let Some(rounded) = self.rounded.get(&x) {
            return *rounded;
        }
        let value = &self.ir.values[x];
        let width = QBlock::count(value.width);
        let result = Value { name: String::new(), width, entry: Entry::Block, ..value.clone() };
        let rounded = self.ir.push(ir::Op::Quantize(Source::Plain(x)), result);
        self.rounded.insert(x, rounded);
        rounded
    }

    fn embed(&mut self, o: &Embed) -> Lowered<ir::Op> {
        let ids = self.value(&o.ids)?;
        let table = *self.index.tables.get(&o.table).ok_or_else(|| format!("weight `{}` is not loaded", o.table))?;
        let rows = self.weights.tables[table].rows;
        let tighten = |limit: &mut Option<usize>| *limit = Some(limit.map_or(rows, |l| l.min(rows)));
        match self.origins.get(&ids) {
            Some(Origin::Input(InputSource::TokenIds)) => tighten(&mut self.limits.tokens),
            Some(Origin::Input(InputSource::Positions)) => tighten(&mut self.limits.positions),
            Some(Origin::Route(experts)) if *experts <= rows => {}
            _ => return Err(format!("`{}` may exceed the {rows} rows of `{}`", o.ids, o.table)),
        }
        Ok(ir::Op::Embed { ids, table, scale: o.scale })
    }

    fn linear(&mut self, o: &Linear) -> Lowered<ir::Op> {
        let matrix = self.matrix(&o.weight)?;
        let x = self.value(&o.x)?;
        let bias = o.bias.as_deref().map(|b| self.vector(b)).transpose()?;
        Ok(ir::Op::Linear { x: self.activations(x, matrix), matrix, bias, add: None })
    }

    fn norm(&mut self, o: &Norm) -> Lowered<ir::Op> {
        let x = self.value(&o.x)?;
        let weight = o.weight.as_deref().map(|w| self.vector(w)).transpose()?;
        let group = o.group.unwrap_or(self.ir.values[x].width);
        Ok(ir::Op::Norm { x, norm: RmsNorm { weight, eps: o.eps, group } })
    }

    fn rope(&mut self, o: &Rope) -> Lowered<ir::Op> {
        let (x, positions) = (self.value(&o.x)?, self.value(&o.positions)?);
        let factors = o.factors.as_deref().map(|f| self.vector(f)).transpose()?;
        let factors = factors.map(|f| self.weights.vectors[f].as_slice());
        let table = RopeTable::new(o.dims, o.base, o.scaling.as_ref(), factors);
        let ropes = &mut self.weights.ropes;
        let rope = ropes.iter().position(|t| *t == table).unwrap_or_else(|| {
            ropes.push(table);
            ropes.len() - 1
        });
        let angles = *self.angles.entry((positions, rope)).or_insert_with(|| {
            let result = Value::new("", self.ir.values[positions].rows, o.dims, Entry::Float);
            self.ir.push(ir::Op::Angles { positions, rope }, result)
        });
        Ok(ir::Op::Rope { x, angles, head_dim: o.head_dim, pairing: o.pairing })
    }

    fn attention(&mut self, o: &Attention) -> Lowered<ir::Op> {
        let (Some(keys), Some(values), Some(v_state)) = (&o.k, &o.v, &o.v_state) else {
            return Err(covered::lacking("attention without keys and values of its own"));
        };
        let (k, v) = (self.slot(&o.k_state)?, self.slot(v_state)?);
        let (q, keys, values) = (self.value(&o.q)?, self.value(keys)?, self.value(values)?);
        let stores = [(&o.k_state, keys, k), (v_state, values, v)]
            .map(|(state, x, slot)| self.written(state, Rows::Tokens, ir::Op::Store { x, slot }));
        let attend = Attend { k, v, heads: o.heads, scale: o.scale, window: o.window };
        Ok(ir::Op::Attend { q, attend, stores })
    }

    fn route(&mut self, name: &str, o: &Route) -> Lowered {
        let scores = self.value(&o.scores)?;
        let experts = self.ir.values[scores].width;
        let names = [format!("{name}.ids"), format!("{name}.weights")];
        let mut results = Vec::new();
        for name in names {
            let value = self.typed(&name)?;
            let id = self.ir.value(value);
            self.names.insert(name, id);
            results.push(id);
        }
        self.origins.insert(results[0], Origin::Route(experts));
        let choose = Choose { used: o.used, normalize: o.normalize, scale: o.scale };
        self.ir.nodes.push(ir::Node { op: ir::Op::Route { scores, choose }, results });
        Ok(())
    }

    fn experts(&mut self, o: &Experts) -> Lowered<ir::Op> {
        let (x, ids, weights) = (self.value(&o.x)?, self.value(&o.ids)?, self.value(&o.weights)?);
        let (Some(gate), Some(down)) = (&o.gate, &o.down) else {
            return Err(covered::lacking("experts of fewer than three matrices"));
        };
        let [gate, up, down] = [self.matrix(gate)?, self.matrix(&o.up)?, self.matrix(down)?];
        let experts = self.weights.matrices[gate].matrices();
        match self.origins.get(&ids) {
            Some(Origin::Route(n)) if *n <= experts => {}
            _ => return Err(format!("`{}` may exceed the {experts} experts of `{}`", o.ids, o.up)),
        }
        let (rows, used) = (self.ir.values[x].rows, self.ir.values[ids].width);
        let assigned =
            Value { extra: crate::exec::experts::header(experts), ..Value::new("", rows, 2 * used, Entry::Integer) };
        let assigned = self.ir.push(ir::Op::Assign { ids, experts }, assigned);
        let multiply = |this: &mut Self, x: ValueId, matrix: usize, own_rows: bool| {
            let x = this.activations(x, matrix);
            let width = this.weights.matrices[matrix].rows();
            let result = Value { per_row: used, ..Value::new("", rows, width, Entry::Float) };
            this.ir.push(ir::Op::Experts { x, assigned, matrix, own_rows }, result)
        };
        let gate = multiply(self, x, gate, false);
        let up = multiply(self, x, up, false);
        let gated = self.ir.values[gate].clone();
        let gated = self.ir.push(ir::Op::Glu { gate, up, act: o.act }, gated);
        let y = multiply(self, gated, down, true);
        Ok(ir::Op::Combine { y, weights })
    }
}
