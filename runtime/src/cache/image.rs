//! The prefix tree as plain data, to be written to a file and grown again from one.
//!
//! An image names its pages and slots by *sources*: numbers in whatever holds their bytes. It keeps no page from being
//! used for something else, so taking one costs running sequences nothing; what was lost before its bytes were copied is
//! pruned from it.

use std::collections::{HashMap, HashSet};

use bantam_backend::StateGroup;
use bantam_graph::StateKind;

use super::tree::first_page;

/// A tree. Parents come before their children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeImage {
    /// Its nodes.
    pub nodes: Vec<NodeImage>,
    /// Pages that nodes hold, each once.
    pub pages: Vec<PageImage>,
    /// Sources of the slots of recurrent values.
    pub slots: Vec<usize>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeImage {
    /// Number of the node before it; none if it begins the sequences of a namespace.
    pub parent: Option<usize>,
    /// Keeps apart sequences of equal tokens and different state.
    pub namespace: u64,
    /// Its tokens, at least one.
    pub tokens: Vec<u32>,
    /// Whether its end is kept to go on from.
    pub resume: bool,
    /// When a request last came through; a count, not a time.
    pub last_used: u64,
    /// Per state group, numbers of the pages that overlap its tokens, the first being the page of its first token.
    pub pages: Vec<Vec<Option<usize>>>,
    /// The recurrent value at its end: number of the slot, and when it was last gone on from.
    pub value: Option<(usize, u64)>,
}

/// A page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageImage {
    /// Its state group.
    pub group: usize,
    /// Tokens that nodes need of it, from its first on.
    pub tokens: usize,
    /// Where its bytes are.
    pub source: usize,
}

/// What kinds of state a tree's nodes have.
#[derive(Clone, Copy, Debug)]
pub struct StateShape<'a> {
    /// Groups of pages.
    pub groups: &'a [StateGroup],
    /// Whether there are recurrent values.
    pub recurrent: bool,
}

impl StateShape<'_> {
    fn is_window(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|group| matches!(group.kind, StateKind::Window { .. }))
    }

    /// Whether a sequence can be resumed at any token of a node.
    fn resumes_anywhere(&self) -> bool {
        !self.recurrent && (0..self.groups.len()).all(|g| !self.is_window(g))
    }
}

/// How much state there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Pages of each group.
    pub pages: Vec<usize>,
    /// Slots.
    pub slots: usize,
}

