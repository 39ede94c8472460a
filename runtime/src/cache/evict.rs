//! Giving up cached state that nobody uses.

use std::{cmp::Ordering, collections::HashMap, fmt::Debug, sync::Arc};

use super::tree::{Node, NodeId, Tree, first_page};

/// Tokens at the end of a conversation, shared with no other, that are soon computed again.
const SHORT_END: usize = 256;

/// So many of these are kept whatever their memory is.
const SHORT_ENDS_KEPT: usize = 32;

/// What can be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateKind {
    /// A resume point inside a conversation that has gone on since: only its window pages go, or the recurrent value of an
    /// interim one.
    Superseded,
    /// The end of a prefix.
    Leaf,
    /// A recurrent value, where slots for others are missing. The pages before it stay as long as another needs them.
    Attachment,
}

/// Cached state that no sequence uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What would be lost.
    pub kind: CandidateKind,
    /// When a request last came through, or went on from the attachment; a count, not a time.
    pub last_used: u64,
    /// Tokens from the start of the sequence to its end.
    pub tokens: usize,
}

/// Decides what goes first.
pub trait EvictionPolicy: Send + Debug {
    /// Orders two candidates: the lesser goes first.
    fn order(&self, a: &Candidate, b: &Candidate) -> Ordering;
}

/// Superseded resume points, then the least recently used leaf or attachment, the longer one of two.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastRecentlyUsed;

impl EvictionPolicy for LeastRecentlyUsed {
    fn order(&self, a: &Candidate, b: &Candidate) -> Ordering {
        let key = |c: &Candidate| (c.kind != CandidateKind::Superseded, c.last_used);
        key(a).cmp(&key(b)).then(b.tokens.cmp(&a.tokens))
    }
}

impl Tree {
    /// Gives up one candidate, for `missing` pages of each group. Returns the tokens whose state is lost, or `None` if
    /// there is no candidate.
    pub(super) fn evict(&mut self, policy: &dyn EvictionPolicy, missing: &[usize]) -> Option<usize> {
        let (id, candidate) = self
            .live()
            .filter_map(|(id, _)| Some((id, self.candidate(id, missing)?)))
            .min_by(|(_, a), (_, b)| policy.order(a, b))?;
        match candidate.kind {
            CandidateKind::Leaf if self.resumes_anywhere() => Some(self.shorten(id, missing)),
            CandidateKind::Leaf => Some(self.remove(id)),
            CandidateKind::Superseded | CandidateKind::Attachment => {
                self.supersede(id);
                Some(0)
            }
        }
    }

    /// Gives up an attachment whose slot nobody else has, or only the sequence whose value is in slot `own`. Returns the
    /// tokens whose state is lost, or `None` if there is no such attachment.
    pub(super) fn evict_attachment(&mut self, policy: &dyn EvictionPolicy, own: Option<u32>) -> Option<usize> {
        let mut outside: HashMap<u32, usize> = HashMap::new();
        for slot in self.nodes.iter().filter_map(|node| Some(&node.attachment.as_ref()?.value.slot)) {
            let references = outside.entry(slot.get()).or_insert_with(|| slot.references());
            *references = references.saturating_sub(1);
        }
        let candidate = |id: NodeId| {
            let attachment = self.nodes[id].attachment.as_ref()?;
            let slot = attachment.value.slot.get();
            let node = &self.nodes[id];
            let kind = match node.interim && !node.children.is_empty() {
                true => CandidateKind::Superseded,
                false => CandidateKind::Attachment,
            };
            let tokens = node.end();
            let helps = outside.get(&slot).is_some_and(|&others| others == usize::from(own == Some(slot)));
            helps.then_some((id, Candidate { kind, last_used: attachment.last_used, tokens }))
        };
        let (id, _) = self.live().filter_map(|(id, _)| candidate(id)).min_by(|(_, a), (_, b)| policy.order(a, b))?;
        let node = &self.nodes[id];
        if node.children.is_empty() && node.pins() == 0 {
            return Some(self.remove(id));
        }
        self.supersede(id);
        Some(0)
    }

    /// Gives up the end of a conversation that is soon computed again, if there are more such than are worth keeping. Returns
    /// the tokens whose state is lost.
    pub(super) fn evict_short_end(&mut self, policy: &dyn EvictionPolicy) -> Option<usize> {
        let is_short = |node: &Node| node.children.is_empty() && node.pins() == 0 && node.tokens.len() < SHORT_END;
        let candidate =
            |node: &Node| Candidate { kind: CandidateKind::Leaf, last_used: node.last_used, tokens: node.end() };
        let short = || self.live().filter(|(_, node)| is_short(node));
        if short().count() <= SHORT_ENDS_KEPT {
            return None;
        }
        let (id, _) = short().min_by(|(_, a), (_, b)| policy.order(&candidate(a), &candidate(b)))?;
        Some(self.remove(id))
    }

