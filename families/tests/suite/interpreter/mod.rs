//! A graph interpreter of plain loops over f64: what every op means, without a backend.
//!
//! It runs one whole sequence from its first token, so that state is nothing but what the run itself stored.

mod attention;
mod moe;
mod ops;
mod recurrent;
mod streams;
pub(crate) mod weights;

use std::collections::HashMap;

use bantam_graph::{Graph, InputSource, Node, Op, StateKind};

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

    /// Rows made of those at the same place in several values.
    fn by_rows<const N: usize>(width: usize, values: [&Value; N], mut f: impl FnMut([&[f64]; N]) -> Vec<f64>) -> Value {
        let rows = values[0].rows().len();
        assert!(values.iter().all(|value| value.rows().len() == rows));
        Value { width, data: (0..rows).flat_map(|i| f(values.map(|value| value.row(i)))).collect() }
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

/// What a run starts from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Input<'a> {
    pub(crate) tokens: &'a [u32],
    /// Rows whose logits are wanted.
    pub(crate) logit_rows: Vec<usize>,
    /// Hidden inputs, by index.
    pub(crate) hidden: Vec<Value>,
    /// Index of the first token. The states of a graph that does not start at 0 are aliases.
    pub(crate) start: usize,
    /// Rows of aliases, by the alias's name.
    pub(crate) aliases: HashMap<String, Value>,
}

/// What a run leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Every value, by name.
    pub(crate) values: HashMap<String, Value>,
    /// The rows of every state that was stored, by name.
    pub(crate) states: HashMap<String, Value>,
}

/// Every value of the run of a graph over `tokens`, by name; `tensor` reads the checkpoint.
pub(crate) fn run(
    graph: &Graph,
    tensor: &dyn Fn(&str) -> Tensor,
    tokens: &[u32],
    logit_rows: &[usize],
) -> HashMap<String, Value> {
    run_from(graph, tensor, Input { tokens, logit_rows: logit_rows.to_vec(), ..Input::default() }).values
}

/// The run of a graph from some input; `tensor` reads the checkpoint.
pub(crate) fn run_from(graph: &Graph, tensor: &dyn Fn(&str) -> Tensor, input: Input<'_>) -> Outcome {
    let weights = evaluate(graph, tensor);
    let outcome = Outcome { values: HashMap::new(), states: input.aliases.clone() };
    let mut run = Run { graph, weights, input, outcome };
    for node in &graph.nodes {
        run.node(node);
    }
    run.outcome
}

struct Run<'g> {
    graph: &'g Graph,
    weights: HashMap<String, Tensor>,
    input: Input<'g>,
    outcome: Outcome,
}