impl TreeImage {
    /// Tokens from the start of the sequence to each node's end.
    fn ends(&self) -> Vec<usize> {
        let mut ends: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let start = node.parent.and_then(|parent| ends.get(parent).copied()).unwrap_or(0);
            ends.push(start + node.tokens.len());
        }
        ends
    }

    /// Keeps the nodes that were used last, each with all before it, as many as `fits` says fit.
    pub fn keep_recent(&mut self, shape: StateShape<'_>, mut fits: impl FnMut(&Amount) -> bool) {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.nodes[i].last_used));
        let mut kept = vec![false; self.nodes.len()];
        let (mut has_page, mut has_slot) = (vec![false; self.pages.len()], vec![false; self.slots.len()]);
        let mut amount = Amount { pages: vec![0; shape.groups.len()], slots: 0 };
        for last in order {
            let chain = || std::iter::successors(Some(last), |&i| self.nodes[i].parent).take_while(|&i| !kept[i]);
            let mut pages: Vec<usize> =
                chain().flat_map(|i| self.nodes[i].pages.iter().flatten().flatten()).copied().collect();
            pages.sort_unstable();
            pages.dedup();
            pages.retain(|&page| !has_page[page]);
            let slots: Vec<usize> = chain().filter_map(|i| self.nodes[i].value).map(|(slot, _)| slot).collect();
            let mut more = amount.clone();
            pages.iter().for_each(|&page| more.pages[self.pages[page].group] += 1);
            more.slots += slots.iter().filter(|&&slot| !has_slot[slot]).count();
            if fits(&more) {
                amount = more;
                pages.iter().for_each(|&page| has_page[page] = true);
                slots.iter().for_each(|&slot| has_slot[slot] = true);
                let chain: Vec<usize> = chain().collect();
                chain.iter().for_each(|&i| kept[i] = true);
            }
        }
        self.prune(shape, &kept, |_| false);
    }

    /// Removes the nodes that are not `kept`, the pages and slots whose sources are lost, and all that is worth nothing
    /// without them. Numbers change.
    pub fn prune(&mut self, shape: StateShape<'_>, kept: &[bool], lost: impl Fn(usize) -> bool) {
        let mut kept = kept.to_vec();
        self.drop_lost(shape, &mut kept, lost);
        self.drop_worthless(shape, &mut kept);
        self.drop_windows(shape, &kept);
        self.renumber(&kept);
    }

    /// Cuts nodes before the first row that is lost, if a sequence can be resumed there, and drops what comes behind.
    fn drop_lost(&mut self, shape: StateShape<'_>, kept: &mut [bool], lost: impl Fn(usize) -> bool) {
        let ends = self.ends();
        let page_lost: Vec<bool> = self.pages.iter().map(|page| lost(page.source)).collect();
        let mut is_whole = vec![true; self.nodes.len()];
        for i in 0..self.nodes.len() {
            let node = &mut self.nodes[i];
            if !kept[i] || node.parent.is_some_and(|parent| !is_whole[parent]) {
                (kept[i], is_whole[i]) = (false, false);
                continue;
            }
            let (start, mut end) = (ends[i] - node.tokens.len(), ends[i]);
            for (g, (group, pages)) in shape.groups.iter().zip(&mut node.pages).enumerate() {
                for (index, entry) in (start / group.page_tokens..).zip(pages) {
                    if entry.is_some_and(|page| page_lost[page]) {
                        *entry = None;
                        if !shape.is_window(g) {
                            end = end.min(index * group.page_tokens);
                        }
                    }
                }
            }
            if node.value.is_some_and(|(slot, _)| lost(self.slots[slot])) {
                (node.value, node.resume) = (None, false);
            }
            if end < ends[i] {
                is_whole[i] = false;
                kept[i] = end > start && shape.resumes_anywhere();
                if kept[i] {
                    node.cut(shape, start, end);
                }
            }
        }
    }

    /// Drops ends that no sequence can be resumed at.
    fn drop_worthless(&self, shape: StateShape<'_>, kept: &mut [bool]) {
        let (mut children, mut had) = (vec![0_usize; kept.len()], vec![false; kept.len()]);
        self.nodes.iter().filter_map(|node| node.parent).for_each(|parent| had[parent] = true);
        for i in (0..kept.len()).rev() {
            let node = &self.nodes[i];
            // An end has all that it needs by itself, unless it has become one here.
            let is_worth = shape.resumes_anywhere() || node.resume || (!shape.recurrent && !had[i]);
            kept[i] &= children[i] > 0 || is_worth;
            if let (true, Some(parent)) = (kept[i], node.parent) {
                children[parent] += 1;
            }
        }
    }

    /// Drops window pages that no place to resume at needs any more.
    fn drop_windows(&mut self, shape: StateShape<'_>, kept: &[bool]) {
        let ends = self.ends();
        // The first place to resume at, at each node's end or below it.
        let mut next: Vec<Option<usize>> = vec![None; kept.len()];
        for i in (0..kept.len()).rev().filter(|&i| kept[i]) {
            if self.nodes[i].resume || next[i].is_none() {
                next[i] = Some(ends[i]);
            }
            if let Some(parent) = self.nodes[i].parent {
                next[parent] = [next[parent], next[i]].into_iter().flatten().min();
            }
        }
        for (i, node) in self.nodes.iter_mut().enumerate() {
            let start = ends[i] - node.tokens.len();
            for (g, group) in shape.groups.iter().enumerate().filter(|(g, _)| shape.is_window(*g)) {
                let needed = next[i].map_or(0, |end| first_page(group, end));
                let passed = needed.saturating_sub(start / group.page_tokens);
                node.pages[g].iter_mut().take(passed).for_each(|entry| *entry = None);
            }
        }
    }

    /// Takes out what is not kept or not held by a node.
    fn renumber(&mut self, kept: &[bool]) {
        let (mut nodes, mut pages, mut slots) = (Numbers::default(), Numbers::default(), Numbers::default());
        let old = std::mem::take(&mut self.nodes);
        for (i, mut node) in old.into_iter().enumerate().filter(|(i, _)| kept[*i]) {
            nodes.of(i);
            node.parent = node.parent.map(|parent| nodes.of(parent));
            node.pages.iter_mut().flatten().flatten().for_each(|page| *page = pages.of(*page));
            node.value = node.value.map(|(slot, used)| (slots.of(slot), used));
            self.nodes.push(node);
        }
        self.pages = pages.old.iter().map(|&page| self.pages[page]).collect();
        self.slots = slots.old.iter().map(|&slot| self.slots[slot]).collect();
    }

    /// Gives all sources the numbers `0..`, in the order pages, slots. Returns the old ones in that order.
    pub fn number_sources(&mut self) -> Vec<usize> {
        let sources = self.pages.iter_mut().map(|page| &mut page.source).chain(&mut self.slots);
        sources.enumerate().map(|(new, source)| std::mem::replace(source, new)).collect()
    }

    /// Checks that a tree can be grown from it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, shape: StateShape<'_>) -> Result<(), ImageError> {
        let mut ends: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut begins = HashSet::new();
        // Where in its sequence each page is.
        let mut places: HashMap<usize, usize> = HashMap::new();
        let mut sources = HashSet::new();
        let all = self.pages.iter().map(|page| page.source).chain(self.slots.iter().copied());
        ensure(all.into_iter().all(|source| sources.insert(source)), "two pages have the same bytes")?;
        let mut valued = HashSet::new();
        for page in &self.pages {
            let group = shape.groups.get(page.group).ok_or(ImageError("a page is of a group that there is not"))?;
            ensure((1..=group.page_tokens).contains(&page.tokens), "a page has too many or no tokens")?;
        }
        for node in &self.nodes {
            let start = match node.parent {
                None => 0,
                Some(parent) => *ends.get(parent).ok_or(ImageError("a node comes before its parent"))?,
            };
            let first = node.tokens.first().ok_or(ImageError("a node has no tokens"))?;
            let namespace = node.parent.is_none().then_some(node.namespace);
            ensure(begins.insert((node.parent, namespace, *first)), "two nodes begin alike")?;
            let end = start + node.tokens.len();
            ends.push(end);
            ensure(node.last_used < u64::MAX / 2, "a node was used at no time")?;
            ensure(node.pages.len() == shape.groups.len(), "a node has pages of other groups")?;
            for (g, (group, pages)) in shape.groups.iter().zip(&node.pages).enumerate() {
                let first = start / group.page_tokens;
                ensure(first + pages.len() == group.pages(end), "a node has more or fewer pages than its tokens")?;
                for (index, &number) in (first..).zip(pages).filter_map(|(index, page)| Some((index, page.as_ref()?))) {
                    let page = self.pages.get(number).ok_or(ImageError("a node has a page that there is not"))?;
                    let tokens = group.page_tokens.min(end - index * group.page_tokens);
                    ensure(page.group == g && page.tokens >= tokens, "a node has a page without its rows")?;
                    ensure(*places.entry(number).or_insert(index) == index, "a page is in two places")?;
                }
            }
            self.check_value(shape, node)?;
            ensure(node.value.is_none_or(|(slot, _)| valued.insert(slot)), "two nodes have the same value")?;
        }
        Ok(())
    }

    fn check_value(&self, shape: StateShape<'_>, node: &NodeImage) -> Result<(), ImageError> {
        ensure(!shape.recurrent || node.resume == node.value.is_some(), "a node to resume at lacks its value")?;
        match node.value {
            Some((slot, used)) => {
                ensure(shape.recurrent, "a node has a recurrent value, and the model has none")?;
                ensure(slot < self.slots.len() && used < u64::MAX / 2, "a node has a value that there is not")
            }
            None => Ok(()),
        }
    }
}

impl NodeImage {
    /// Drops its tokens from `end` of the sequence on.
    fn cut(&mut self, shape: StateShape<'_>, start: usize, end: usize) {
        self.tokens.truncate(end - start);
        self.resume = false;
        for (group, pages) in shape.groups.iter().zip(&mut self.pages) {
            pages.truncate(group.pages(end).saturating_sub(start / group.page_tokens));
        }
    }
}

/// Numbers given in the order in which they are asked for.
#[derive(Default)]
struct Numbers {
    new: HashMap<usize, usize>,
    old: Vec<usize>,
}

impl Numbers {
    fn of(&mut self, old: usize) -> usize {
        *self.new.entry(old).or_insert_with(|| {
            self.old.push(old);
            self.old.len() - 1
        })
    }
}

/// No tree can be grown from an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImageError(pub(crate) &'static str);

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), ImageError> {
    if holds { Ok(()) } else { Err(ImageError(otherwise)) }
}
