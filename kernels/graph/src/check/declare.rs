//! What a graph declares: weights, states, and which node writes which state.

use std::collections::HashMap;

use super::{
    Checker, Fit, GraphError, MAX_EXTENT,
    fit::{extent, finite},
    invalid,
};
use crate::{Graph, Recurrent, State, StateKind, Weight, WeightExpr};

/// Most entries of a weight: a hundred times the largest model in one.
const MAX_ENTRIES: u64 = 1 << 48;

/// Most axes of a checkpoint tensor.
const MAX_AXES: usize = 8;

impl<'g> Checker<'g> {
    pub(super) fn new(graph: &'g Graph) -> Result<Self, GraphError> {
        let mut weights = HashMap::new();
        for w in &graph.weights {
            weight(w).map_err(|why| invalid(graph, "weight", &w.name, why))?;
            if weights.insert(w.name.as_str(), w).is_some() {
                return Err(invalid(graph, "weight", &w.name, "declared twice".into()));
            }
        }
        let mut states = HashMap::new();
        for s in &graph.states {
            state(s, graph).map_err(|why| invalid(graph, "state", &s.name, why))?;
            if states.insert(s.name.as_str(), s).is_some() {
                return Err(invalid(graph, "state", &s.name, "declared twice".into()));
            }
        }
        let mut values = HashMap::new();
        for s in &graph.recurrent {
            recurrent(s).map_err(|why| invalid(graph, "state", &s.name, why))?;
            if states.contains_key(s.name.as_str()) || values.insert(s.name.as_str(), s).is_some() {
                return Err(invalid(graph, "state", &s.name, "declared twice".into()));
            }
        }
        let (written, hidden, types) = (HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Checker { weights, states, recurrent: values, written, hidden, types })
    }

    pub(super) fn any_weight(&self, name: &str) -> Fit<&'g Weight> {
        self.weights.get(name).copied().ok_or_else(|| format!("weight `{name}` is not declared"))
    }

    pub(super) fn weight(&self, name: &str, shape: &[usize]) -> Fit {
        let found = self.any_weight(name)?;
        if found.shape == shape {
            Ok(())
        } else {
            Err(format!("weight `{name}`: expected shape {shape:?}, found {:?}", found.shape))
        }
    }

    /// A weight of one axis whose entries spread over a row of `width`.
    pub(super) fn spread(&self, name: &str, width: usize) -> Fit {
        match self.any_weight(name)?.shape[..] {
            [n] if width.is_multiple_of(n) => Ok(()),
            ref s => Err(format!("weight `{name}`: expected [n] with n a divisor of {width}, found {s:?}")),
        }
    }

    pub(super) fn state(&self, name: &str) -> Fit<&'g State> {
        self.states.get(name).copied().ok_or_else(|| format!("state `{name}` is not declared"))
    }

    /// A state that the node reads: it must be filled by then.
    pub(super) fn read(&self, state: &State) -> Fit {
        if state.alias.is_some() || self.written.contains_key(state.name.as_str()) {
            Ok(())
        } else {
            Err(format!("state `{}` is read, but no node before writes it", state.name))
        }
    }

    /// Notes that `node` writes this state.
    pub(super) fn write(&mut self, state: &'g str, node: &'g str) -> Fit {
        if self.states.get(state).is_some_and(|s| s.alias.is_some()) {
            return Err(format!("state `{state}` is an alias: only the graph that declares it writes it"));
        }
        match self.written.insert(state, node) {
            Some(other) => Err(format!("state `{state}` is written by `{other}` already")),
            None => Ok(()),
        }
    }

    /// Notes that `node` advances the recurrent state of this name, which must have this shape.
    pub(super) fn advance(&mut self, state: &'g str, node: &'g str, shape: &[usize]) -> Fit {
        let found = self.recurrent.get(state).ok_or_else(|| format!("recurrent state `{state}` is not declared"))?;
        if found.shape != shape {
            return Err(format!("recurrent state `{state}`: expected shape {shape:?}, found {:?}", found.shape));
        }
        self.write(state, node)
    }
}

fn weight(w: &Weight) -> Fit {
    if !(1..=3).contains(&w.shape.len()) {
        return Err(format!("expected 1 to 3 axes, found {}", w.shape.len()));
    }
    shape(&w.shape)?;
    expression(&w.expr)
}

fn shape(shape: &[usize]) -> Fit {
    if shape.len() > MAX_AXES {
        return Err(format!("expected at most {MAX_AXES} axes, found {}", shape.len()));
    }
    let entries = shape.iter().try_fold(1_u64, |product, &n| {
        extent("axis", n)?;
        Ok::<_, String>(product.saturating_mul(n as u64))
    })?;
    if entries > MAX_ENTRIES {
        return Err(format!("shape {shape:?} has more than {MAX_ENTRIES} entries"));
    }
    Ok(())
}

/// Whether an expression makes sense whatever its tensors are.
fn expression(expr: &WeightExpr) -> Fit {
    match expr {
        WeightExpr::Tensor(name) if name.is_empty() => Err("a tensor without a name".into()),
        WeightExpr::Tensor(_) => Ok(()),
        WeightExpr::Slice { of, axis, start, len } => {
            extent("len of a slice", *len)?;
            if *axis >= MAX_AXES || *start > MAX_EXTENT {
                return Err(format!("a slice of {len} from {start} along axis {axis}"));
            }
            expression(of)
        }
        WeightExpr::Reshape { of, shape: to } => {
            shape(to)?;
            expression(of)
        }
        WeightExpr::Permute { of, axes } => {
            // The number first: to look for each among very many would take very long.
            if !(1..=MAX_AXES).contains(&axes.len()) {
                return Err(format!("expected an order of 1 to {MAX_AXES} axes, found {} axes", axes.len()));
            }
            if !(0..axes.len()).all(|axis| axes.contains(&axis)) {
                return Err(format!("axes {axes:?} are no order of axes"));
            }
            expression(of)
        }
        WeightExpr::Concat { of, axis } if of.is_empty() || *axis >= MAX_AXES => {
            Err(format!("{} parts along axis {axis}", of.len()))
        }
        WeightExpr::Stack(of) if of.is_empty() => Err("a stack of nothing".into()),
        WeightExpr::Concat { of, .. } | WeightExpr::Stack(of) => of.iter().try_for_each(expression),
        WeightExpr::Affine { of, scale, offset } => {
            finite("scale", *scale)?;
            finite("offset", *offset)?;
            expression(of)
        }
        WeightExpr::Exp(of) => expression(of),
    }
}

fn state(s: &State, graph: &Graph) -> Fit {
    extent("heads", s.heads)?;
    extent("dim", s.dim)?;
    extent("width", s.width())?;
    match s.kind {
        StateKind::PerToken => {}
        StateKind::Window { len } => extent("len", len)?,
        StateKind::Strided { stride } => extent("stride", stride)?,
    }
    match &s.alias {
        Some(alias) if alias.graph == graph.name => {
            Err(format!("an alias of this graph's own `{}`: name that state itself", alias.state))
        }
        _ => Ok(()),
    }
}

fn recurrent(s: &Recurrent) -> Fit {
    if !(1..=4).contains(&s.shape.len()) {
        return Err(format!("expected 1 to 4 axes, found {}", s.shape.len()));
    }
    shape(&s.shape)?;
    extent("entries", s.entries())
}
