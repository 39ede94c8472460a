//! The type-checker: resolves every name, computes every shape, refuses what does not fit.

mod attention;
mod custom;
mod declare;
mod dense;
mod fit;
mod input;
mod moe;
mod recurrent;
mod streams;

use std::{collections::HashMap, fmt};

use crate::{Graph, Node, Op, Recurrent, Rows, State, Weight};

/// Largest row or matrix axis that is accepted: far above any model, far below where products of two overflow.
pub(crate) const MAX_EXTENT: usize = 1 << 31;

/// Why a graph was refused. Each message names the node, weight or state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Something does not fit.
    #[error("graph `{graph}`, {what} `{name}`: {why}")]
    Invalid {
        /// The graph's name.
        graph: String,
        /// `node`, `weight`, `state`, `tap` or `output`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What was expected and what was found.
        why: String,
    },
    /// The JSON form cannot be read or written.
    #[error("graph JSON: {0}")]
    Json(String),
    /// The JSON form is of another version.
    #[error("graph JSON of version {found}, expected {expected}: build the plugin against this version of the SDK")]
    Version {
        /// In the file.
        found: u32,
        /// What this crate reads.
        expected: u32,
    },
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueType {
    /// Its row space.
    pub rows: Rows,
    /// Entries of a row.
    pub width: usize,
    /// Whether the entries are integers (ids, positions), not f32.
    pub integer: bool,
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = if self.integer { "integers" } else { "f32" };
        write!(f, "{} {entries} over {}", self.width, self.rows)
    }
}

impl ValueType {
    /// The same rows with other f32 entries.
    fn float(self, width: usize) -> Self {
        ValueType { width, integer: false, ..self }
    }

    /// The same rows with other integer entries.
    fn ids(self, width: usize) -> Self {
        ValueType { width, integer: true, ..self }
    }
}

/// A graph that fits, with the type of every value by name.
#[derive(Clone, Debug)]
pub struct Checked<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// Type of every value.
    pub types: HashMap<String, ValueType>,
    /// What is declared, by name.
    weights: HashMap<&'g str, &'g Weight>,
    states: HashMap<&'g str, &'g State>,
    recurrent: HashMap<&'g str, &'g Recurrent>,
}

impl<'g> Checked<'g> {
    /// The weight of this name.
    pub fn weight(&self, name: &str) -> Option<&'g Weight> {
        self.weights.get(name).copied()
    }

    /// The state of rows of this name.
    pub fn state(&self, name: &str) -> Option<&'g State> {
        self.states.get(name).copied()
    }

    /// The recurrent state of this name.
    pub fn recurrent(&self, name: &str) -> Option<&'g Recurrent> {
        self.recurrent.get(name).copied()
    }
}

/// Checks a graph.
///
/// # Errors
/// The first thing that does not fit.
pub fn check(graph: &Graph) -> Result<Checked<'_>, GraphError> {
    let mut checker = Checker::new(graph)?;
    for node in &graph.nodes {
        checker.node(node).map_err(|why| invalid(graph, "node", &node.name, why))?;
    }
    checker.finish(graph)?;
    let Checker { types, weights, states, recurrent, .. } = checker;
    Ok(Checked { graph, types, weights, states, recurrent })
}

pub(crate) fn invalid(graph: &Graph, what: &'static str, name: &str, why: String) -> GraphError {
    GraphError::Invalid { graph: graph.name.clone(), what, name: name.into(), why }
}

/// Passes, or says why not; the node's name is added outside.
type Fit<T = ()> = Result<T, String>;

struct Checker<'g> {
    weights: HashMap<&'g str, &'g Weight>,
    states: HashMap<&'g str, &'g State>,
    recurrent: HashMap<&'g str, &'g Recurrent>,
    /// Which node writes a state: two writers would overwrite each other.
    written: HashMap<&'g str, &'g str>,
    /// Widths of the hidden inputs, by index.
    hidden: HashMap<usize, usize>,
    types: HashMap<String, ValueType>,
}

