//! A device whose every row and recurrent value remembers the tokens up to the one whose state it is.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use bantam_backend::{NO_PAGE, NO_SLOT, PageCopy, RecurrentStep, StateGroup};
use bantam_graph::StateKind;

use crate::cache::{Held, Lease, StateKept, slots::Value};

/// What the row of the last of these tokens must hold.
pub(super) fn row_of(namespace: u64, tokens: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (namespace, tokens).hash(&mut hasher);
    hasher.finish()
}

/// A recurrent value: its namespace, the tokens taken in, and those that are tentative.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotContent(u64, Vec<u32>, Vec<u32>);

#[derive(Default)]
pub(super) struct Device {
    rows: HashMap<(usize, u32, usize), u64>,
    slots: HashMap<u32, SlotContent>,
}

fn stride(group: &StateGroup) -> usize {
    match group.kind {
        StateKind::Strided { stride } => stride,
        StateKind::PerToken | StateKind::Window { .. } => 1,
    }
}

/// Rows of the tokens of a range: the index of each in its page, and the token it stands behind.
fn rows(group: &StateGroup, tokens: std::ops::Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let (stride, page_tokens) = (stride(group), group.page_tokens);
    let closes = move |token: &usize| (token + 1).is_multiple_of(stride);
    tokens.filter(closes).map(move |token| (token % page_tokens / stride, token))
}

impl Device {
    pub(super) fn copy(&mut self, copy: PageCopy, groups: &[StateGroup]) {
        for (row, _) in rows(&groups[copy.group], 0..copy.tokens) {
            let value = self.rows.get(&(copy.group, copy.from, row)).copied();
            self.rows.insert((copy.group, copy.to, row), value.expect("the source was written"));
        }
    }

    /// Writes the rows of `tokens[start..]` as a step does.
    pub(super) fn write(&mut self, lease: &Lease, groups: &[StateGroup], namespace: u64, tokens: &[u32], start: usize) {
        for (g, group) in groups.iter().enumerate() {
            for (row, position) in rows(group, start..tokens.len()) {
                let page = lease.tables()[g][position / group.page_tokens];
                assert_ne!(page, NO_PAGE, "group {g} has a page for token {position}");
                self.rows.insert((g, page, row), row_of(namespace, &tokens[..=position]));
            }
        }
    }

    /// Advances a recurrent value as a step over `tokens[start..]` does.
    pub(super) fn advance(&mut self, step: RecurrentStep, namespace: u64, tokens: &[u32], start: usize) {
        let SlotContent(of, mut taken, tentative) = match step.from {
            NO_SLOT => SlotContent(namespace, Vec::new(), Vec::new()),
            from => self.slots[&from].clone(),
        };
        taken.extend(&tentative[..step.accepted]);
        assert_eq!((of, taken.as_slice()), (namespace, &tokens[..start]), "the value is that of the sequence");
        let certain = tokens.len() - step.tentative;
        let content = SlotContent(namespace, tokens[..certain].to_vec(), tokens[certain..].to_vec());
        self.slots.insert(step.to, content);
    }

    /// Copies a value without its tentative rows, as saving and loading it does.
    pub(super) fn copy_slot(&mut self, from: u32, to: u32) {
        let SlotContent(namespace, taken, _) = self.slots[&from].clone();
        self.slots.insert(to, SlotContent(namespace, taken, Vec::new()));
    }

    /// Takes over state of another device, under another id.
    pub(super) fn take_over(&mut self, to: &Held, other: &Device, from: &Held, groups: &[StateGroup]) {
        match to.what {
            StateKept::Page { group, tokens } => {
                for (row, _) in rows(&groups[group], 0..tokens) {
                    let value = other.rows.get(&(group, from.id(), row)).copied();
                    self.rows.insert((group, to.id(), row), value.expect("what is saved was written"));
                }
            }
            StateKept::Slot => {
                let SlotContent(namespace, taken, _) = other.slots[&from.id()].clone();
                self.slots.insert(to.id(), SlotContent(namespace, taken, Vec::new()));
            }
        }
    }

    /// Checks that a value is that of exactly these tokens.
    pub(super) fn check_value(&self, value: &Value, namespace: u64, tokens: &[u32]) {
        let SlotContent(of, taken, tentative) = &self.slots[&value.slot.get()];
        let accepted = tokens.len() - value.taken;
        let stands: Vec<u32> = taken.iter().chain(&tentative[..accepted]).copied().collect();
        assert_eq!((*of, taken.len(), stands.as_slice()), (namespace, value.taken, tokens));
    }

    /// Checks that a page holds the rows of `tokens` from the page's first token on.
    pub(super) fn check_page(&self, g: usize, group: &StateGroup, page: u32, index: usize, of: (u64, &[u32])) {
        let (namespace, tokens) = of;
        for (row, position) in rows(group, index * group.page_tokens..tokens.len()) {
            assert_eq!(
                self.rows.get(&(g, page, row)),
                Some(&row_of(namespace, &tokens[..=position])),
                "group {g} page {page} row of token {position} of {}",
                tokens.len()
            );
        }
    }

    /// Checks that a lease's tables and value lead to its own state, as far as its next token needs it.
    pub(super) fn check_lease(&self, lease: &Lease, groups: &[StateGroup], namespace: u64, tokens: &[u32]) {
        for (g, group) in groups.iter().enumerate() {
            let table = &lease.tables()[g];
            assert_eq!(table.len(), group.pages(lease.reserved()));
            for (row, position) in rows(group, group.first_needed(lease.len())..lease.len()) {
                let page = table[position / group.page_tokens];
                assert_ne!(page, NO_PAGE, "group {g} kept the page of token {position}");
                assert_eq!(
                    self.rows.get(&(g, page, row)),
                    Some(&row_of(namespace, &tokens[..=position])),
                    "group {g} page {page} row of token {position} of {}",
                    lease.len()
                );
            }
        }
        if let Some(value) = lease.value() {
            self.check_value(&value, namespace, &tokens[..lease.len()]);
        }
    }
}
