//! Lays the states of a model's graphs out: rows in the pages of their groups, recurrent values in slots.

use std::{collections::HashMap, ops::Range};

use bantam_backend::{CompileError, CompileOptions, KvType, RowForm, StateGroup, StateRoles, aliases, state_groups};
use bantam_graph::{Checked, Graph, Recurrent, State};

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

/// What the states of graphs take, each graph's own.
///
/// # Errors
/// A recurrent state that no memory could hold.
pub fn state_forms(graphs: &[Checked<'_>], max_tentative: usize) -> Result<Vec<StateForms>, CompileError> {
    let roles = StateRoles::of(graphs);
    let of = |(g, checked): (usize, &Checked<'_>)| {
        let states = checked.graph.states.iter().enumerate().filter(|(_, state)| state.alias.is_none());
        let rows = states.map(|(i, state)| RowForm::new(i, state, (g, state.name.as_str()), &roles)).collect();
        let slot = |(state, size): (_, Option<_>)| {
            size.and_then(|size| slot_bytes(size, max_tentative)).ok_or_else(|| too_large(state, "its value"))
        };
        let slots = checked.graph.recurrent.iter().zip(recurrences::sizes(checked));
        Ok(StateForms { rows, slots: slots.map(slot).collect::<Result<_, _>>()? })
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
    let roles = StateRoles::of(graphs);
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

fn graph_pools(
    index: usize,
    graph: &Graph,
    first: usize,
    roles: &StateRoles<'_>,
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
    for (i, (state, size)) in graph.recurrent.iter().zip(recurrences::sizes(checked)).enumerate() {
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