    /// Gives up going on from a node's end.
    fn supersede(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        node.resume = false;
        node.interim = false;
        node.attachment = None;
        let end = node.end();
        self.release_windows(id, end);
    }

    /// Gives up all that is not in use.
    pub(super) fn clear(&mut self) {
        let leaves = |tree: &Tree| -> Vec<NodeId> {
            tree.live().filter(|(_, node)| node.children.is_empty() && node.pins() == 0).map(|(id, _)| id).collect()
        };
        let mut found = leaves(self);
        while !found.is_empty() {
            for id in found {
                // An earlier removal may have taken this one along.
                if self.nodes[id].parent.is_some() {
                    self.remove(id);
                }
            }
            found = leaves(self);
        }
    }

    fn candidate(&self, id: NodeId, missing: &[usize]) -> Option<Candidate> {
        let node = &self.nodes[id];
        let kind = match node.children.len() {
            0 => CandidateKind::Leaf,
            1 if node.resume && !self.resumes_anywhere() => CandidateKind::Superseded,
            _ => return None,
        };
        let helps = |g: usize| missing.get(g).is_some_and(|&n| n > 0) && node.pages[g].iter().any(Option::is_some);
        let worth = kind == CandidateKind::Leaf || self.windows().any(|(g, _)| helps(g));
        (node.pins() == 0 && worth).then(|| Candidate { kind, last_used: node.last_used, tokens: node.end() })
    }

    /// Drops the last pages of a leaf, as many as are missing.
    fn shorten(&mut self, id: NodeId, missing: &[usize]) -> usize {
        let node = &mut self.nodes[id];
        let end = node.end();
        let kept = self
            .groups
            .iter()
            .zip(missing)
            .filter(|(_, missing)| **missing > 0)
            .map(|(group, &missing)| group.pages(end).saturating_sub(missing) * group.page_tokens);
        let kept = kept.min().unwrap_or(0);
        if kept <= node.start {
            return self.remove(id);
        }
        node.tokens.truncate(kept - node.start);
        for (group, pages) in self.groups.iter().zip(&mut node.pages) {
            pages.truncate(group.pages(kept) - node.start / group.page_tokens);
        }
        end - kept
    }

    /// Removes a leaf, and ancestors that nothing can resume at without it. Returns the tokens removed.
    fn remove(&mut self, leaf: NodeId) -> usize {
        let (mut removed, end) = (0, self.nodes[leaf].end());
        let mut next = Some(leaf);
        while let Some(id) = next {
            let (node, parent) = self.detach(id);
            removed += node.tokens.len();
            next = parent.filter(|&id| {
                let node = &self.nodes[id];
                node.children.is_empty() && node.pins() == 0 && !node.resume && !self.resumes_anywhere()
            });
            if let (None, Some(parent)) = (next, parent) {
                self.share_page_of_child(parent);
                self.release_windows(parent, end);
            }
        }
        removed
    }

    /// Lets a node's last page be that of a child: it may have been that of a child now gone.
    fn share_page_of_child(&mut self, id: NodeId) {
        let end = self.nodes[id].end();
        let Some(&child) = self.nodes[id].children.values().next() else { return };
        for (g, group) in Arc::clone(&self.groups).iter().enumerate() {
            if let Some(Some(page)) = self.nodes[child].pages[g].first().cloned() {
                self.share_page(Some(id), g, end / group.page_tokens, &page);
            }
        }
    }

    /// Drops window pages that were kept for a resume point at token `gone`, which is no more, at the end of node `id` or
    /// behind it; those that another resume point needs stay.
    pub(super) fn release_windows(&mut self, id: NodeId, gone: usize) {
        let kept: Vec<(usize, usize, usize)> =
            self.windows().map(|(g, group)| (g, first_page(group, gone), group.page_tokens)).collect();
        let Some(reach) = kept.iter().map(|(_, first, page_tokens)| first * page_tokens).min() else { return };
        let mut next = Some(id);
        while let Some(at) = next.filter(|&at| self.nodes[at].end() > reach && self.nodes[at].parent.is_some()) {
            if let Some(end) = self.next_resume_point(at) {
                for &(g, from, page_tokens) in &kept {
                    let needed = first_page(&self.groups[g], end);
                    let node = &mut self.nodes[at];
                    let first = node.start / page_tokens;
                    let passed = node.pages[g].iter_mut().take(needed.saturating_sub(first));
                    passed.skip(from.saturating_sub(first)).for_each(|page| *page = None);
                }
            }
            next = self.nodes[at].parent;
        }
    }

    /// Where the first resume point at the end of a node or below it is.
    pub(super) fn next_resume_point(&self, id: NodeId) -> Option<usize> {
        let mut next: Option<usize> = None;
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let node = &self.nodes[id];
            if next.is_some_and(|end| end <= node.end()) {
                continue;
            }
            if node.is_resume_point() {
                next = Some(node.end());
            } else {
                open.extend(node.children.values());
            }
        }
        next
    }
}
