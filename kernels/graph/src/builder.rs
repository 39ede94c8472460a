//! Building a graph node by node. Names are given without the layer; [`GraphBuilder::layer`] sets the suffix.

use crate::{
    Act, Affine, Attention, Concat, Custom, DeltaRule, Embed, Experts, Extension, Glu, GluLimit, Graph, GraphError,
    InputSource, Linear, Lookup, NgramHash, Node, Norm, NormKind, Op, Pool, Recurrent, Rope, Route, Rows, ShortConv,
    Slice, Ssm, State, StreamCollapse, StreamGates, StreamUpdate, TopKeys, Weight, WeightExpr, check,
};

/// Collects nodes, weights and states; [`GraphBuilder::finish`] checks the whole.
///
/// Every method that adds a node returns the full name of its value, to be passed on as an operand. Ops with many
/// attributes are passed as they are.
#[derive(Debug)]
pub struct GraphBuilder {
    graph: Graph,
    layer: Option<usize>,
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new(name: &str) -> Self {
        GraphBuilder { graph: Graph { name: name.into(), ..Graph::default() }, layer: None }
    }

    /// Nodes and states added from here on get `.LAYER` after their name; `None` for none.
    pub fn layer(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    fn full(&self, name: &str) -> String {
        match self.layer {
            Some(layer) => format!("{name}.{layer}"),
            None => name.into(),
        }
    }

    /// Adds any op.
    pub fn push(&mut self, name: &str, op: Op) -> String {
        let name = self.full(name);
        self.graph.nodes.push(Node { name: name.clone(), op });
        name
    }

    /// Declares a weight; the same name again must mean the same weight and is kept once.
    pub fn weight(&mut self, name: &str, shape: &[usize], expr: WeightExpr) -> String {
        let weight = Weight { name: name.into(), shape: shape.into(), expr };
        if !self.graph.weights.contains(&weight) {
            self.graph.weights.push(weight);
        }
        name.into()
    }

    /// Declares the weight that is the checkpoint tensor of that name.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> String {
        self.weight(name, shape, WeightExpr::Tensor(name.into()))
    }

    /// Declares a state of rows; its name gets the layer.
    pub fn state(&mut self, mut state: State) -> String {
        state.name = self.full(&state.name);
        let name = state.name.clone();
        self.graph.states.push(state);
        name
    }

    /// Declares a recurrent state; its name gets the layer.
    pub fn recurrent(&mut self, name: &str, shape: &[usize]) -> String {
        let name = self.full(name);
        self.graph.recurrent.push(Recurrent { name: name.clone(), shape: shape.into() });
        name
    }

    /// Makes a value a tap, the next in order.
    pub fn tap(&mut self, value: &str) {
        self.graph.taps.push(value.into());
    }

    /// An op that this language does not have.
    pub fn custom(&mut self, name: &str, op: Custom) -> String {
        self.push(name, Op::Custom(op))
    }

    /// An input of the step.
    pub fn input(&mut self, name: &str, source: InputSource) -> String {
        self.push(name, Op::Input { source })
    }

    /// Rows of `table`, times `scale`.
    pub fn embed(&mut self, name: &str, ids: &str, table: &str, scale: f32) -> String {
        self.push(name, Op::Embed(Embed { ids: ids.into(), table: table.into(), scale }))
    }

    /// Rows of a table of integers.
    pub fn lookup(&mut self, name: &str, ids: &str, table: &str) -> String {
        self.push(name, Op::Lookup(Lookup { ids: ids.into(), table: table.into() }))
    }

    /// Rows of hashed n-gram tables.
    pub fn ngram_hash(&mut self, name: &str, hash: NgramHash) -> String {
        self.push(name, Op::NgramHash(hash))
    }

    /// `x·Wᵀ (+ bias)`.
    pub fn linear(&mut self, name: &str, x: &str, weight: &str, bias: Option<&str>) -> String {
        self.push(name, Op::Linear(Linear { x: x.into(), weight: weight.into(), runs: 1, bias: bias.map(Into::into) }))
    }

    /// `x·Wᵀ` of each of `runs` equal runs of `x`.
    pub fn linear_runs(&mut self, name: &str, x: &str, weight: &str, runs: usize) -> String {
        self.push(name, Op::Linear(Linear { x: x.into(), weight: weight.into(), runs, bias: None }))
    }

    /// Root-mean-square norm over the row, or over runs of `group`.
    pub fn rms_norm(&mut self, name: &str, x: &str, weight: Option<&str>, eps: f32, group: Option<usize>) -> String {
        let op = Norm { x: x.into(), weight: weight.map(Into::into), kind: NormKind::Rms, eps, group };
        self.push(name, Op::Norm(op))
    }

    /// Runs of `group` entries to length 1.
    pub fn l2_norm(&mut self, name: &str, x: &str, eps: f32, group: usize) -> String {
        let op = Norm { x: x.into(), weight: None, kind: NormKind::L2, eps, group: Some(group) };
        self.push(name, Op::Norm(op))
    }

    /// Rotary embedding.
    pub fn rope(&mut self, name: &str, rope: Rope) -> String {
        self.push(name, Op::Rope(rope))
    }

    /// Attention over the sequence's cache.
    pub fn attention(&mut self, name: &str, attention: Attention) -> String {
        self.push(name, Op::Attention(attention))
    }

    /// The best rows of a strided state.
    pub fn top_keys(&mut self, name: &str, top: TopKeys) -> String {
        self.push(name, Op::TopKeys(top))
    }

