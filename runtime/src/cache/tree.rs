//! The radix tree over tokens: nodes, walking, splitting, removing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bantam_backend::StateGroup;
use bantam_graph::StateKind;

use super::{pool::Page, slots::Attachment};

/// Index of a node. A pinned node keeps its index.
pub(super) type NodeId = usize;

/// Held by each lease that stands on a node.
pub(super) type Pin = Arc<()>;

/// First page that a sequence of `len` tokens needs to go on.
pub(super) fn first_page(group: &StateGroup, len: usize) -> usize {
    group.first_needed(len).min(len) / group.page_tokens
}

/// Tokens that two slices begin with alike.
fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// An edge of the tree with what is at its end. Roots have no tokens.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) parent: Option<NodeId>,
    /// Index in the sequence of its first token.
    pub(super) start: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) children: BTreeMap<u32, NodeId>,
    /// Per group, the pages that overlap `start..end`, the first being page `start / page_tokens`.
    pub(super) pages: Vec<Vec<Option<Page>>>,
    pub(super) pin: Pin,
    /// Whether what a sequence needs to go on from its end is kept once it has children.
    pub(super) resume: bool,
    /// Whether its end is kept only as long as no memory is missing.
    pub(super) interim: bool,
    /// The recurrent value at its end.
    pub(super) attachment: Option<Attachment>,
    /// When a request last came through.
    pub(super) last_used: u64,
}

impl Node {
    /// Index in the sequence behind its last token.
    pub(super) fn end(&self) -> usize {
        self.start + self.tokens.len()
    }

    /// Leases that stand on it.
    pub(super) fn pins(&self) -> usize {
        Arc::strong_count(&self.pin) - 1
    }

    /// Whether a sequence ending here can be taken up again.
    pub(super) fn is_resume_point(&self) -> bool {
        self.resume || self.children.is_empty()
    }
}

/// The nodes that some tokens lead through, the root not counted; the last may match in part.
pub(super) struct Path {
    pub(super) nodes: Vec<NodeId>,
    /// Tokens that match.
    pub(super) tokens: usize,
}

/// One radix tree per namespace, in one arena.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) groups: Arc<[StateGroup]>,
    pub(super) nodes: Vec<Node>,
    unused: Vec<NodeId>,
    pub(super) roots: HashMap<u64, NodeId>,
    pub(super) clock: u64,
    /// How often something was added.
    pub(super) additions: u64,
    /// Whether the model has recurrent state, so that a sequence can go on from attachments only.
    pub(super) recurrent: bool,
}

impl Tree {
    pub(super) fn new(groups: Arc<[StateGroup]>) -> Self {
        Tree {
            groups,
            nodes: Vec::new(),
            unused: Vec::new(),
            roots: HashMap::new(),
            clock: 0,
            additions: 0,
            recurrent: false,
        }
    }

    /// Groups whose older rows are dropped.
    pub(super) fn windows(&self) -> impl Iterator<Item = (usize, &StateGroup)> {
        self.groups.iter().enumerate().filter(|(_, group)| matches!(group.kind, StateKind::Window { .. }))
    }

    /// Whether a sequence can be resumed at any token of a node, not only at some.
    pub(super) fn resumes_anywhere(&self) -> bool {
        !self.recurrent && self.windows().next().is_none()
    }

