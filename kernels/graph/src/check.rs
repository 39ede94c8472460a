//! The type-checker: resolves every name, computes every shape, refuses what does not fit.

use std::collections::HashMap;

use crate::{
    Act, Attention, Embed, Experts, Graph, Linear, Node, Norm, Op, Rope, RopeScaling, Route, Rows, State, StateKind,
    Weight,
};

/// Largest row or matrix axis that is accepted: far above any model, far below where products of two overflow.
const MAX_EXTENT: usize = 1 << 31;

/// Why a graph was refused. Each message names the node, weight or state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Something does not fit.
    #[error("graph `{graph}`, {what} `{name}`: {why}")]
    Invalid {
        /// The graph's name.
        graph: String,
        /// `node`, `weight`, `state` or `output`.
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

/// A graph that fits, with the type of every value by name.
#[derive(Clone, Debug)]
pub struct Checked<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// Type of every value.
    pub types: HashMap<String, ValueType>,
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
    match checker.types.get(&graph.output) {
        Some(t) if !t.integer && t.rows == Rows::Logits => {}
        Some(t) => {
            let why = format!("the output must be f32 logit rows, found {t:?}: add a `select`");
            return Err(invalid(graph, "output", &graph.output, why));
        }
        None => return Err(invalid(graph, "output", &graph.output, "no node yields it".into())),
    }
    Ok(Checked { graph, types: checker.types })
}

fn invalid(graph: &Graph, what: &'static str, name: &str, why: String) -> GraphError {
    GraphError::Invalid { graph: graph.name.clone(), what, name: name.into(), why }
}

type Fit<T = ()> = Result<T, String>;

struct Checker<'g> {
    weights: HashMap<&'g str, &'g Weight>,
    states: HashMap<&'g str, &'g State>,
    /// Which node writes a state: two writers would overwrite each other.
    written: HashMap<&'g str, &'g str>,
    types: HashMap<String, ValueType>,
}

impl<'g> Checker<'g> {
    fn new(graph: &'g Graph) -> Result<Self, GraphError> {
        let mut weights = HashMap::new();
        for w in &graph.weights {
            let ok = (1..=3).contains(&w.shape.len()) && w.shape.iter().all(|n| (1..=MAX_EXTENT).contains(n));
            if !ok {
                let why = format!("expected 1 to 3 axes of 1..={MAX_EXTENT}, found {:?}", w.shape);
                return Err(invalid(graph, "weight", &w.name, why));
            }
            if weights.insert(w.name.as_str(), w).is_some() {
                return Err(invalid(graph, "weight", &w.name, "declared twice".into()));
            }
        }
        let mut states = HashMap::new();
        for s in &graph.states {
            let window = match s.kind {
                StateKind::PerToken => 1,
                StateKind::Window { len } => len,
            };
            if [s.heads, s.dim, window].iter().any(|n| !(1..=MAX_EXTENT).contains(n)) || s.width() > MAX_EXTENT {
                let why = format!("expected extents in 1..={MAX_EXTENT}, found {} × {}, {:?}", s.heads, s.dim, s.kind);
                return Err(invalid(graph, "state", &s.name, why));
            }
            if states.insert(s.name.as_str(), s).is_some() {
                return Err(invalid(graph, "state", &s.name, "declared twice".into()));
            }
        }
        Ok(Checker { weights, states, written: HashMap::new(), types: HashMap::new() })
    }