    /// Blocks of tokens to rows.
    pub fn pool(&mut self, name: &str, pool: Pool) -> String {
        self.push(name, Op::Pool(pool))
    }

    /// Writes rows into a state.
    pub fn store(&mut self, name: &str, x: &str, state: &str) {
        self.push(name, Op::Store { x: x.into(), state: state.into() });
    }

    /// Causal depthwise convolution.
    pub fn short_conv(&mut self, name: &str, conv: ShortConv) -> String {
        self.push(name, Op::ShortConv(conv))
    }

    /// Gated delta rule.
    pub fn delta_rule(&mut self, name: &str, rule: DeltaRule) -> String {
        self.push(name, Op::DeltaRule(rule))
    }

    /// State-space scan.
    pub fn ssm(&mut self, name: &str, scan: Ssm) -> String {
        self.push(name, Op::Ssm(scan))
    }

    /// `act(x)`.
    pub fn activate(&mut self, name: &str, x: &str, act: Act) -> String {
        self.push(name, Op::Activate { x: x.into(), act })
    }

    /// `act(gate) ⊙ up`.
    pub fn glu(&mut self, name: &str, gate: &str, up: &str, act: Act) -> String {
        self.push(name, Op::Glu(Glu { gate: gate.into(), up: up.into(), act, limit: None }))
    }

    /// `act(gate) ⊙ up` with bounded factors.
    pub fn limited_glu(&mut self, name: &str, gate: &str, up: &str, act: Act, limit: Option<GluLimit>) -> String {
        self.push(name, Op::Glu(Glu { gate: gate.into(), up: up.into(), act, limit }))
    }

    /// `a + b`.
    pub fn add(&mut self, name: &str, a: &str, b: &str) -> String {
        self.push(name, Op::Add { a: a.into(), b: b.into() })
    }

    /// `a ⊙ b`, the entries of a narrower `b` each on a run of `a`.
    pub fn mul(&mut self, name: &str, a: &str, b: &str) -> String {
        self.push(name, Op::Mul { a: a.into(), b: b.into() })
    }

    /// Products of runs.
    pub fn dot(&mut self, name: &str, a: &str, b: &str, groups: usize) -> String {
        self.push(name, Op::Dot { a: a.into(), b: b.into(), groups })
    }

    /// `x · factor`.
    pub fn scale(&mut self, name: &str, x: &str, factor: f32) -> String {
        self.push(name, Op::Scale { x: x.into(), factor, offset: 0.0 })
    }

    /// `x ⊙ scale + bias` by weights.
    pub fn affine(&mut self, name: &str, x: &str, scale: Option<&str>, bias: Option<&str>) -> String {
        let op = Affine { x: x.into(), scale: scale.map(Into::into), bias: bias.map(Into::into) };
        self.push(name, Op::Affine(op))
    }

    /// `cap · tanh(x / cap)`.
    pub fn softcap(&mut self, name: &str, x: &str, cap: f32) -> String {
        self.push(name, Op::Softcap { x: x.into(), cap })
    }

    /// `len` entries from `start` of each of `groups` runs.
    pub fn slice(&mut self, name: &str, x: &str, groups: usize, start: usize, len: usize) -> String {
        self.push(name, Op::Slice(Slice { x: x.into(), groups, start, len }))
    }

    /// Rows side by side, by runs.
    pub fn concat(&mut self, name: &str, parts: &[&str], groups: usize) -> String {
        let parts = parts.iter().map(|&part| part.into()).collect();
        self.push(name, Op::Concat(Concat { parts, groups }))
    }

    /// Choice of experts; returns the names of ids and weights.
    pub fn route(&mut self, name: &str, route: Route) -> (String, String) {
        let name = self.push(name, Op::Route(route));
        (format!("{name}.ids"), format!("{name}.weights"))
    }

    /// Mixture of experts.
    pub fn experts(&mut self, name: &str, experts: Experts) -> String {
        self.push(name, Op::Experts(experts))
    }

    /// How a block meets the residual streams; returns the names of `pre`, `post` and `mix`.
    pub fn stream_gates(&mut self, name: &str, gates: StreamGates) -> [String; 3] {
        let name = self.push(name, Op::StreamGates(gates));
        ["pre", "post", "mix"].map(|part| format!("{name}.{part}"))
    }

    /// Residual streams to one row.
    pub fn stream_collapse(&mut self, name: &str, x: &str, streams: usize, weights: Option<&str>) -> String {
        let op = StreamCollapse { x: x.into(), streams, weights: weights.map(Into::into) };
        self.push(name, Op::StreamCollapse(op))
    }

    /// A block's result into the residual streams.
    pub fn stream_update(&mut self, name: &str, update: StreamUpdate) -> String {
        self.push(name, Op::StreamUpdate(update))
    }

    /// The rows whose logits are wanted.
    pub fn logit_rows(&mut self, name: &str, x: &str) -> String {
        self.push(name, Op::Select { x: x.into(), to: Rows::Logits })
    }

    /// The finished graph with this output, checked.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn finish(mut self, output: &str) -> Result<Graph, GraphError> {
        self.graph.output = output.into();
        check(&self.graph)?;
        Ok(self.graph)
    }

    /// What was built as an addition to another graph, whose values its nodes may name. Checked where it is applied.
    pub fn extension(self) -> Extension {
        let Graph { weights, states, recurrent, nodes, taps, .. } = self.graph;
        Extension { weights, states, recurrent, nodes, taps }
    }
}
