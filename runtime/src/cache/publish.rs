//! Showing a running sequence's state to others.

use std::sync::Arc;

use bantam_graph::StateKind;

use super::{
    lease::{Cursor, Lease},
    slots::Attachment,
    state_cache::Resume,
    tree::{Node, NodeId, Tree, first_page},
};

impl Tree {
    /// Adds the pages of a lease under `tokens`, all of which the lease has computed, and lets it stand at their end.
    pub(super) fn publish(&mut self, lease: &mut Lease, tokens: &[u32], resume: Resume) {
        let known = lease.published;
        let mut at = match &lease.cursor {
            Some(cursor) if known > 0 => cursor.node,
            _ => self.root(lease.namespace),
        };
        let mut reached = known;
        while reached < tokens.len() {
            let rest = &tokens[reached..];
            let Some((child, common)) = self.child(at, rest) else {
                at = self.append(at, rest, lease);
                break;
            };
            reached += common;
            at = if reached < self.nodes[child].end() { self.split(child, reached) } else { child };
            self.deduplicate(at, lease);
        }
        lease.seal(known, tokens.len());
        let now = self.tick();
        let node = &mut self.nodes[at];
        node.last_used = now;
        let keep = resume != Resume::Passing;
        if keep && tokens.len() == lease.len() && node.attachment.is_none() {
            node.attachment = lease.value().map(|value| Attachment { value, last_used: now });
            self.additions += u64::from(node.attachment.is_some());
        }
        if keep && (!self.recurrent || node.attachment.is_some()) {
            node.interim = resume == Resume::Interim && (node.interim || !node.resume);
            node.resume = true;
        }
        if node.is_resume_point() {
            self.keep_window(at, lease);
        }
        lease.cursor = Some(Cursor { node: at, _pin: Arc::clone(&self.nodes[at].pin) });
        lease.published = tokens.len();
    }

    /// Adds tokens behind a node that has no child for them.
    fn append(&mut self, at: NodeId, tokens: &[u32], lease: &Lease) -> NodeId {
        self.additions += 1;
        let start = self.nodes[at].end();
        if self.can_grow(at, lease) {
            self.nodes[at].tokens.extend_from_slice(tokens);
            self.replace_pages(at, start, lease);
            self.release_windows(at, start);
            return at;
        }
        let pages = vec![Vec::new(); self.groups.len()];
        let child = self.add(Node { parent: Some(at), start, tokens: tokens.to_vec(), pages, ..Node::default() });
        self.replace_pages(child, start, lease);
        self.nodes[at].children.extend(tokens.first().map(|&token| (token, child)));
        self.release_windows(at, start);
        child
    }

    /// Whether a leaf may become longer, so that its end is no resume point any more and no other lease stands on it.
    fn can_grow(&self, at: NodeId, lease: &Lease) -> bool {
        let node = &self.nodes[at];
        let own = lease.published > 0 && lease.cursor.as_ref().is_some_and(|cursor| cursor.node == at);
        node.parent.is_some()
            && node.children.is_empty()
            && node.pins() == usize::from(own)
            && (self.resumes_anywhere() || !node.resume)
    }

    /// Takes a node's pages from the one that holds token `from` on from a lease.
    fn replace_pages(&mut self, id: NodeId, from: usize, lease: &Lease) {
        let node = &mut self.nodes[id];
        let end = node.end();
        for (g, (group, pages)) in self.groups.iter().zip(&mut node.pages).enumerate() {
            let indexes = from / group.page_tokens..group.pages(end);
            pages.truncate(indexes.start - node.start / group.page_tokens);
            pages.extend(indexes.map(|index| lease.page_for(g, index, end)));
        }
        let parent = self.nodes[id].parent;
        for (g, group) in Arc::clone(&self.groups).iter().enumerate() {
            let index = from / group.page_tokens;
            if let Some(page) = lease.page_for(g, index, from) {
                self.share_page(parent, g, index, &page);
            }
        }
    }

    /// Lets a lease use a node's complete pages instead of equal ones that it computed at the same time.
    fn deduplicate(&self, id: NodeId, lease: &mut Lease) {
        let node = &self.nodes[id];
        for (g, group) in self.groups.iter().enumerate() {
            if !matches!(group.kind, StateKind::Window { .. }) {
                let indexes = node.start / group.page_tokens..node.end() / group.page_tokens;
                for (index, page) in indexes.zip(&node.pages[g]) {
                    page.iter().for_each(|page| lease.adopt(g, index, page));
                }
            }
        }
    }

    /// Adds the window pages before a node's end that the path lacks and the lease has.
    fn keep_window(&mut self, id: NodeId, lease: &Lease) {
        let end = self.nodes[id].end();
        let groups = Arc::clone(&self.groups);
        for (g, group) in groups.iter().enumerate().filter(|(_, group)| matches!(group.kind, StateKind::Window { .. }))
        {
            let first = first_page(group, end);
            let (mut at, mut behind) = (id, group.pages(end));
            // Each index belongs to the deepest node of the path that overlaps it.
            while behind > first {
                let node = &mut self.nodes[at];
                let start = node.start / group.page_tokens;
                for index in start.max(first)..behind {
                    if let Some(entry @ None) = node.pages[g].get_mut(index - start) {
                        *entry = lease.page_for(g, index, end);
                    }
                }
                behind = behind.min(start);
                let Some(parent) = node.parent else { break };
                at = parent;
            }
        }
    }
}