    fn node(&mut self, node: &'g Node) -> Fit {
        match &node.op {
            Op::Route(o) => {
                let (ids, weights) = self.route(o)?;
                self.define(format!("{}.ids", node.name), ids)?;
                self.define(format!("{}.weights", node.name), weights)
            }
            op => {
                let t = self.single(&node.name, op)?;
                self.define(node.name.clone(), t)
            }
        }
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

    fn single(&mut self, name: &'g str, op: &'g Op) -> Fit<ValueType> {
        match op {
            Op::Input { .. } => Ok(ValueType { rows: Rows::Tokens, width: 1, integer: true }),
            Op::Embed(o) => self.embed(o),
            Op::Linear(o) => self.linear(o),
            Op::Norm(o) => self.norm(o),
            Op::Rope(o) => self.rope(o),
            Op::Attention(o) => self.attention(name, o),
            Op::Activate { x, act: Act::Silu | Act::GeluTanh | Act::Sigmoid } => self.float(x),
            Op::Glu(o) => self.same(&o.gate, &o.up),
            Op::Add { a, b } => self.same(a, b),
            Op::Mul { a, b } => self.scaled(a, b),
            Op::Scale { x, factor } => {
                finite("factor", *factor)?;
                self.float(x)
            }
            Op::Softcap { x, cap } => {
                positive("cap", *cap)?;
                self.float(x)
            }
            Op::Route(_) => Err("a route has two results".into()),
            Op::Experts(o) => self.experts(o),
            Op::Select { x, to } => self.select(x, *to),
        }
    }

    fn value(&self, name: &str) -> Fit<ValueType> {
        self.types.get(name).copied().ok_or_else(|| format!("operand `{name}` is not computed before it"))
    }

    fn float(&self, name: &str) -> Fit<ValueType> {
        let t = self.value(name)?;
        if t.integer { Err(format!("operand `{name}` must be f32, found integers")) } else { Ok(t) }
    }

    fn integer(&self, name: &str, width: usize) -> Fit<ValueType> {
        let t = self.value(name)?;
        if t.integer && t.width == width {
            Ok(t)
        } else {
            Err(format!("operand `{name}` must be {width} integers a row, found {t:?}"))
        }
    }

    fn weight(&self, name: &str, shape: &[usize]) -> Fit {
        let found = self.any_weight(name)?;
        if found.shape == shape {
            Ok(())
        } else {
            Err(format!("weight `{name}`: expected shape {shape:?}, found {:?}", found.shape))
        }
    }

    fn any_weight(&self, name: &str) -> Fit<&'g Weight> {
        self.weights.get(name).copied().ok_or_else(|| format!("weight `{name}` is not declared"))
    }

