//! What ops do with states, and so in which number format they are.

use std::collections::{HashMap, HashSet};

use bantam_graph::{Checked, Graph, Op, State, StateKind, StateType};

use crate::KvType;

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
            let aliases = aliases(checked.graph, graphs).into_iter();
            let owners: HashMap<&str, (usize, &str)> =
                aliases.map(|(state, owner, name)| (state.name.as_str(), (owner, name))).collect();
            let owner = |name: &'a str| owners.get(name).copied().unwrap_or((g, name));
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
}

/// What the rows of a state are, whatever the cache types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowForm {
    /// Index in [`Graph::states`].
    pub state: usize,
    /// How it grows.
    pub kind: StateKind,
    /// Heads of a row.
    pub heads: usize,
    /// Entries of a head.
    pub dim: usize,
    /// Which cache type it follows.
    pub follows: Follows,
    /// Whether its heads may be rotated and coded in few bits.
    pub coded: bool,
}

/// Which cache type a state follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// That of keys.
    Keys,
    /// That of values.
    Values,
    /// It is f32.
    Neither,
}

impl RowForm {
    /// Those of state `index` of a graph, which is known by `id`: the graph's index and the state's name.
    pub fn new(index: usize, state: &State, id: (usize, &str), roles: &StateRoles<'_>) -> Self {
        let follows = match state.dtype {
            StateType::F32 => Follows::Neither,
            StateType::Kv if roles.keys.contains(&id) => Follows::Keys,
            StateType::Kv => Follows::Values,
        };
        // Who chooses among keys by their scores would with codes of few bits choose others.
        let coded = roles.attended.contains(&id);
        RowForm { state: index, kind: state.kind, heads: state.heads, dim: state.dim, follows, coded }
    }

    /// Its number format where keys and values have these.
    pub fn ty(&self, k_type: KvType, v_type: KvType) -> KvType {
        let ty = match self.follows {
            Follows::Keys => k_type,
            Follows::Values => v_type,
            Follows::Neither => KvType::F32,
        };
        if ty.code_bits().is_some() && !self.coded { KvType::Q8_0 } else { ty }
    }

    /// Bytes of a row where keys and values have these formats; saturates.
    pub fn row_bytes(&self, k_type: KvType, v_type: KvType) -> usize {
        self.ty(k_type, v_type).head_bytes(self.dim).saturating_mul(self.heads)
    }
}
