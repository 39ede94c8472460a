//! A device whose every row remembers the tokens up to the one whose state it is.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use bantam_backend::{NO_PAGE, PageCopy, StateGroup};

use crate::cache::Lease;

/// What the row of the last of these tokens must hold.
pub(super) fn row_of(namespace: u64, tokens: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (namespace, tokens).hash(&mut hasher);
    hasher.finish()
}

#[derive(Default)]
pub(super) struct Device {
    rows: HashMap<(usize, u32, usize), u64>,
}

impl Device {
    pub(super) fn copy(&mut self, copy: PageCopy) {
        for row in 0..copy.tokens {
            let value = self.rows.get(&(copy.group, copy.from, row)).copied();
            self.rows.insert((copy.group, copy.to, row), value.expect("the source was written"));
        }
    }

    /// Writes the rows of `tokens[start..]` as a step does.
    pub(super) fn write(&mut self, lease: &Lease, groups: &[StateGroup], namespace: u64, tokens: &[u32], start: usize) {
        for (g, group) in groups.iter().enumerate() {
            for position in start..tokens.len() {
                let page = lease.tables()[g][position / group.page_tokens];
                assert_ne!(page, NO_PAGE, "group {g} has a page for token {position}");
                let row = row_of(namespace, &tokens[..=position]);
                self.rows.insert((g, page, position % group.page_tokens), row);
            }
        }
    }

    /// Checks that a page holds the rows of `tokens` from the page's first token on.
    pub(super) fn check_page(&self, g: usize, page: u32, first_token: usize, namespace: u64, tokens: &[u32]) {
        for position in first_token..tokens.len() {
            assert_eq!(
                self.rows.get(&(g, page, position - first_token)),
                Some(&row_of(namespace, &tokens[..=position])),
                "group {g} page {page} row of token {position} of {}",
                tokens.len()
            );
        }
    }

    /// Checks that a lease's tables lead to its own rows, as far as its next token needs them.
    pub(super) fn check_lease(&self, lease: &Lease, groups: &[StateGroup], namespace: u64, tokens: &[u32]) {
        for (g, group) in groups.iter().enumerate() {
            let table = &lease.tables()[g];
            assert_eq!(table.len(), group.pages(lease.reserved()));
            for position in group.first_needed(lease.len())..lease.len() {
                let page = table[position / group.page_tokens];
                assert_ne!(page, NO_PAGE, "group {g} kept the page of token {position}");
                assert_eq!(
                    self.rows.get(&(g, page, position % group.page_tokens)),
                    Some(&row_of(namespace, &tokens[..=position])),
                    "group {g} page {page} row of token {position} of {}",
                    lease.len()
                );
            }
        }
    }
}