impl<'g> Checker<'g> {
    fn node(&mut self, node: &'g Node) -> Fit {
        let types = match &node.op {
            Op::Route(o) => self.route(o)?,
            Op::StreamGates(o) => self.stream_gates(o)?,
            Op::Store { x, state } => {
                self.store(&node.name, x, state)?;
                vec![]
            }
            op => vec![self.single(&node.name, op)?],
        };
        for (name, t) in node.op.results(&node.name).into_iter().zip(types) {
            self.define(name, t)?;
        }
        Ok(())
    }

    fn define(&mut self, name: String, t: ValueType) -> Fit {
        if !(1..=MAX_EXTENT).contains(&t.width) {
            return Err(format!("a row of {} entries", t.width));
        }
        match self.types.insert(name, t) {
            Some(_) => Err("another node yields a value of this name".into()),
            None => Ok(()),
        }
    }

    /// The type of the one value that an op yields.
    fn single(&mut self, name: &'g str, op: &'g Op) -> Fit<ValueType> {
        match op {
            Op::Input { source } => self.input(*source),
            Op::Embed(o) => self.embed(o),
            Op::Lookup(o) => self.lookup(o),
            Op::NgramHash(o) => self.ngram_hash(o),
            Op::Linear(o) => self.linear(o),
            Op::Norm(o) => self.norm(o),
            Op::Rope(o) => self.rope(o),
            Op::Attention(o) => self.attention(name, o),
            Op::TopKeys(o) => self.top_keys(o),
            Op::Pool(o) => self.pool(name, o),
            Op::ShortConv(o) => self.short_conv(name, o),
            Op::DeltaRule(o) => self.delta_rule(name, o),
            Op::Ssm(o) => self.ssm(name, o),
            Op::Activate { x, act: _ } => self.float(x),
            Op::Glu(o) => self.glu(o),
            Op::Add { a, b } => self.same(a, b),
            Op::Mul { a, b } => self.mul(a, b),
            Op::Dot { a, b, groups } => self.dot(a, b, *groups),
            Op::Scale { x, factor, offset } => self.scale(x, *factor, *offset),
            Op::Affine(o) => self.affine(o),
            Op::Softcap { x, cap } => self.softcap(x, *cap),
            Op::Slice(o) => self.slice(o),
            Op::Concat(o) => self.concat(o),
            Op::Experts(o) => self.experts(o),
            Op::StreamCollapse(o) => self.stream_collapse(o),
            Op::StreamUpdate(o) => self.stream_update(o),
            Op::Custom(o) => self.custom(o),
            Op::Select { x, to } => self.select(x, *to),
            Op::Route(_) | Op::StreamGates(_) | Op::Store { .. } => Err("it does not yield one value".into()),
        }
    }

    /// What can be said only when all nodes are known.
    fn finish(&self, graph: &Graph) -> Result<(), GraphError> {
        self.yielded(&graph.output, Rows::Logits).map_err(|why| invalid(graph, "output", &graph.output, why))?;
        for tap in &graph.taps {
            self.yielded(tap, Rows::Tokens).map_err(|why| invalid(graph, "tap", tap, why))?;
        }
        if let Some(index) = self.hidden.keys().find(|index| **index >= self.hidden.len()) {
            let why = format!("hidden inputs must be numbered from 0, and there are {}", self.hidden.len());
            return Err(invalid(graph, "input", &index.to_string(), why));
        }
        let owned = graph.states.iter().filter(|s| s.alias.is_none()).map(|s| s.name.as_str());
        for state in owned.chain(graph.recurrent.iter().map(|s| s.name.as_str())) {
            if !self.written.contains_key(state) {
                return Err(invalid(graph, "state", state, "no node writes it".into()));
            }
        }
        Ok(())
    }

    /// A value that leaves the graph.
    fn yielded(&self, name: &str, rows: Rows) -> Fit {
        match self.types.get(name) {
            Some(t) if !t.integer && t.rows == rows => Ok(()),
            Some(t) => Err(format!("it must be f32 rows over {rows}, found {t}")),
            None => Err("no node yields it".into()),
        }
    }
}
