//! What ops do with states, and so in which number format they are.

use std::collections::HashSet;

use bantam_graph::{Checked, Graph, Op, State, StateType};

use crate::{CompileOptions, KvType};

/// The aliases of a graph: the state, which graph owns it, and its name there.
pub fn aliases<'a>(graph: &'a Graph, graphs: &[Checked<'_>]) -> Vec<(&'a State, usize, &'a str)> {
    let alias = |state: &'a State| {
        let alias = state.alias.as_ref()?;
        let owner = graphs.iter().position(|g| g.graph.name == alias.graph)?;
        Some((state, owner, alias.state.as_str()))
    };
    graph.states.iter().filter_map(alias).collect()
}

/// What ops do with states, by graph and name; what a graph does with an alias counts for the state behind it.
#[derive(Debug, Default)]
pub struct StateRoles<'a> {
    /// Scored against queries.
    pub keys: HashSet<(usize, &'a str)>,
    /// Keys of which whole pages are read: their rows are the fastest axis.
    pub paged: HashSet<(usize, &'a str)>,
    /// Read row by row: their heads lie in one run.
    pub rows: HashSet<(usize, &'a str)>,
    /// Read by attention alone, which can do with rotated heads.
    pub attended: HashSet<(usize, &'a str)>,
}

impl<'a> StateRoles<'a> {
    /// What the ops of a model's graphs do.
    pub fn of(graphs: &'a [Checked<'a>]) -> Self {
        let (mut roles, mut chosen_from) = (StateRoles::default(), HashSet::new());
        for (g, checked) in graphs.iter().enumerate() {
            let aliases = aliases(checked.graph, graphs);
            let owner = |name: &'a str| {
                let alias = aliases.iter().find(|(state, ..)| state.name == name);
                alias.map_or((g, name), |(_, owner, name)| (*owner, *name))
            };
            for node in &checked.graph.nodes {
                match &node.op {
                    Op::Attention(o) => {
                        roles.paged.insert(owner(&o.k_state));
                        let compressed = o.compressed.as_ref().map(|keys| &keys.state);
                        let states = [Some(&o.k_state), o.v_state.as_ref(), compressed];
                        roles.attended.extend(states.into_iter().flatten().map(|state| owner(state)));
                        if let Some(keys) = &o.compressed {
                            let set = if keys.select.is_some() { &mut roles.keys } else { &mut roles.paged };
                            set.insert(owner(&keys.state));
                        }
                    }
                    Op::TopKeys(o) => {
                        roles.paged.insert(owner(&o.k_state));
                        chosen_from.insert(owner(&o.k_state));
                    }
                    Op::Pool(o) => {
                        roles.rows.insert(owner(&o.state));
                    }
                    _ => {}
                }
            }
        }
        roles.keys.extend(&roles.paged);
        roles.attended.retain(|state| !chosen_from.contains(state));
        roles
    }

    /// The number format of a state of graph `graph`.
    pub fn kv_type(&self, graph: usize, state: &State, options: &CompileOptions) -> KvType {
        let id = (graph, state.name.as_str());
        let ty = match state.dtype {
            StateType::F32 => KvType::F32,
            StateType::Kv if self.keys.contains(&id) => options.k_type,
            StateType::Kv => options.v_type,
        };
        // Who chooses among keys by their scores would with codes of few bits choose others.
        if ty.code_bits().is_some() && !self.attended.contains(&id) { KvType::Q8_0 } else { ty }
    }
}
