//! Sequences over one cache and one device, with all that must always hold.

use std::collections::HashMap;

use bantam_backend::{PageCopy, RecurrentGroup, StateGroup};

use super::device::Device;
use crate::cache::{
    Held, Lease, NoRoom, PendingCopy, Resume, StateCache, WatchedTree,
    slots::RecurrentLease,
    tree::{Node, Tree, first_page},
};

pub(super) struct Sequence {
    pub(super) lease: Lease,
    pub(super) namespace: u64,
    pub(super) tokens: Vec<u32>,
}

/// A tree that is being saved.
pub(super) struct Saving {
    tree: WatchedTree,
    /// Whether it is all that there was.
    whole: bool,
    /// Token lists, and how much of each could be gone on from.
    found: Vec<(u64, Vec<u32>, usize)>,
}

pub(super) struct World {
    pub(super) cache: StateCache,
    pub(super) groups: Vec<StateGroup>,
    pub(super) device: Device,
    pub(super) sequences: Vec<Sequence>,
    /// Copies that were made but not dropped yet.
    pub(super) copies: Vec<PendingCopy>,
    /// Token lists that can be resumed at their ends as long as nothing was evicted.
    pub(super) resumable: Vec<(u64, Vec<u32>)>,
    /// All token lists ever published and not evicted since.
    pub(super) published: Vec<(u64, Vec<u32>)>,
    /// What is to be saved.
    pub(super) watched: Option<Saving>,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl World {
    pub(super) fn new(groups: Vec<StateGroup>, budget: u64, minimum: &[usize]) -> Self {
        World::with_cache(StateCache::new(&groups, budget, minimum).unwrap(), groups)
    }

    /// The same with recurrent state in `slots` slots; none if 0.
    pub(super) fn recurrent(groups: Vec<StateGroup>, budget: u64, minimum: &[usize], slots: u64) -> Self {
        if slots == 0 {
            return World::new(groups, budget, minimum);
        }
        let group = RecurrentGroup { slot_bytes: 100, states: vec![0] };
        let cache =
            StateCache::new(&groups, budget, minimum).unwrap().with_recurrent(&group, 100 * slots + 50).unwrap();
        World::with_cache(cache, groups)
    }

    fn with_cache(cache: StateCache, groups: Vec<StateGroup>) -> Self {
        World {
            cache,
            groups,
            device: Device::default(),
            sequences: Vec::new(),
            copies: Vec::new(),
            resumable: Vec::new(),
            published: Vec::new(),
            watched: None,
        }
    }

    /// Begins to save what was used last, of at most so many bytes.
    pub(super) fn watch(&mut self, limit: u64) {
        let found = self.published.iter().map(|(n, t)| (*n, t.clone(), self.naive_longest(*n, t, t.len())));
        let found = found.collect();
        self.watched = Some(Saving { tree: self.cache.watch(limit), whole: limit == u64::MAX, found });
    }

    /// Grows what was watched, as far as it still is there, in another process, that has this budget and so many slots.
    pub(super) fn restart(&self, saving: Saving, budget: u64, slots: u64) -> World {
        let Saving { tree: watched, whole, found } = saving;
        let held: Vec<Option<Held>> = watched.watched.iter().map(crate::cache::Watched::hold).collect();
        let mut image = watched.image.clone();
        image.prune(watched.shape(), &vec![true; image.nodes.len()], |source| held[source].is_none());
        let mut new = World::recurrent(self.groups.clone(), budget, &vec![0; self.groups.len()], slots);
        for (source, to) in new.cache.graft(image.clone()).unwrap() {
            let from = held[source].as_ref().expect("what is lost is not asked for");
            assert_eq!(from.what, to.what);
            new.device.take_over(&to, &self.device, from, &self.groups);
        }
        let tree = &new.cache.tree;
        new.published = tree.live().map(|(id, _)| path_to(tree, id)).collect();
        new.check();
        if budget == u64::MAX {
            let mut again = new.cache.watch(u64::MAX).image;
            for image in [&mut image, &mut again] {
                image.number_sources();
                // A page may have rows of a node that is gone.
                image.pages.iter_mut().for_each(|page| page.tokens = 0);
            }
            assert_eq!(again, image, "all of it was grown");
        }
        // Values that had not taken in all rows were left out.
        let whole = whole && budget == u64::MAX && held.iter().all(Option::is_some) && slots == 0;
        for (namespace, tokens, before) in found {
            let i = new.start(namespace, tokens.clone(), tokens.len());
            let now = new.sequences[i].lease.len();
            assert!(now <= before && (!whole || now == before), "{now} tokens, {before} before");
        }
        new
    }

    /// Starts a sequence and compares what was found with what a naive search finds.
    pub(super) fn start(&mut self, namespace: u64, tokens: Vec<u32>, at_most: usize) -> usize {
        let naive = self.naive_longest(namespace, &tokens, at_most);
        let acquired = self.cache.acquire(namespace, &tokens, at_most);
        let found = acquired.lease.len();
        assert_eq!(found, naive);
        let known = self.published.iter().filter(|(n, _)| *n == namespace).map(|(_, t)| common(t, &tokens)).max();
        let nothing_evicted = self.cache.counters().evictions == 0;
        if nothing_evicted {
            assert_eq!(acquired.branch, known.unwrap_or(0));
            let resumable = self.resumable.iter().filter(|(n, t)| *n == namespace && tokens.starts_with(t));
            let longest = resumable.map(|(_, t)| t.len()).filter(|len| *len <= at_most).max().unwrap_or(0);
            assert!(found >= longest, "found {found} of {longest} tokens kept to resume at");
            if self.cache.tree.resumes_anywhere() {
                assert_eq!(found, acquired.branch.min(at_most));
            }
        }
        self.sequences.push(Sequence { lease: acquired.lease, namespace, tokens });
        self.sequences.len() - 1
    }

    /// Runs one step of several sequences: `rows` of each, of which `accepted` count. Those that find no room sit out.
    pub(super) fn step(&mut self, members: &[usize], rows: usize, accepted: usize, next: u32) -> Result<(), NoRoom> {
        let mut result = Ok(());
        let mut ready = Vec::new();
        for &i in members {
            let sequence = &mut self.sequences[i];
            let end = sequence.lease.len() + rows;
            let before = sequence.lease.tables().to_vec();
            let grown = self.cache.grow(&mut sequence.lease, end);
            match grown {
                Ok(()) => ready.push(i),
                Err(_) => assert_eq!(before, sequence.lease.tables(), "a failed growth changes nothing"),
            }
            result = result.and(grown);
        }
        self.copies.clear();
        for &i in &ready {
            self.copies.extend(self.sequences[i].lease.take_copies());
        }
        // Copies do not depend on each other.
        for copy in self.copies.iter().rev() {
            self.device.copy(copy.copy(), &self.groups);
        }
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for i in ready {
            let Sequence { lease, namespace, tokens } = &mut self.sequences[i];
            let start = lease.len();
            while tokens.len() < start + rows {
                tokens.push(next);
            }
            self.device.check_lease(lease, &self.groups, *namespace, tokens);
            let accepted = accepted.min(rows);
            // Drafted rows may be accepted in part or all; those of a prompt are certain.
            let tentative = if next == 0 { rows } else { rows - accepted };
            if let Some(step) = lease.recurrent_step(rows, tentative).unwrap() {
                assert!(!to.contains(&step.to) && !from.contains(&step.to), "slot {} is written by one only", step.to);
                to.push(step.to);
                from.extend((step.from != step.to).then_some(step.from));
                self.device.advance(step, *namespace, &tokens[..start + rows], start);
            }
            self.device.write(lease, &self.groups, *namespace, &tokens[..start + rows], start);
            lease.advance(accepted).unwrap();
            if accepted < rows {
                // What comes instead of the rejected token.
                tokens[start + accepted] ^= 1;
            }
        }
        result
    }

    pub(super) fn publish(&mut self, i: usize, back: usize, resume: Resume) {
        let Sequence { lease, tokens, .. } = &mut self.sequences[i];
        let tokens = &tokens[..lease.len().saturating_sub(back)];
        self.cache.publish(lease, tokens, resume).unwrap();
        self.note_published(i, back, resume);
    }

    pub(super) fn retire(&mut self, i: usize) {
        self.note_published(i, 0, Resume::Keep);
        let Sequence { lease, tokens, .. } = self.sequences.swap_remove(i);
        let len = lease.len();
        self.cache.retire(lease, &tokens[..len]).unwrap();
    }

    /// Saves the state of some tokens and restores it beside what is there, as another process would.
    pub(super) fn transfer(&mut self, namespace: u64, tokens: &[u32]) {
        let Ok(mut lease) = self.cache.export(namespace, tokens) else { return };
        let tokens = tokens[..lease.len()].to_vec();
        if tokens.is_empty() {
            return;
        }
        if lease.unsettled() {
            let step = lease.recurrent_step(0, 0).unwrap().unwrap();
            self.device.advance(step, namespace, &tokens, tokens.len());
            lease.advance(0).unwrap();
        }
        self.device.check_lease(&lease, &self.groups, namespace, &tokens);
        let Ok(new) = self.cache.import(namespace, tokens.len()) else { return };
        let moved: Vec<_> = lease.pages().zip(new.pages()).collect();
        assert_eq!((lease.pages().count(), new.pages().count()), (moved.len(), moved.len()));
        for ((place, from), (to_place, to)) in moved {
            assert_eq!(place, to_place);
            self.device.copy(PageCopy { group: place.group, from, to, tokens: place.tokens }, &self.groups);
        }
        for (from, to) in lease.slot().into_iter().zip(new.slot()) {
            self.device.copy_slot(from, to);
        }
        self.device.check_lease(&new, &self.groups, namespace, &tokens);
        drop(lease);
        self.cache.retire(new, &tokens).unwrap();
        self.resumable.push((namespace, tokens.clone()));
        self.published.push((namespace, tokens));
    }

    fn note_published(&mut self, i: usize, back: usize, resume: Resume) {
        let Sequence { lease, namespace, tokens } = &self.sequences[i];
        let tokens = tokens[..lease.len().saturating_sub(back)].to_vec();
        if back == 0 && resume == Resume::Keep {
            self.resumable.push((*namespace, tokens.clone()));
        }
        self.published.push((*namespace, tokens));
    }

    pub(super) fn clear(&mut self) {
        self.cache.clear();
        self.resumable.clear();
        let tree = &self.cache.tree;
        self.published = tree.live().map(|(id, _)| path_to(tree, id)).collect();
    }

    /// The most tokens after which each group has all it needs, found by trying all.
    fn naive_longest(&self, namespace: u64, tokens: &[u32], at_most: usize) -> usize {
        let tree = &self.cache.tree;
        let on_path: Vec<_> = tree
            .live()
            .map(|(id, node)| (node, path_to(tree, id)))
            .filter(|(node, (n, path))| *n == namespace && common(path, tokens) > node.start)
            .collect();
        let known = on_path.iter().map(|(_, (_, path))| common(path, tokens)).max().unwrap_or(0);
        let has_rows = |g: usize, group: &StateGroup, n: usize| {
            let pages = group.first_needed(n).min(n) / group.page_tokens..group.pages(n);
            pages.into_iter().all(|index| {
                on_path.iter().any(|(node, _)| {
                    let held = index.checked_sub(node.start / group.page_tokens).and_then(|i| node.pages[g].get(i));
                    matches!(held, Some(Some(_))) && node.end() >= n.min((index + 1) * group.page_tokens)
                })
            })
        };
        let has_value = |n: usize| {
            let attached = |node: &Node, path: &[u32]| node.attachment.is_some() && path == &tokens[..n];
            !tree.recurrent || on_path.iter().any(|(node, (_, path))| attached(node, path))
        };
        (0..=known.min(at_most))
            .rev()
            .find(|&n| has_value(n) && self.groups.iter().enumerate().all(|(g, group)| has_rows(g, group, n)))
            .unwrap_or(0)
    }

    /// Everything that must hold between any two operations.
    pub(super) fn check(&mut self) {
        for Sequence { lease, namespace, tokens } in &self.sequences {
            // Before its copies are made, a page of a sequence may not hold its rows.
            self.device.check_lease(lease, &self.groups, *namespace, tokens);
        }
        self.check_tree();
        self.check_references();
        self.check_slots();
        let (committed, budget) = self.cache.bytes();
        assert!(committed <= budget);
    }

    /// A page of a node holds the rows of the path from the page's first token to the node's end, and somebody may need it.
    fn check_tree(&self) {
        let tree = &self.cache.tree;
        for (id, node) in tree.live() {
            let (namespace, path) = path_to(tree, id);
            assert!(!node.tokens.is_empty());
            assert!(
                node.children.iter().all(|(t, &c)| tree.nodes[c].tokens[0] == *t && tree.nodes[c].parent == Some(id))
            );
            for (g, group) in self.groups.iter().enumerate() {
                let first = node.start / group.page_tokens;
                assert_eq!(node.pages[g].len(), group.pages(node.end()) - first);
                let needed = tree.next_resume_point(id).map(|end| first_page(group, end));
                for (index, page) in (first..).zip(&node.pages[g]) {
                    assert!(page.is_none() || needed.is_some_and(|needed| index >= needed), "group {g} keeps {index}");
                    let end = node.end().min((index + 1) * group.page_tokens);
                    page.iter().for_each(|page| {
                        self.device.check_page(g, group, page.id(), index, (namespace, &path[..end]));
                    });
                }
            }
            if let Some(attachment) = &node.attachment {
                assert!(node.resume, "what is attached is kept to go on from");
                self.device.check_value(&attachment.value, namespace, &path);
            }
            assert!(!tree.recurrent || !node.resume || node.attachment.is_some());
        }
    }

    /// Each page is free or referenced, and referenced by exactly those who have it.
    fn check_references(&mut self) {
        for g in 0..self.groups.len() {
            let mut references: HashMap<u32, usize> = HashMap::new();
            let tables = self.sequences.iter().flat_map(|s| &s.lease.tables()[g]);
            let copies = self.copies.iter().map(PendingCopy::copy).filter(|c| c.group == g);
            let copies: Vec<u32> = copies.flat_map(|c| [c.from, c.to]).collect();
            for id in tables.chain(&copies).filter(|id| **id != bantam_backend::NO_PAGE) {
                *references.entry(*id).or_default() += 1;
            }
            let mut cached = 0;
            let pages: Vec<_> =
                self.cache.tree.live().flat_map(|(_, node)| node.pages[g].iter().flatten().cloned()).collect();
            let mut seen: HashMap<u32, usize> = HashMap::new();
            for page in &pages {
                *seen.entry(page.id()).or_default() += 1;
            }
            for page in &pages {
                // Each of the tree's references is doubled by the clones here.
                let expected = 2 * seen[&page.id()] + references.get(&page.id()).copied().unwrap_or(0);
                assert_eq!(page.references(), expected, "references to page {}", page.id());
            }
            cached += seen.keys().filter(|id| !references.contains_key(id)).count();
            drop(pages);
            let usage = self.cache.usage()[g];
            assert_eq!((usage.cached, usage.used), (cached, references.len()));
            assert_eq!(usage.free + usage.cached + usage.used, usage.capacity);
            assert!(references.keys().chain(seen.keys()).all(|id| (*id as usize) < usage.capacity));
        }
    }

    /// Each slot is free or referenced, by exactly those who have it.
    fn check_slots(&mut self) {
        let usage = self.cache.slot_usage();
        let mut references: HashMap<u32, usize> = HashMap::new();
        let held = self.sequences.iter().flat_map(|s| s.lease.recurrent.iter().flat_map(RecurrentLease::held));
        let attached = self.cache.tree.live().filter_map(|(_, node)| Some(node.attachment.as_ref()?.value.slot.get()));
        held.chain(attached).for_each(|slot| *references.entry(slot).or_default() += 1);
        assert_eq!(usage.free + references.len(), usage.capacity);
        assert!(usage.capacity as u64 * usage.slot_bytes <= usage.budget);
        for (_, node) in self.cache.tree.live() {
            let slot = node.attachment.iter().map(|attachment| &attachment.value.slot);
            slot.for_each(|slot| assert_eq!(slot.references(), references[&slot.get()], "references to {slot:?}"));
        }
    }

    /// Ends all sequences and empties the cache: every page and slot must come back.
    pub(super) fn finish(mut self) {
        self.sequences.clear();
        self.copies.clear();
        self.cache.clear();
        assert_eq!(self.cache.tree.live().count(), 0);
        for usage in self.cache.usage() {
            assert_eq!(usage.free, usage.capacity);
        }
        let slots = self.cache.slot_usage();
        assert_eq!(slots.free, slots.capacity);
    }
}

/// Namespace and tokens from the root to a node's end.
fn path_to(tree: &Tree, id: usize) -> (u64, Vec<u32>) {
    let mut nodes = vec![id];
    while let Some(parent) = tree.nodes[nodes[nodes.len() - 1]].parent {
        nodes.push(parent);
    }
    let root = nodes[nodes.len() - 1];
    let namespace = tree.namespace_of(root).expect("each root is known");
    (namespace, nodes.iter().rev().flat_map(|&id| tree.nodes[id].tokens.iter().copied()).collect())
}
