//! Lays a graph's states out in the pages of their groups.

use std::collections::{HashMap, HashSet};

use bantam_backend::{CompileError, CompileOptions, KvType, StateGroup, state_groups};
use bantam_graph::{Graph, Op, State, StateType};

use crate::pool::{PAGE_TOKENS, Pool, StateSlot};

/// The pools of a graph's state groups, empty, and where each state lies, by name.
pub(crate) fn layout(
    graph: &Graph,
    options: &CompileOptions,
) -> Result<(Vec<Pool>, HashMap<String, StateSlot>), CompileError> {
    let keys: HashSet<&str> = graph.nodes.iter().filter_map(|n| key_state(&n.op)).collect();
    let is_key = |state: &State| keys.contains(state.name.as_str());
    let types: Vec<KvType> = graph.states.iter().map(|s| element(s, is_key(s), options)).collect();
    for (state, ty) in graph.states.iter().zip(&types) {
        let bytes = state.width().checked_mul(ty.bytes()).and_then(|row| row.checked_mul(PAGE_TOKENS));
        // Offsets of several states are added up below.
        if bytes.is_none_or(|b| b > 1 << 40) {
            let why = format!("a page of {} × {} entries is too large", state.heads, state.dim);
            return Err(CompileError::State { state: state.name.clone(), why });
        }
    }
    let groups = state_groups(graph, PAGE_TOKENS, |i| graph.states[i].width() * types[i].bytes());
    let mut slots = HashMap::new();
    let pools = groups.into_iter().enumerate().map(|(g, group)| pool(graph, g, group, &types, is_key, &mut slots));
    Ok((pools.collect(), slots))
}

fn pool(
    graph: &Graph,
    index: usize,
    group: StateGroup,
    types: &[KvType],
    is_key: impl Fn(&State) -> bool,
    slots: &mut HashMap<String, StateSlot>,
) -> Pool {
    let (mut offset, mut places) = (0, Vec::new());
    for &i in &group.states {
        let state = &graph.states[i];
        let slot = StateSlot {
            group: index,
            offset,
            heads: state.heads,
            dim: state.dim,
            ty: types[i],
            transposed: is_key(state),
        };
        offset += slot.heads * slot.head_bytes();
        slots.insert(state.name.clone(), slot);
        places.push(slot);
    }
    Pool::new(group, places)
}

fn key_state(op: &Op) -> Option<&str> {
    match op {
        Op::Attention(o) => Some(&o.k_state),
        _ => None,
    }
}

fn element(state: &State, is_key: bool, options: &CompileOptions) -> KvType {
    match state.dtype {
        StateType::F32 => KvType::F32,
        StateType::Kv if is_key => options.k_type,
        StateType::Kv => options.v_type,
    }
}
