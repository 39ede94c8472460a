//! A graph interpreter of plain loops over f64: what every op means, without a backend.
//!
//! It runs one whole sequence from its first token, so that state is nothing but the keys and values of the run itself.

mod attention;
mod ops;
mod weights;

use std::collections::HashMap;

use bantam_graph::{Graph, InputSource, Op};

pub(crate) use weights::evaluate;

/// Numbers in a row-major shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

/// Rows of a value; integers are stored as the numbers they are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) width: usize,
    pub(crate) data: Vec<f64>,
}

impl Value {
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.data.chunks_exact(self.width)
    }

    pub(crate) fn row(&self, row: usize) -> &[f64] {
        &self.data[row * self.width..(row + 1) * self.width]
    }

    /// Each row turned into another of `width` entries.
    fn by_row(&self, width: usize, mut f: impl FnMut(&[f64]) -> Vec<f64>) -> Value {
        Value { width, data: self.rows().flat_map(&mut f).collect() }
    }

    fn map(&self, f: impl FnMut(f64) -> f64) -> Value {
        Value { width: self.width, data: self.data.iter().copied().map(f).collect() }
    }

    fn zip(&self, other: &Value, mut f: impl FnMut(f64, f64) -> f64) -> Value {
        assert_eq!(self.data.len(), other.data.len());
        let data = self.data.iter().zip(&other.data).map(|(&a, &b)| f(a, b)).collect();
        Value { width: self.width, data }
    }
}

/// Every value of the run of a graph over `tokens`, by name; `tensor` reads the checkpoint.
pub(crate) fn run(
    graph: &Graph,
    tensor: &dyn Fn(&str) -> Tensor,
    tokens: &[u32],
    logit_rows: &[usize],
) -> HashMap<String, Value> {
    let weights = evaluate(graph, tensor);
    let mut values = HashMap::new();
    for node in &graph.nodes {
        let value = |name: &str| -> &Value { values.get(name).unwrap_or_else(|| panic!("no value `{name}`")) };
        let weight = |name: &str| -> &Tensor { weights.get(name).unwrap_or_else(|| panic!("no weight `{name}`")) };
        let result = match &node.op {
            Op::Input { source: InputSource::TokenIds } => column(tokens.iter().map(|&id| f64::from(id))),
            Op::Input { source: InputSource::Positions } => column((0..tokens.len()).map(|position| position as f64)),
            Op::Embed(o) => ops::embed(o, value(&o.ids), weight(&o.table)),
            Op::Linear(o) => ops::linear(value(&o.x), weight(&o.weight), o.bias.as_deref().map(weight)),
            Op::Norm(o) => ops::norm(o, value(&o.x), o.weight.as_deref().map(weight)),
            Op::Rope(o) => ops::rope(o, value(&o.x), value(&o.positions), o.factors.as_deref().map(weight)),
            Op::Attention(o) => {
                let kv_heads = graph.state(&o.k_state).expect("declared").heads;
                let [k, v] = [&o.k, &o.v].map(|rows| value(rows.as_deref().expect("keys and values of its own")));
                attention::attention(o, kv_heads, value(&o.q), k, v)
            }
            Op::Activate { x, act } => value(x).map(|x| ops::activate(*act, x)),
            Op::Glu(o) => value(&o.gate).zip(value(&o.up), |gate, up| ops::activate(o.act, gate) * up),
            Op::Add { a, b } => value(a).zip(value(b), |a, b| a + b),
            Op::Mul { a, b } => ops::mul(value(a), value(b)),
            Op::Scale { x, factor, offset } => value(x).map(|x| x * f64::from(*factor) + f64::from(*offset)),
            Op::Softcap { x, cap } => value(x).map(|x| f64::from(*cap) * (x / f64::from(*cap)).tanh()),
            Op::Route(o) => {
                let (ids, chosen) = ops::route(o, value(&o.scores));
                values.insert(format!("{}.ids", node.name), ids);
                values.insert(format!("{}.weights", node.name), chosen);
                continue;
            }
            Op::Experts(o) => {
                let [gate, down] = [&o.gate, &o.down].map(|name| weight(name.as_deref().expect("three matrices")));
                let up = weight(&o.up);
                ops::experts(o.act, value(&o.x), value(&o.ids), value(&o.weights), [gate, up, down])
            }
            Op::Select { x, .. } => {
                let x = value(x);
                Value { width: x.width, data: logit_rows.iter().flat_map(|&row| x.row(row).to_vec()).collect() }
            }
            op => panic!("the interpreter does not know {op:?}"),
        };
        values.insert(node.name.clone(), result);
    }
    values
}

fn column(entries: impl Iterator<Item = f64>) -> Value {
    Value { width: 1, data: entries.collect() }
}
