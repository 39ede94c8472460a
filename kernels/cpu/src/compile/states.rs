//! Lays the states of a model's graphs out: rows in the pages of their groups, recurrent values in slots.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use bantam_backend::{CompileError, CompileOptions, KvType, StateGroup, state_groups};
use bantam_graph::{Checked, Graph, Op, Recurrent, State, StateKind, StateType};

use super::recurrences;
use crate::{
    pool::{PAGE_ROWS, Pool, StateSlot},
    recurrent::{SlotPool, slot_bytes},
};

/// What states take, without their weights: what [`CpuBackend`](crate::CpuBackend) reserves for a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateForms {
    /// Rows of the states that have some, in the order of [`Graph::states`]; aliases have none of their own.
    pub rows: Vec<RowForm>,
    /// Bytes of each recurrent state in a slot, in the order of [`Graph::recurrent`].
    pub slots: Vec<usize>,
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
    fn new(index: usize, state: &State, id: (usize, &str), roles: &Roles<'_>) -> Self {
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

/// What the states of graphs take, each graph's own.
///
/// # Errors
/// A recurrent state that no memory could hold.
pub fn state_forms(graphs: &[Checked<'_>], max_tentative: usize) -> Result<Vec<StateForms>, CompileError> {
    let roles = Roles::of(graphs);
    let of = |(g, checked): (usize, &Checked<'_>)| {
        let states = checked.graph.states.iter().enumerate().filter(|(_, state)| state.alias.is_none());
        let rows = states.map(|(i, state)| RowForm::new(i, state, (g, state.name.as_str()), &roles)).collect();
        let slot = |state| {
            let size = recurrences::sizes(checked, state);
            size.and_then(|size| slot_bytes(size, max_tentative)).ok_or_else(|| too_large(state, "its value"))
        };
        Ok(StateForms { rows, slots: checked.graph.recurrent.iter().map(slot).collect::<Result<_, _>>()? })
    };
    graphs.iter().enumerate().map(of).collect()
}

/// Where a graph's states lie, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatePlaces {
    /// Those of rows, aliases included.
    pub(crate) rows: HashMap<String, StateSlot>,
    /// Indexes of the recurrent ones.
    pub(crate) recurrent: HashMap<String, usize>,
}

/// The state of one graph.
#[derive(Debug)]
pub(crate) struct StateLayout {
    /// Where its states lie.
    pub(crate) places: StatePlaces,
    /// State groups that it declares.
    pub(crate) writes: Range<usize>,
    /// State groups of other graphs that it sees.
    pub(crate) reads: Vec<usize>,
    /// Slots of its recurrent state, if it has any.
    pub(crate) slots: Option<SlotPool>,
}

/// The pools of all graphs' state groups, empty, and what each graph has in them.
pub(crate) fn layout(
    graphs: &[Checked<'_>],
    options: &CompileOptions,
) -> Result<(Vec<Pool>, Vec<StateLayout>), CompileError> {
    let roles = Roles::of(graphs);
    let (mut pools, mut layouts) = (Vec::new(), Vec::new());
    for (g, checked) in graphs.iter().enumerate() {
        let first = pools.len();
        let mut places = StatePlaces::default();
        pools.extend(graph_pools(g, checked.graph, first, &roles, options, &mut places)?);
        let slots = slots(checked, options, &mut places)?;
        layouts.push(StateLayout { places, writes: first..pools.len(), reads: Vec::new(), slots });
    }
    for (g, checked) in graphs.iter().enumerate() {
        for (state, owner, name) in aliases(checked.graph, graphs) {
            let Some(slot) = layouts[owner].places.rows.get(name).copied() else { continue };
            let layout = &mut layouts[g];
            layout.places.rows.insert(state.name.clone(), slot);
            if !layout.reads.contains(&slot.group) {
                layout.reads.push(slot.group);
            }
        }
    }
    Ok((pools, layouts))
}

/// The aliases of a graph: the state, which graph owns it, and its name there.
fn aliases<'a>(graph: &'a Graph, graphs: &[Checked<'_>]) -> Vec<(&'a State, usize, &'a str)> {
    let alias = |state: &'a State| {
        let alias = state.alias.as_ref()?;
        let owner = graphs.iter().position(|g| g.graph.name == alias.graph)?;
        Some((state, owner, alias.state.as_str()))
    };
    graph.states.iter().filter_map(alias).collect()
}

/// What ops do with states, by graph and name; what a graph does with an alias counts for the state behind it.
#[derive(Default)]
struct Roles<'a> {
    /// Scored against queries.
    keys: HashSet<(usize, &'a str)>,
    /// Keys of which whole pages are read: their rows are the fastest axis.
    paged: HashSet<(usize, &'a str)>,
    /// Read row by row: their heads lie in one run.
    rows: HashSet<(usize, &'a str)>,
    /// Read by attention alone, which can do with rotated heads.
    attended: HashSet<(usize, &'a str)>,
}

impl<'a> Roles<'a> {
    fn of(graphs: &'a [Checked<'a>]) -> Self {
        let (mut roles, mut chosen_from) = (Roles::default(), HashSet::new());
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
}

fn graph_pools(
    index: usize,
    graph: &Graph,
    first: usize,
    roles: &Roles<'_>,
    options: &CompileOptions,
    places: &mut StatePlaces,
) -> Result<Vec<Pool>, CompileError> {
    let form = |(i, s): (usize, &State)| RowForm::new(i, s, (index, s.name.as_str()), roles);
    let forms = graph.states.iter().enumerate().map(form);
    let types: Vec<KvType> = forms.map(|form| form.ty(options.k_type, options.v_type)).collect();
    for (state, ty) in graph.states.iter().zip(&types) {
        // Offsets of several states are added up below.
        if row_bytes(state, *ty).saturating_mul(PAGE_ROWS) > 1 << 40 {
            let why = format!("a page of {} × {} entries is too large", state.heads, state.dim);
            return Err(CompileError::State { state: state.name.clone(), why });
        }
    }
    let groups = state_groups(graph, PAGE_ROWS, |i| row_bytes(&graph.states[i], types[i]));
    let pool = |(g, group): (usize, StateGroup)| {
        let (mut offset, mut slots) = (0, Vec::new());
        for &i in &group.states {
            let state = &graph.states[i];
            let one_run = roles.rows.contains(&(index, state.name.as_str()));
            let (heads, dim) = if one_run { (1, state.width()) } else { (state.heads, state.dim) };
            let (stride, transposed) = (group.stride(), roles.paged.contains(&(index, state.name.as_str())));
            let slot = StateSlot { group: first + g, offset, heads, dim, ty: types[i], stride, transposed };
            offset += slot.heads * slot.head_bytes();
            places.rows.insert(state.name.clone(), slot);
            slots.push(slot);
        }
        Pool::new(group, slots)
    };
    Ok(groups.into_iter().enumerate().map(pool).collect())
}

fn row_bytes(state: &State, ty: KvType) -> usize {
    ty.head_bytes(state.dim).saturating_mul(state.heads)
}

fn slots(
    checked: &Checked<'_>,
    options: &CompileOptions,
    places: &mut StatePlaces,
) -> Result<Option<SlotPool>, CompileError> {
    let graph = checked.graph;
    let mut sizes = Vec::new();
    for (i, state) in graph.recurrent.iter().enumerate() {
        let size = recurrences::sizes(checked, state);
        sizes.push(size.ok_or_else(|| too_large(state, "its value"))?);
        places.recurrent.insert(state.name.clone(), i);
    }
    let Some(last) = graph.recurrent.last() else { return Ok(None) };
    let pool = SlotPool::new(&sizes, options.max_tentative).filter(|pool| pool.group().slot_bytes < 1 << 40);
    pool.map(Some).ok_or_else(|| too_large(last, "a slot with it and the states before it"))
}

fn too_large(state: &Recurrent, what: &str) -> CompileError {
    let why = format!("{what} is too large, {:?} entries", state.shape);
    CompileError::State { state: state.name.clone(), why }
}
