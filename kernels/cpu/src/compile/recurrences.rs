//! Recurrences and blocks: their extents, what their states take, and how they are lowered.

use std::collections::HashMap;

use bantam_graph::{Checked, DeltaRule, Op, Pool, Recurrent, Rows, ShortConv, Ssm};

use super::{
    ir::{self, Convolve, Entry, PoolBlocks, ScanOf, Value, ValueId},
    lower::{Lowered, Lowering},
};
use crate::recurrent::{delta::DeltaShape, ssm::ScanShape};

/// Floats that a state of recurrent entries may have at most, far below where sizes overflow.
const MAX_ENTRIES: usize = 1 << 36;

/// What each recurrent state takes in a slot, in the order of [`Graph::recurrent`](bantam_graph::Graph::recurrent): floats of
/// the value, floats kept of a tentative row. `None`: it is too large.
pub(super) fn sizes(checked: &Checked<'_>) -> Vec<Option<(usize, usize)>> {
    let mut of: HashMap<&str, (usize, usize)> = HashMap::new();
    for node in &checked.graph.nodes {
        let (state, size) = match &node.op {
            Op::ShortConv(o) => {
                let entries = checked.recurrent(&o.state).map(Recurrent::entries);
                (&o.state, entries.and_then(|entries| Some((entries, width(checked, &o.x)?))))
            }
            Op::DeltaRule(o) => {
                let shape = delta_shape(checked, o);
                (&o.state, shape.map(|shape| (shape.value_len(), shape.kept().iter().sum())))
            }
            Op::Ssm(o) => {
                let shape = scan_shape(checked, o);
                (&o.state, shape.map(|shape| (shape.value_len(), shape.kept().iter().sum())))
            }
            _ => continue,
        };
        if let Some(size) = size {
            of.insert(state, size);
        }
    }
    let fits = |state: &&Recurrent| state.entries() <= MAX_ENTRIES;
    let states = checked.graph.recurrent.iter();
    states.map(|state| Some(state).filter(fits).and_then(|state| of.get(state.name.as_str()).copied())).collect()
}

fn width(checked: &Checked<'_>, value: &str) -> Option<usize> {
    checked.types.get(value).map(|t| t.width)
}

fn extents(checked: &Checked<'_>, state: &str) -> Option<[usize; 3]> {
    checked.recurrent(state)?.shape.as_slice().try_into().ok()
}

fn delta_shape(checked: &Checked<'_>, o: &DeltaRule) -> Option<DeltaShape> {
    let [heads, key_dim, value_dim] = extents(checked, &o.state)?;
    let per_channel = width(checked, &o.decay)? != heads;
    let key_heads = width(checked, &o.q)? / key_dim;
    Some(DeltaShape { key_heads, heads, key_dim, value_dim, per_channel, scale: o.scale })
}

fn scan_shape(checked: &Checked<'_>, o: &Ssm) -> Option<ScanShape> {
    let [heads, dim, size] = extents(checked, &o.state)?;
    Some(ScanShape { heads, dim, groups: width(checked, &o.b)? / size, size })
}

impl Lowering<'_> {
    fn recurrent(&self, state: &str) -> Lowered<usize> {
        self.places.recurrent.get(state).copied().ok_or_else(|| format!("recurrent state `{state}` has no place"))
    }

    pub(super) fn short_conv(&mut self, o: &ShortConv) -> Lowered<ir::Op> {
        let (x, state) = (self.value(&o.x)?, self.recurrent(&o.state)?);
        let factors = self.vector(&o.weight)?;
        let (width, factors) = (self.ir.values[x].width, &self.weights.vectors[factors]);
        let taps = factors.len() / width;
        // By tap, so that the channels of a tap are neighbours.
        let by_tap = (0..taps).flat_map(|tap| factors.iter().skip(tap).step_by(taps).copied()).collect();
        self.weights.vectors.push(by_tap);
        let weight = self.weights.vectors.len() - 1;
        let bias = o.bias.as_deref().map(|bias| self.vector(bias)).transpose()?;
        Ok(ir::Op::Convolve { x, conv: Convolve { weight, bias, dilation: o.dilation, state } })
    }

    pub(super) fn delta_rule(&mut self, o: &DeltaRule) -> Lowered<ir::Op> {
        let shape = delta_shape(self.checked, o).ok_or_else(|| format!("state `{}` is not declared", o.state))?;
        let state = self.recurrent(&o.state)?;
        let decay = self.value(&o.decay)?;
        let kept = Value { name: String::new(), ..self.ir.values[decay].clone() };
        let kept = self.ir.push(ir::Op::Exp { x: decay }, kept);
        let operands = [self.value(&o.q)?, self.value(&o.k)?, kept, self.value(&o.v)?, self.value(&o.beta)?];
        Ok(ir::Op::Delta { operands, shape, state })
    }

    pub(super) fn ssm(&mut self, o: &Ssm) -> Lowered<ir::Op> {
        let shape = scan_shape(self.checked, o).ok_or_else(|| format!("state `{}` is not declared", o.state))?;
        let state = self.recurrent(&o.state)?;
        let operands = [self.value(&o.x)?, self.value(&o.b)?, self.value(&o.c)?, self.value(&o.dt)?];
        let (a, d) = (self.vector(&o.a)?, o.d.as_deref().map(|d| self.vector(d)).transpose()?);
        Ok(ir::Op::Scan { operands, scan: ScanOf { shape, a, d, state } })
    }

    pub(super) fn pool(&mut self, o: &Pool) -> Lowered<ir::Op> {
        let slot = self.slot(&o.state)?;
        let x = self.value(&o.x)?;
        let gate = o.gate.as_deref().map(|gate| self.value(gate)).transpose()?;
        let bias = o.bias.as_deref().map(|bias| self.vector(bias)).transpose()?;
        let pool = PoolBlocks { slot, stride: o.stride, gated: gate.is_some(), overlap: o.overlap };
        let stored = self.written(&o.state, Rows::Tokens, ir::Op::StoreOpen { x, gate, bias, pool });
        Ok(ir::Op::Pool { stored, pool })
    }

    /// The op `Store`: the value has no entries, to read the state is to depend on it.
    pub(super) fn store(&mut self, x: &str, state: &str) -> Lowered {
        let (x, slot) = (self.value(x)?, self.slot(state)?);
        let rows = self.ir.values[x].rows;
        self.written(state, rows, ir::Op::Store { x, slot });
        Ok(())
    }

    /// Adds a node that writes a state.
    pub(super) fn written(&mut self, state: &str, rows: Rows, op: ir::Op) -> ValueId {
        let id = self.ir.push(op, Value::new("", rows, 0, Entry::Float));
        self.written.insert(state.into(), id);
        id
    }
}
