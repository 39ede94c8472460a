//! Finding the longest prefix of some tokens whose state is cached, and leasing it.

use std::sync::Arc;

use bantam_backend::StateGroup;

use super::{
    lease::{Cursor, Lease},
    pool::Page,
    slots::RecurrentLease,
    state_cache::Acquired,
    tree::{Path, Tree, first_page},
};

/// The pages of one group along a path.
struct Cover<'a> {
    group: &'a StateGroup,
    /// By table index: the page, and the token behind the last row of the path that it holds.
    pages: Vec<Option<(&'a Page, usize)>>,
    /// By table index: the first of the complete pages without a gap that end with the page before.
    runs: Vec<usize>,
}

impl<'a> Cover<'a> {
    fn new(tree: &'a Tree, path: &Path, group_index: usize, tokens: usize) -> Self {
        let group = &tree.groups[group_index];
        let mut pages = vec![None; group.pages(tokens)];
        for node in path.nodes.iter().map(|&id| &tree.nodes[id]) {
            let first = node.start / group.page_tokens;
            // A deeper node's page replaces its ancestor's: it holds more rows of the path.
            for ((index, entry), page) in pages.iter_mut().enumerate().skip(first).zip(&node.pages[group_index]) {
                if let Some(page) = page {
                    *entry = Some((page, node.end().min((index + 1) * group.page_tokens)));
                }
            }
        }
        let mut runs = Vec::with_capacity(pages.len());
        let mut run = 0;
        for (index, page) in pages.iter().enumerate() {
            runs.push(run);
            if page.is_none_or(|(_, end)| end < (index + 1) * group.page_tokens) {
                run = index + 1;
            }
        }
        Cover { group, pages, runs }
    }

    /// The most tokens, at most `limit`, after which this group can go on.
    fn longest(&self, limit: usize) -> usize {
        let mut tokens = limit;
        while tokens > 0 && first_page(self.group, tokens) < self.group.pages(tokens) {
            let last = self.group.pages(tokens) - 1;
            if let Some((_, end)) = self.pages[last] {
                let reached = tokens.min(end);
                if self.runs[last] <= first_page(self.group, reached) {
                    return reached;
                }
            }
            tokens = last * self.group.page_tokens;
        }
        tokens
    }
}

/// The most tokens, at most `limit`, after which all groups can go on.
fn longest(covers: &[Cover<'_>], limit: usize) -> usize {
    let mut len = limit;
    loop {
        let shorter = covers.iter().fold(len, |len, cover| cover.longest(len));
        if shorter == len {
            return len;
        }
        len = shorter;
    }
}

impl Tree {
    /// Leases the longest prefix of `tokens`, of at most `at_most`, that every group can go on after. Tells how many tokens
    /// are known to the tree as well, whether or not their state is.
    pub(super) fn acquire(&mut self, namespace: u64, tokens: &[u32], at_most: usize) -> Acquired {
        let path = self.walk(namespace, tokens);
        let limit = path.tokens.min(at_most);
        let covers: Vec<Cover<'_>> = (0..self.groups.len()).map(|g| Cover::new(self, &path, g, limit)).collect();
        let (len, recurrent) = match self.recurrent {
            false => (longest(&covers, limit), None),
            true => {
                let found = path.nodes.iter().rev().find_map(|&id| {
                    let (end, attachment) = (self.nodes[id].end(), self.nodes[id].attachment.as_ref()?);
                    (end <= limit && longest(&covers, end) == end).then(|| (end, attachment.value.clone()))
                });
                let (len, value) = found.map_or((0, None), |(end, value)| (end, Some(value)));
                (len, Some(RecurrentLease::starting_at(value)))
            }
        };
        let page = |group: usize, index: usize| covers.get(group)?.pages.get(index)?.map(|(page, _)| page.clone());
        let mut lease = Lease::shared(Arc::clone(&self.groups), namespace, len, recurrent, page);
        let other = self.behind(namespace, &path).filter(|_| path.tokens < tokens.len());
        self.stand(&mut lease, &path);
        Acquired { lease, branch: path.tokens, other }
    }

    /// Pins the node where a lease's tokens end, which is made if they end inside one.
    fn stand(&mut self, lease: &mut Lease, path: &Path) {
        let now = self.tick();
        for &id in &path.nodes {
            let (start, end) = (self.nodes[id].start, self.nodes[id].end());
            if start >= lease.len() {
                break;
            }
            let node = if end > lease.len() { self.split(id, lease.len()) } else { id };
            self.nodes[node].last_used = now;
            if end >= lease.len() {
                self.nodes[node].resume = true;
                self.nodes[node].interim = false;
                self.nodes[node].attachment.iter_mut().for_each(|attachment| attachment.last_used = now);
                lease.cursor = Some(Cursor { node, _pin: Arc::clone(&self.nodes[node].pin) });
                lease.published = lease.len();
            }
        }
    }
}