    /// Ids of all nodes but roots.
    pub(super) fn live(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.parent.is_some())
    }

    /// The next moment.
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The root of a namespace, made if there is none.
    pub(super) fn root(&mut self, namespace: u64) -> NodeId {
        if let Some(&root) = self.roots.get(&namespace) {
            return root;
        }
        let root = self.add(Node { pages: vec![Vec::new(); self.groups.len()], ..Node::default() });
        self.roots.insert(namespace, root);
        root
    }

    /// The namespace that a root belongs to.
    #[cfg(test)]
    pub(super) fn namespace_of(&self, root: NodeId) -> Option<u64> {
        self.roots.iter().find(|(_, node)| **node == root).map(|(namespace, _)| *namespace)
    }

    pub(super) fn add(&mut self, node: Node) -> NodeId {
        match self.unused.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// The child that `tokens` lead to, and how many of them it shares.
    pub(super) fn child(&self, node: NodeId, tokens: &[u32]) -> Option<(NodeId, usize)> {
        let child = *self.nodes[node].children.get(tokens.first()?)?;
        Some((child, common_prefix(&self.nodes[child].tokens, tokens)))
    }

    /// Follows tokens from the root as far as they match.
    pub(super) fn walk(&self, namespace: u64, tokens: &[u32]) -> Path {
        let mut path = Path { nodes: Vec::new(), tokens: 0 };
        let Some(&root) = self.roots.get(&namespace) else { return path };
        let mut at = root;
        while let Some((child, common)) = self.child(at, &tokens[path.tokens..]) {
            path.nodes.push(child);
            path.tokens += common;
            at = child;
            if common < self.nodes[child].tokens.len() {
                break;
            }
        }
        path
    }

    /// The token that follows a path in the tree; of several the one whose node was used last.
    pub(super) fn behind(&self, namespace: u64, path: &Path) -> Option<u32> {
        let last = path.nodes.last().or_else(|| self.roots.get(&namespace))?;
        let node = &self.nodes[*last];
        let used_last = || node.children.iter().max_by_key(|(_, child)| self.nodes[**child].last_used);
        node.tokens.get(path.tokens - node.start).or_else(|| used_last().map(|(token, _)| token)).copied()
    }

    /// Splits a node before token `at` of the sequence, inside it. The lower part keeps the id and the pins; the id of
    /// the upper part is returned.
    pub(super) fn split(&mut self, id: NodeId, at: usize) -> NodeId {
        let groups = Arc::clone(&self.groups);
        let lower = &mut self.nodes[id];
        let rest = lower.tokens.split_off(at - lower.start);
        let mut upper = Node {
            parent: lower.parent,
            start: lower.start,
            tokens: std::mem::replace(&mut lower.tokens, rest),
            last_used: lower.last_used,
            ..Node::default()
        };
        for (group, pages) in groups.iter().zip(&mut lower.pages) {
            let first = lower.start / group.page_tokens;
            upper.pages.push(pages.iter().take(group.pages(at) - first).cloned().collect());
            pages.drain(..at / group.page_tokens - first);
        }
        lower.start = at;
        let below = lower.tokens.first().copied();
        upper.children.extend(below.map(|token| (token, id)));
        let (parent, above) = (upper.parent, upper.tokens.first().copied());
        let upper = self.add(upper);
        self.nodes[id].parent = Some(upper);
        if let (Some(parent), Some(token)) = (parent, above) {
            self.nodes[parent].children.insert(token, upper);
        }
        upper
    }

    /// Lets a node and those before it use a page of theirs that also holds what comes behind them: another copy of
    /// their rows would be a page more.
    pub(super) fn share_page(&mut self, last: Option<NodeId>, group: usize, index: usize, page: &Page) {
        let page_tokens = self.groups[group].page_tokens;
        let mut next = last;
        while let Some(at) = next.filter(|&at| self.nodes[at].end() > index * page_tokens) {
            let node = &mut self.nodes[at];
            if let Some(Some(held)) = node.pages[group].get_mut(index - node.start / page_tokens) {
                held.clone_from(page);
            }
            next = node.parent;
        }
    }

    /// Takes a leaf out of the tree, and its root with it if nothing is left. Returns the node and its parent, unless
    /// that was such a root.
    pub(super) fn detach(&mut self, id: NodeId) -> (Node, Option<NodeId>) {
        let node = std::mem::take(&mut self.nodes[id]);
        self.unused.push(id);
        let Some(parent) = node.parent else { return (node, None) };
        if let Some(token) = node.tokens.first() {
            self.nodes[parent].children.remove(token);
        }
        if self.nodes[parent].parent.is_some() {
            return (node, Some(parent));
        }
        if self.nodes[parent].children.is_empty() {
            self.roots.retain(|_, root| *root != parent);
            self.nodes[parent] = Node::default();
            self.unused.push(parent);
        }
        (node, None)
    }
}
