//! Several graphs that make one model: what holds them together.
//!
//! A draft graph proposes tokens for a trunk. It may read the trunk's state through aliases, take rows that the trunk taps
//! as hidden inputs, and need the trunk to compute and store more than it does on its own ([`Extension`]).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{
    Checked, Graph, GraphError, InputSource, Node, Op, Recurrent, State, StateType, Weight, check, check::invalid,
};

/// What is added to a graph so that another can work from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// Further weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<Weight>,
    /// Further states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Further recurrent states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recurrent: Vec<Recurrent>,
    /// Nodes behind the graph's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// Values to be tapped, instead of those that the graph taps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taps: Vec<String>,
}

impl Extension {
    /// The graph with this added, checked.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn apply(&self, graph: &Graph) -> Result<Graph, GraphError> {
        let mut known: HashMap<&str, &Weight> =
            graph.weights.iter().map(|weight| (weight.name.as_str(), weight)).collect();
        let mut graph = graph.clone();
        for weight in &self.weights {
            if known.insert(&weight.name, weight) != Some(weight) {
                graph.weights.push(weight.clone());
            }
        }
        graph.states.extend_from_slice(&self.states);
        graph.recurrent.extend_from_slice(&self.recurrent);
        graph.nodes.extend_from_slice(&self.nodes);
        graph.taps.clone_from(&self.taps);
        check(&graph)?;
        Ok(graph)
    }
}

/// Checks that graphs fit each other, the first being the trunk: names, aliases, and hidden inputs.
///
/// Every graph with hidden inputs takes them from taps of the graph before it, in order.
///
/// # Errors
/// The first thing that does not fit, in one graph or between two.
pub fn link<'g>(graphs: &[&'g Graph]) -> Result<(), GraphError> {
    let states_of = |graph: &&'g Graph| graph.states.iter().map(|state| (state.name.as_str(), state)).collect();
    let states: Vec<HashMap<&str, &State>> = graphs.iter().map(states_of).collect();
    let mut before: Option<Checked<'_>> = None;
    for (i, graph) in graphs.iter().enumerate() {
        if graphs.iter().take(i).any(|g| g.name == graph.name) {
            return Err(invalid(graph, "graph", &graph.name, "another graph of the model has this name".into()));
        }
        let checked = check(graph)?;
        for state in &graph.states {
            let owner = state.alias.as_ref().and_then(|alias| {
                let owner = graphs.iter().position(|g| g.name == alias.graph)?;
                states[owner].get(alias.state.as_str()).copied()
            });
            alias(graph, state, owner)?;
        }
        for node in &graph.nodes {
            if let Op::Input { source: InputSource::Hidden { index, width } } = node.op {
                hidden(before.as_ref(), index, width).map_err(|why| invalid(graph, "node", &node.name, why))?;
            }
        }
        before = Some(checked);
    }
    Ok(())
}

/// Checks an alias against the state that it is a view of, if there is such a state.
fn alias(graph: &Graph, state: &State, owner: Option<&State>) -> Result<(), GraphError> {
    let Some(alias) = &state.alias else { return Ok(()) };
    let why = match owner {
        None => format!("no graph `{}` has a state `{}`", alias.graph, alias.state),
        Some(owner) if owner.alias.is_some() => format!("`{}` is an alias itself", alias.state),
        Some(owner) => {
            let form = |of: &State| (of.heads, of.dim, of.kind, of.dtype);
            if form(owner) == form(state) {
                return Ok(());
            }
            let shown = |of: &State| {
                let dtype = if of.dtype == StateType::F32 { "f32" } else { "kv" };
                format!("{} heads of {}, {}, {dtype}", of.heads, of.dim, of.kind)
            };
            format!("expected {} as in graph `{}`, found {}", shown(owner), alias.graph, shown(state))
        }
    };
    Err(invalid(graph, "state", &state.name, why))
}

fn hidden(before: Option<&Checked<'_>>, index: usize, width: usize) -> Result<(), String> {
    let tap = before.and_then(|checked| {
        let tap = checked.graph.taps.get(index)?;
        Some((tap, checked.types.get(tap)?.width))
    });
    match tap {
        Some((_, found)) if found == width => Ok(()),
        Some((tap, found)) => Err(format!("expected rows of {width}, and tap `{tap}` has {found}")),
        None => Err(format!("the graph before it has no tap {index}")),
    }
}