    fn state(&self, name: &str) -> Fit<&'g State> {
        self.states.get(name).copied().ok_or_else(|| format!("state `{name}` is not declared"))
    }

    fn same(&self, a: &str, b: &str) -> Fit<ValueType> {
        let (ta, tb) = (self.float(a)?, self.float(b)?);
        if ta == tb { Ok(ta) } else { Err(format!("`{a}` is {ta:?} but `{b}` is {tb:?}")) }
    }

    fn scaled(&self, a: &str, b: &str) -> Fit<ValueType> {
        let (ta, tb) = (self.float(a)?, self.float(b)?);
        if ta.rows == tb.rows && (tb.width == ta.width || tb.width == 1) {
            Ok(ta)
        } else {
            Err(format!("`{b}` must have the shape of `{a}` ({ta:?}) or width 1, found {tb:?}"))
        }
    }

    fn embed(&self, o: &Embed) -> Fit<ValueType> {
        finite("scale", o.scale)?;
        let ids = self.integer(&o.ids, 1)?;
        match self.any_weight(&o.table)?.shape[..] {
            [_, width] => Ok(ValueType { rows: ids.rows, width, integer: false }),
            ref s => Err(format!("table `{}`: expected [vocab, width], found {s:?}", o.table)),
        }
    }

    fn linear(&self, o: &Linear) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        let [out, cols] = self.any_weight(&o.weight)?.shape[..] else {
            return Err(format!("weight `{}`: expected a matrix [out, {}]", o.weight, x.width));
        };
        if cols != x.width {
            return Err(format!("weight `{}`: expected {} columns as `{}` has, found {cols}", o.weight, x.width, o.x));
        }
        if let Some(bias) = &o.bias {
            self.weight(bias, &[out])?;
        }
        Ok(ValueType { rows: x.rows, width: out, integer: false })
    }

    fn norm(&self, o: &Norm) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        let group = o.group.unwrap_or(x.width);
        whole("group", x.width, group)?;
        if !(o.eps >= 0.0 && o.eps.is_finite()) {
            return Err(format!("eps must be a number ≥ 0, found {}", o.eps));
        }
        if let Some(w) = &o.weight {
            self.weight(w, &[group])?;
        }
        Ok(x)
    }

    fn rope(&self, o: &Rope) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        let positions = self.integer(&o.positions, 1)?;
        if positions.rows != x.rows {
            return Err(format!("`{}` and `{}` have rows of different kinds", o.positions, o.x));
        }
        whole("head_dim", x.width, o.head_dim)?;
        if o.dims == 0 || o.dims % 2 != 0 || o.dims > o.head_dim {
            return Err(format!("dims must be even and in 2..={}, found {}", o.head_dim, o.dims));
        }
        positive("base", o.base)?;
        match &o.scaling {
            None => {}
            Some(RopeScaling::Linear { factor }) => positive("factor", *factor)?,
            Some(RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude }) => {
                positive("factor", *factor)?;
                positive("original_context", *original_context as f32)?;
                positive("beta_fast", *beta_fast)?;
                positive("beta_slow", *beta_slow)?;
                positive("magnitude", *magnitude)?;
            }
        }
        if let Some(f) = &o.factors {
            self.weight(f, &[o.dims / 2])?;
        }
        Ok(x)
    }

    fn attention(&mut self, name: &'g str, o: &'g Attention) -> Fit<ValueType> {
        let (q, k, v) = (self.float(&o.q)?, self.float(&o.k)?, self.float(&o.v)?);
        if [q, k, v].iter().any(|t| t.rows != Rows::Tokens) {
            return Err("queries, keys and values must be rows over tokens".into());
        }
        let (ks, vs) = (self.state(&o.k_state)?, self.state(&o.v_state)?);
        for (value, t, state) in [(&o.k, k, ks), (&o.v, v, vs)] {
            if t.width != state.width() {
                return Err(format!("`{value}` has width {}, its state `{}` {}", t.width, state.name, state.width()));
            }
        }
        if ks.heads != vs.heads || ks.kind != vs.kind {
            return Err(format!("states `{}` and `{}` differ in heads or kind", ks.name, vs.name));
        }
        whole("heads", o.heads, ks.heads)?;
        if o.heads.checked_mul(ks.dim) != Some(q.width) {
            return Err(format!("`{}` must have {} heads of {}, found width {}", o.q, o.heads, ks.dim, q.width));
        }
        finite("scale", o.scale)?;
        if let StateKind::Window { len } = ks.kind
            && o.window.is_none_or(|w| w > len)
        {
            return Err(format!("it looks back {:?}, but `{}` keeps {len} rows", o.window, ks.name));
        }
        if o.window == Some(0) {
            return Err("a window of 0".into());
        }
        for state in [&o.k_state, &o.v_state] {
            if let Some(other) = self.written.insert(state, name) {
                return Err(format!("state `{state}` is written by `{other}` already"));
            }
        }
        Ok(ValueType { rows: Rows::Tokens, width: o.heads.saturating_mul(vs.dim), integer: false })
    }

    fn route(&self, o: &Route) -> Fit<(ValueType, ValueType)> {
        let scores = self.float(&o.scores)?;
        finite("scale", o.scale)?;
        if o.used == 0 || o.used > scores.width {
            return Err(format!("used must be in 1..={} experts, found {}", scores.width, o.used));
        }
        let weights = ValueType { width: o.used, ..scores };
        Ok((ValueType { integer: true, ..weights }, weights))
    }

    fn experts(&self, o: &Experts) -> Fit<ValueType> {
        let (x, w) = (self.float(&o.x)?, self.float(&o.weights)?);
        let ids = self.integer(&o.ids, w.width)?;
        if ids.rows != x.rows || w.rows != x.rows {
            return Err(format!("`{}`, `{}` and `{}` have rows of different kinds", o.x, o.ids, o.weights));
        }
        let [experts, ffn, cols] = self.any_weight(&o.gate)?.shape[..] else {
            return Err(format!("weight `{}`: expected [experts, ffn, {}]", o.gate, x.width));
        };
        if cols != x.width {
            return Err(format!("weight `{}`: expected {} columns, found {cols}", o.gate, x.width));
        }
        self.weight(&o.up, &[experts, ffn, x.width])?;
        self.weight(&o.down, &[experts, x.width, ffn])?;
        Ok(x)
    }

    fn select(&self, x: &str, to: Rows) -> Fit<ValueType> {
        let t = self.value(x)?;
        match (t.rows, to) {
            (Rows::Tokens, Rows::Logits) => Ok(ValueType { rows: to, ..t }),
            (from, to) => Err(format!("no selection leads from {from:?} to {to:?}")),
        }
    }
}

fn whole(name: &str, width: usize, part: usize) -> Fit {
    if part > 0 && width.is_multiple_of(part) {
        Ok(())
    } else {
        Err(format!("{width} is no whole multiple of {name} {part}"))
    }
}

fn finite(name: &str, x: f32) -> Fit {
    if x.is_finite() { Ok(()) } else { Err(format!("{name} must be a number, found {x}")) }
}

fn positive(name: &str, x: f32) -> Fit {
    if x.is_finite() && x > 0.0 { Ok(()) } else { Err(format!("{name} must be a number > 0, found {x}")) }
}
