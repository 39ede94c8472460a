//! A graph on its way to the device: the graph's own ops, in an order in which states are written before they are read, for
//! no more rows than are needed.

use std::collections::{HashMap, HashSet};

use bantam_graph::{Attention, Checked, Mask, Op, Rows};

/// Index of a value in [`Ir::values`].
pub(crate) type ValueId = usize;

/// A value: rows of 32-bit entries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// Its name; values that are added here have one that no graph has.
    pub(crate) name: String,
    /// Its row space.
    pub(crate) rows: Rows,
    /// Entries of a row.
    pub(crate) width: usize,
    /// Whether the entries are integers.
    pub(crate) integer: bool,
}

/// An op and the values it yields. Its operands are named.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Name in the graph.
    pub(crate) name: String,
    /// The op.
    pub(crate) op: Op,
    /// What it yields.
    pub(crate) results: Vec<ValueId>,
}

/// The nodes of a graph, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ir {
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) output: ValueId,
    pub(crate) taps: Vec<ValueId>,
    names: HashMap<String, ValueId>,
}

impl Ir {
    /// The nodes of a checked graph, with an attention's writes of its states as nodes of their own before it.
    pub(crate) fn new(checked: &Checked<'_>) -> Self {
        let mut ir = Ir::default();
        for node in &checked.graph.nodes {
            let mut op = node.op.clone();
            if let Op::Attention(attention) = &mut op {
                ir.split_writes(&node.name, attention);
            }
            let results = op.results(&node.name);
            let results = results.into_iter().filter_map(|name| {
                let t = checked.types.get(&name)?;
                Some(ir.value(Value { name, rows: t.rows, width: t.width, integer: t.integer }))
            });
            let results = results.collect();
            ir.nodes.push(Node { name: node.name.clone(), op, results });
        }
        let id = |name: &String| ir.names.get(name).copied();
        (ir.output, ir.taps) =
            (id(&checked.graph.output).unwrap_or_default(), checked.graph.taps.iter().filter_map(id).collect());
        ir
    }

    fn split_writes(&mut self, node: &str, attention: &mut Attention) {
        if !attention.stores() {
            return;
        }
        let key = attention.k.take().map(|x| (x, attention.k_state.clone()));
        let value = attention.v.take().zip(attention.v_state.clone());
        for (x, state) in key.into_iter().chain(value) {
            self.nodes.push(Node { name: node.into(), op: Op::Store { x, state }, results: Vec::new() });
        }
    }

    fn value(&mut self, value: Value) -> ValueId {
        let id = self.values.len();
        self.names.insert(value.name.clone(), id);
        self.values.push(value);
        id
    }

    /// The value of a name.
    pub(crate) fn id(&self, name: &str) -> Result<ValueId, String> {
        self.names.get(name).copied().ok_or_else(|| format!("operand `{name}` is not computed before it"))
    }

    /// Values that are read after the step.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = ValueId> {
        self.taps.iter().copied().chain([self.output])
    }

    /// The values that a node reads.
    pub(crate) fn operands(&self, node: &Node) -> Vec<ValueId> {
        node.op.operands().into_iter().filter_map(|name| self.names.get(name).copied()).collect()
    }

    /// Computes for logit rows only whatever no state, no tap and no op that reads all rows needs: where such a node reads a
    /// value over tokens, its logit rows are selected. So the family's own `select` moves up to the last write of state. A
    /// step without logit rows ends there.
    pub(crate) fn narrow(self) -> Self {
        let wide = self.wide_nodes();
        let output = self.values[self.output].name.clone();
        let mut out = Ir { values: self.values, taps: self.taps, names: self.names, ..Ir::default() };
        // The narrow twin of each value that has one.
        let mut selected: HashMap<String, String> = HashMap::new();
        for (mut node, wide) in self.nodes.into_iter().zip(wide) {
            if wide {
                out.nodes.push(node);
                continue;
            }
            if let Op::Select { x, .. } = &node.op {
                let narrow = out.logit_rows(x, &mut selected);
                selected.insert(node.name.clone(), narrow);
                continue;
            }
            let whole: HashSet<String> = whole_operands(&node.op).into_iter().map(str::to_owned).collect();
            for name in node.op.operands_mut() {
                if !whole.contains(name) {
                    *name = out.logit_rows(name, &mut selected);
                }
            }
            for result in &node.results {
                out.values[*result].rows = Rows::Logits;
            }
            out.nodes.push(node);
        }
        let name = selected.get(&output).unwrap_or(&output);
        out.output = out.names.get(name).copied().unwrap_or_default();
        out
    }

    /// Which nodes some write of state, a tap, or an op that reads all rows depends on, writes and taps included. Inputs are
    /// among them: the host has them for all rows anyway.
    fn wide_nodes(&self) -> Vec<bool> {
        let mut producers = vec![None; self.values.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            node.results.iter().for_each(|result| producers[*result] = Some(i));
        }
        let mut wide: Vec<bool> =
            self.nodes.iter().map(|n| n.op.writes_state() || matches!(n.op, Op::Input { .. })).collect();
        let whole = self.nodes.iter().flat_map(|node| whole_operands(&node.op));
        let whole = whole.filter_map(|name| self.names.get(name).copied());
        for node in self.taps.iter().copied().chain(whole).filter_map(|value| producers[value]) {
            wide[node] = true;
        }
        // Nodes stand in order, so that one pass backwards reaches everything.
        for i in (0..self.nodes.len()).rev() {
            if wide[i] {
                for producer in self.operands(&self.nodes[i]).into_iter().filter_map(|v| producers[v]) {
                    wide[producer] = true;
                }
            }
        }
        wide
    }

    /// The name of the value over logit rows that holds the same as `x`.
    fn logit_rows(&mut self, x: &str, selected: &mut HashMap<String, String>) -> String {
        if let Some(narrow) = selected.get(x) {
            return narrow.clone();
        }
        let Some(&id) = self.names.get(x) else { return x.into() };
        if self.values[id].rows == Rows::Logits {
            return x.into();
        }
        let name = format!("{x}\u{0}logits");
        let value = Value { name: name.clone(), rows: Rows::Logits, ..self.values[id].clone() };
        let result = self.value(value);
        let op = Op::Select { x: x.into(), to: Rows::Logits };
        self.nodes.push(Node { name: name.clone(), op, results: vec![result] });
        selected.insert(x.into(), name.clone());
        name
    }

    /// Leaves out nodes whose results nobody reads.
    pub(crate) fn without_unused(mut self) -> Self {
        let mut used = vec![false; self.values.len()];
        self.outputs().for_each(|output| used[output] = true);
        let mut kept = vec![false; self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate().rev() {
            kept[i] = node.op.writes_state() || node.results.iter().any(|result| used[*result]);
            if kept[i] {
                self.operands(node).into_iter().for_each(|operand| used[operand] = true);
            }
        }
        let mut kept = kept.into_iter();
        self.nodes.retain(|_| kept.next().unwrap_or(true));
        self
    }
}

/// The operands of which an op reads the rows of all tokens, whatever rows it yields: keys and values of the step that are
/// seen without being stored.
fn whole_operands(op: &Op) -> Vec<&str> {
    match op {
        Op::Attention(o) if o.mask == Mask::Block => o.k.iter().chain(&o.v).map(String::as_str).collect(),
        _ => Vec::new(),
    }
}
