//! State groups: states that grow alike share one pool, one page size and one table.

use bantam_graph::{Graph, StateKind};

/// States of one kind. A page holds `page_tokens` consecutive tokens of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateGroup {
    /// How its states grow.
    pub kind: StateKind,
    /// Tokens of a page. Page `i` of a sequence holds its tokens `i·page_tokens ..`.
    pub page_tokens: usize,
    /// Bytes of a page in the pool.
    pub page_bytes: usize,
    /// Indexes of its states in [`Graph::states`].
    pub states: Vec<usize>,
}

/// Groups a graph's states by kind, in order of first appearance; `bytes(state)` is the size of one token's row.
pub fn state_groups(graph: &Graph, page_tokens: usize, bytes: impl Fn(usize) -> usize) -> Vec<StateGroup> {
    let mut groups: Vec<StateGroup> = Vec::new();
    for (i, state) in graph.states.iter().enumerate() {
        let page_bytes = bytes(i).saturating_mul(page_tokens);
        match groups.iter_mut().find(|g| g.kind == state.kind) {
            Some(g) => {
                g.states.push(i);
                g.page_bytes = g.page_bytes.saturating_add(page_bytes);
            }
            None => groups.push(StateGroup { kind: state.kind, page_tokens, page_bytes, states: vec![i] }),
        }
    }
    groups
}

impl StateGroup {
    /// First token whose row a token at `position` still needs.
    pub fn first_needed(&self, position: usize) -> usize {
        match self.kind {
            StateKind::PerToken => 0,
            StateKind::Window { len } => (position + 1).saturating_sub(len),
        }
    }

    /// Pages that hold tokens `0..tokens`.
    pub fn pages(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens)
    }
}