impl Run<'_> {
    fn value(&self, name: &str) -> &Value {
        self.outcome.values.get(name).unwrap_or_else(|| panic!("no value `{name}`"))
    }

    fn optional(&self, name: &Option<String>) -> Option<&Value> {
        name.as_deref().map(|name| self.value(name))
    }

    fn weight(&self, name: &str) -> &Tensor {
        self.weights.get(name).unwrap_or_else(|| panic!("no weight `{name}`"))
    }

    fn optional_weight(&self, name: &Option<String>) -> Option<&Tensor> {
        name.as_deref().map(|name| self.weight(name))
    }

    fn node(&mut self, node: &Node) {
        let results = match &node.op {
            Op::Store { x, state } => {
                let rows = self.value(x).clone();
                self.outcome.states.insert(state.clone(), rows);
                vec![]
            }
            Op::Route(o) => moe::route(self, o),
            Op::StreamGates(o) => streams::gates(self, o),
            op => {
                for (state, rows) in attention::stored(op) {
                    let rows = self.value(rows).clone();
                    self.outcome.states.insert(state.into(), rows);
                }
                vec![self.single(op)]
            }
        };
        for (name, value) in node.op.results(&node.name).into_iter().zip(results) {
            self.outcome.values.insert(name, value);
        }
    }

    fn single(&self, op: &Op) -> Value {
        match op {
            Op::Input { source } => self.source(*source),
            Op::Embed(o) => ops::embed(o, self.value(&o.ids), self.weight(&o.table)),
            Op::Lookup(o) => ops::lookup(self.value(&o.ids), self.weight(&o.table)),
            Op::NgramHash(o) => ops::ngram_hash(self, o),
            Op::Linear(o) => ops::linear(o, self.value(&o.x), self.weight(&o.weight), self.optional_weight(&o.bias)),
            Op::Norm(o) => ops::norm(o, self.value(&o.x), self.optional_weight(&o.weight)),
            Op::Rope(o) => ops::rope(o, self.value(&o.x), self.value(&o.positions), self.optional_weight(&o.factors)),
            Op::Attention(o) => attention::attention(self, o),
            Op::TopKeys(o) => attention::top_keys(self, o),
            Op::Pool(o) => attention::pool(self, o),
            Op::ShortConv(o) => recurrent::short_conv(self, o),
            Op::DeltaRule(o) => recurrent::delta_rule(self, o),
            Op::Ssm(o) => recurrent::ssm(self, o),
            Op::Experts(o) => moe::experts(self, o),
            Op::StreamCollapse(o) => streams::collapse(self, o),
            Op::StreamUpdate(o) => streams::update(self, o),
            Op::Select { x, .. } => {
                let x = self.value(x);
                let data = self.input.logit_rows.iter().flat_map(|&row| x.row(row).to_vec()).collect();
                Value { width: x.width, data }
            }
            op => self.elementwise(op),
        }
    }

    fn elementwise(&self, op: &Op) -> Value {
        match op {
            Op::Activate { x, act } => self.value(x).map(|x| ops::activate(*act, x)),
            Op::Glu(o) => self.value(&o.gate).zip(self.value(&o.up), |gate, up| ops::gated(o.act, o.limit, gate, up)),
            Op::Add { a, b } => self.value(a).zip(self.value(b), |a, b| a + b),
            Op::Mul { a, b } => {
                let (a, b) = (self.value(a), self.value(b));
                Value::by_rows(a.width, [a, b], |[a, b]| ops::spread(a, b, |a, b| a * b))
            }
            Op::Dot { a, b, groups } => {
                let product = self.value(a).zip(self.value(b), |a, b| a * b);
                product.by_row(*groups, |row| row.chunks(row.len() / groups).map(|run| run.iter().sum()).collect())
            }
            Op::Scale { x, factor, offset } => self.value(x).map(|x| x * f64::from(*factor) + f64::from(*offset)),
            Op::Affine(o) => {
                ops::affine(self.value(&o.x), self.optional_weight(&o.scale), self.optional_weight(&o.bias))
            }
            Op::Softcap { x, cap } => self.value(x).map(|x| f64::from(*cap) * (x / f64::from(*cap)).tanh()),
            Op::Slice(o) => ops::slice(o, self.value(&o.x)),
            Op::Concat(o) => ops::concat(o, &o.parts.iter().map(|part| self.value(part)).collect::<Vec<_>>()),
            op => unreachable!("{op:?} is no elementwise op"),
        }
    }

    fn source(&self, source: InputSource) -> Value {
        let Input { tokens, start, .. } = self.input;
        match source {
            InputSource::TokenIds => column(tokens.iter().map(|&id| f64::from(id))),
            InputSource::Positions => column((0..tokens.len()).map(|i| (start + i) as f64)),
            InputSource::PreviousTokens { back, missing } => {
                let missing = vec![missing; back];
                column(missing.iter().chain(tokens).take(tokens.len()).map(|&id| f64::from(id)))
            }
            InputSource::StridedPositions { stride } => {
                column((0..tokens.len() / stride).map(|block| (block * stride) as f64))
            }
            InputSource::Hidden { index, .. } => self.input.hidden[index].clone(),
        }
    }

    /// The rows of a state and the size of its heads.
    fn state(&self, name: &str) -> (&Value, usize) {
        let rows = self.outcome.states.get(name).unwrap_or_else(|| panic!("state `{name}` is not stored"));
        (rows, self.graph.state(name).expect("declared").dim)
    }

    fn stride(&self, state: &str) -> usize {
        match self.graph.state(state).expect("declared").kind {
            StateKind::Strided { stride } => stride,
            kind => panic!("state `{state}` is {kind:?}"),
        }
    }
}

fn column(entries: impl Iterator<Item = f64>) -> Value {
    Value { width: 1, data: entries.collect() }
}
