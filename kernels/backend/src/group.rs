//! State groups: states that grow alike share one pool, one page size and one table.

use bantam_graph::{Graph, StateKind};

/// States of rows of one kind. A page holds the same number of rows of each of them: those of `page_tokens` consecutive
/// tokens.
///
/// A sequence's table has page `i` at entry `i`, for all kinds. A page that holds its first `t` tokens holds `t` rows of
/// each state, or `⌊t / stride⌋` where the states are strided; copying, saving and loading the first `t` tokens of a page
/// means these rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateGroup {
    /// How its states grow.
    pub kind: StateKind,
    /// Tokens of a page, a whole number of strides. Page `i` of a sequence holds its tokens `i·page_tokens ..`.
    pub page_tokens: usize,
    /// Bytes of a page in the pool.
    pub page_bytes: usize,
    /// Indexes of its states in [`Graph::states`].
    pub states: Vec<usize>,
}

/// All recurrent states of a graph. One slot holds them for one sequence, as they are after some number of tokens, with
/// room for the inputs of tentative rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecurrentGroup {
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// Indexes of its states in [`Graph::recurrent`].
    pub states: Vec<usize>,
}

/// Groups a graph's states by kind, in order of first appearance; a page holds `page_rows` rows, `bytes(state)` is the size
/// of one. Aliases have no pages of their own and are in no group.
pub fn state_groups(graph: &Graph, page_rows: usize, bytes: impl Fn(usize) -> usize) -> Vec<StateGroup> {
    let mut groups: Vec<StateGroup> = Vec::new();
    for (i, state) in graph.states.iter().enumerate().filter(|(_, state)| state.alias.is_none()) {
        let page_bytes = bytes(i).saturating_mul(page_rows);
        match groups.iter_mut().find(|g| g.kind == state.kind) {
            Some(g) => {
                g.states.push(i);
                g.page_bytes = g.page_bytes.saturating_add(page_bytes);
            }
            None => groups.push(StateGroup { states: vec![i], ..StateGroup::new(state.kind, page_rows, bytes(i)) }),
        }
    }
    groups
}

/// Tokens that a row of a state of this kind stands for.
fn stride(kind: StateKind) -> usize {
    match kind {
        StateKind::PerToken | StateKind::Window { .. } => 1,
        StateKind::Strided { stride } => stride.max(1),
    }
}

impl StateGroup {
    /// A group whose pages hold so many rows of so many bytes, of no state yet.
    pub fn new(kind: StateKind, page_rows: usize, row_bytes: usize) -> Self {
        let page_tokens = page_rows.saturating_mul(stride(kind));
        StateGroup { kind, page_tokens, page_bytes: row_bytes.saturating_mul(page_rows), states: Vec::new() }
    }

    /// Tokens that a row stands for.
    pub fn stride(&self) -> usize {
        stride(self.kind)
    }

    /// Rows of a page.
    pub fn page_rows(&self) -> usize {
        self.page_tokens / self.stride()
    }

    /// First token whose row a token at `position` still needs.
    pub fn first_needed(&self, position: usize) -> usize {
        match self.kind {
            StateKind::PerToken | StateKind::Strided { .. } => 0,
            StateKind::Window { len } => position.saturating_add(1).saturating_sub(len),
        }
    }

    /// Pages that hold tokens `0..tokens`.
    pub fn pages(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens)
    }
}

#[cfg(test)]
mod tests {
    use bantam_graph::{Alias, State, StateType};

    use super::*;

    fn state(name: &str, kind: StateKind) -> State {
        State { name: name.into(), heads: 1, dim: 4, kind, dtype: StateType::F32, alias: None }
    }

    fn graph(states: Vec<State>) -> Graph {
        Graph { states, ..Graph::default() }
    }

    #[test]
    fn pages_of_strided_states_hold_whole_strides() {
        let kind = |stride| StateKind::Strided { stride };
        let graph = graph(vec![state("a", kind(4)), state("b", kind(48)), state("c", kind(100)), state("d", kind(4))]);
        let groups = state_groups(&graph, 32, |_| 10);
        let seen: Vec<_> = groups.iter().map(|g| (g.page_tokens, g.page_bytes, g.states.as_slice())).collect();
        assert_eq!(seen, [(128, 640, &[0, 3][..]), (1536, 320, &[1]), (3200, 320, &[2])]);
        assert!(groups.iter().all(|g| g.first_needed(99) == 0 && g.pages(100) == 100_usize.div_ceil(g.page_tokens)));
    }

    #[test]
    fn aliases_take_no_pages() {
        let mut alias = state("a", StateKind::PerToken);
        alias.alias = Some(Alias { graph: "trunk".into(), state: "k.0".into() });
        let groups = state_groups(&graph(vec![alias, state("b", StateKind::Window { len: 8 })]), 32, |_| 10);
        assert_eq!(groups.len(), 1);
        assert_eq!((groups[0].states.as_slice(), groups[0].first_needed(9)), (&[1][..], 2));
    }
}
