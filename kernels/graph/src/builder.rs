//! Building a graph node by node. Names are given without the layer; [`GraphBuilder::layer`] sets the suffix.

use crate::{
    Act, Attention, Embed, Experts, Glu, Graph, GraphError, InputSource, Linear, Node, Norm, NormKind, Op, Rope, Route,
    Rows, State, Weight, WeightExpr, check,
};

/// Collects nodes, weights and states; [`GraphBuilder::finish`] checks the whole.
///
/// Every method that adds a node returns the full name of its value, to be passed on as an operand.
#[derive(Debug)]
pub struct GraphBuilder {
    graph: Graph,
    layer: Option<usize>,
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new(name: &str) -> Self {
        let graph = Graph {
            name: name.into(),
            weights: Vec::new(),
            states: Vec::new(),
            nodes: Vec::new(),
            output: String::new(),
        };
        GraphBuilder { graph, layer: None }
    }

    /// Nodes added from here on get `.LAYER` after their name; `None` for none.
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

    /// Declares a state; its name gets the layer.
    pub fn state(&mut self, mut state: State) -> String {
        state.name = self.full(&state.name);
        let name = state.name.clone();
        self.graph.states.push(state);
        name
    }

    /// An input of the step.
    pub fn input(&mut self, name: &str, source: InputSource) -> String {
        self.push(name, Op::Input { source })
    }

    /// Rows of `table`, times `scale`.
    pub fn embed(&mut self, name: &str, ids: &str, table: &str, scale: f32) -> String {
        self.push(name, Op::Embed(Embed { ids: ids.into(), table: table.into(), scale }))
    }

    /// `x·Wᵀ (+ bias)`.
    pub fn linear(&mut self, name: &str, x: &str, weight: &str, bias: Option<&str>) -> String {
        let op = Linear { x: x.into(), weight: weight.into(), bias: bias.map(Into::into) };
        self.push(name, Op::Linear(op))
    }

    /// Root-mean-square norm over the row, or over runs of `group`.
    pub fn rms_norm(&mut self, name: &str, x: &str, weight: Option<&str>, eps: f32, group: Option<usize>) -> String {
        let op = Norm { x: x.into(), weight: weight.map(Into::into), kind: NormKind::Rms, eps, group };
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

    /// `act(gate) ⊙ up`.
    pub fn glu(&mut self, name: &str, gate: &str, up: &str, act: Act) -> String {
        self.push(name, Op::Glu(Glu { gate: gate.into(), up: up.into(), act }))
    }

    /// `a + b`.
    pub fn add(&mut self, name: &str, a: &str, b: &str) -> String {
        self.push(name, Op::Add { a: a.into(), b: b.into() })
    }

    /// `cap · tanh(x / cap)`.
    pub fn softcap(&mut self, name: &str, x: &str, cap: f32) -> String {
        self.push(name, Op::Softcap { x: x.into(), cap })
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
}
