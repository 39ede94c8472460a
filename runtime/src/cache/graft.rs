//! Making an image of the tree, and growing a tree from one.

use std::{collections::HashMap, sync::Arc};

use bantam_backend::StateGroup;

use super::{
    ids::{Id, Watch},
    image::{ImageError, NodeImage, PageImage, StateShape, TreeImage},
    pool::{NoRoom, Page},
    slots::{Attachment, Slots, Value},
    state_cache::StateCache,
    tree::{Node, NodeId, Tree},
};

/// What is under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateKept {
    /// The first tokens of a page of a state group.
    Page { group: usize, tokens: usize },
    /// A recurrent value.
    Slot,
}

/// State of which a copy is wanted. Seeing it does not keep it.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) what: StateKept,
    watch: Watch,
}

impl Watched {
    /// Keeps it, unless it is no longer what it was.
    pub(crate) fn hold(&self) -> Option<Held> {
        Some(Held { what: self.what, id: self.watch.get()? })
    }
}

/// State that is kept as long as it is copied.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) what: StateKept,
    id: Id,
}

impl Held {
    /// Number of the page or slot.
    pub(crate) fn id(&self) -> u32 {
        self.id.get()
    }
}

/// An image of a tree whose sources are watched.
#[derive(Debug)]
pub(crate) struct WatchedTree {
    pub(crate) image: TreeImage,
    /// Source by source.
    pub(crate) watched: Vec<Watched>,
    groups: Arc<[StateGroup]>,
    recurrent: bool,
    /// What had been added to the tree.
    pub(crate) additions: u64,
}

impl WatchedTree {
    /// The kinds of state.
    pub(crate) fn shape(&self) -> StateShape<'_> {
        StateShape { groups: &self.groups, recurrent: self.recurrent }
    }
}

/// An image in the making.
struct Picture<'a> {
    tree: &'a Tree,
    image: TreeImage,
    watched: Vec<Watched>,
    pages: HashMap<(usize, u32), usize>,
}

impl Picture<'_> {
    /// Adds a node and all below it.
    fn add(&mut self, root: NodeId, namespace: u64) {
        let mut open: Vec<(NodeId, Option<usize>)> =
            self.tree.nodes[root].children.values().map(|&child| (child, None)).collect();
        while let Some((id, parent)) = open.pop() {
            let node = &self.tree.nodes[id];
            open.extend(node.children.values().map(|&child| (child, Some(self.image.nodes.len()))));
            let pages = (0..node.pages.len()).map(|g| self.pages_of(node, g)).collect();
            let settled = node.attachment.as_ref().filter(|attachment| attachment.value.taken == node.end());
            let value = settled.map(|attachment| (self.slot(&attachment.value.slot), attachment.last_used));
            self.image.nodes.push(NodeImage {
                parent,
                namespace,
                tokens: node.tokens.clone(),
                resume: node.resume && (!self.tree.recurrent || value.is_some()),
                last_used: node.last_used,
                pages,
                value,
            });
        }
    }

    fn pages_of(&mut self, node: &Node, g: usize) -> Vec<Option<usize>> {
        let page_tokens = self.tree.groups[g].page_tokens;
        let indexed = (node.start / page_tokens..).zip(&node.pages[g]);
        let number = |(index, page): (usize, &Option<Page>)| {
            let page = page.as_ref()?;
            Some(self.page(g, page, page_tokens.min(node.end() - index * page_tokens)))
        };
        indexed.map(number).collect()
    }

    fn page(&mut self, group: usize, page: &Page, tokens: usize) -> usize {
        let number = *self.pages.entry((group, page.id())).or_insert_with(|| {
            self.image.pages.push(PageImage { group, tokens, source: self.watched.len() });
            self.watched.push(Watched { what: StateKept::Page { group, tokens }, watch: page.as_id().watch() });
            self.image.pages.len() - 1
        });
        // Nodes that end within a page need fewer of its rows than those behind them.
        let known = &mut self.image.pages[number];
        known.tokens = known.tokens.max(tokens);
        self.watched[known.source].what = StateKept::Page { group, tokens: known.tokens };
        number
    }

    fn slot(&mut self, slot: &Id) -> usize {
        self.image.slots.push(self.watched.len());
        self.watched.push(Watched { what: StateKept::Slot, watch: slot.watch() });
        self.image.slots.len() - 1
    }
}

impl Tree {
    /// An image of all that sequences can go on from.
    fn picture(&self) -> (TreeImage, Vec<Watched>) {
        let mut picture =
            Picture { tree: self, image: TreeImage::default(), watched: Vec::new(), pages: HashMap::new() };
        let mut roots: Vec<(u64, NodeId)> = self.roots.iter().map(|(&namespace, &root)| (namespace, root)).collect();
        roots.sort_unstable();
        roots.into_iter().for_each(|(namespace, root)| picture.add(root, namespace));
        (picture.image, picture.watched)
    }

    /// Grows an empty tree from an image that was checked, on these pages and slots.
    fn graft(&mut self, image: &TreeImage, pages: &[Page], slots: &[Id]) {
        let mut ids: Vec<NodeId> = Vec::with_capacity(image.nodes.len());
        for planted in &image.nodes {
            let parent = match planted.parent {
                Some(parent) => ids[parent],
                None => self.root(planted.namespace),
            };
            let start = self.nodes[parent].end();
            let mut node = Node {
                parent: Some(parent),
                start,
                tokens: planted.tokens.clone(),
                resume: planted.resume,
                last_used: planted.last_used,
                ..Node::default()
            };
            let held = |numbers: &Vec<Option<usize>>| numbers.iter().map(|n| n.map(|n| pages[n].clone())).collect();
            node.pages = planted.pages.iter().map(held).collect();
            node.attachment = planted.value.map(|(slot, last_used)| {
                let value = Value { slot: slots[slot].clone(), taken: node.end() };
                Attachment { value, last_used }
            });
            self.clock = self.clock.max(planted.last_used).max(planted.value.map_or(0, |(_, used)| used));
            let first = node.tokens.first().copied();
            let id = self.add(node);
            self.nodes[parent].children.extend(first.map(|token| (token, id)));
            ids.push(id);
        }
    }
}

impl StateCache {
    /// The kinds of state.
    pub fn shape(&self) -> StateShape<'_> {
        StateShape { groups: &self.tree.groups, recurrent: self.tree.recurrent }
    }

    /// Counts what is added to the tree: when it has changed there is something new to save.
    pub(crate) fn additions(&self) -> u64 {
        self.tree.additions
    }

    /// What was used last, of all that sequences can go on from, as far as its pages and slots have at most `limit` bytes.
    pub(crate) fn watch(&self, limit: u64) -> WatchedTree {
        let (mut image, watched) = self.tree.picture();
        let slot_bytes = self.slots.as_ref().map_or(0, Slots::slot_bytes);
        image.keep_recent(self.shape(), |amount| {
            let pages = amount.pages.iter().zip(self.groups());
            let pages = pages.fold(0_u64, |sum, (&n, group)| sum.saturating_add((n * group.page_bytes) as u64));
            pages.saturating_add(slot_bytes.saturating_mul(amount.slots as u64)) <= limit
        });
        let watched = image.number_sources().into_iter().map(|source| watched[source].clone()).collect();
        let (groups, recurrent) = (Arc::clone(&self.tree.groups), self.tree.recurrent);
        WatchedTree { image, watched, groups, recurrent, additions: self.tree.additions }
    }

    /// Fills an empty cache from an image, with what was used last as far as there is room. Returns where the bytes of which
    /// sources must be written before anybody uses the cache.
    ///
    /// # Errors
    /// If no tree can be grown from it; the cache is of no use then.
    pub(crate) fn graft(&mut self, mut image: TreeImage) -> Result<Vec<(usize, Held)>, GraftError> {
        let groups = Arc::clone(&self.tree.groups);
        let shape = StateShape { groups: &groups, recurrent: self.tree.recurrent };
        image.check(shape)?;
        let most_slots = self.slots.as_ref().map_or(0, Slots::most);
        image.keep_recent(shape, |amount| {
            amount.slots <= most_slots && self.pools.missing(&amount.pages).iter().all(|&missing| missing == 0)
        });
        let mut targets = Vec::with_capacity(image.pages.len() + image.slots.len());
        let mut pages = Vec::with_capacity(image.pages.len());
        for &PageImage { group, tokens, source } in &image.pages {
            let page = self.pools.allocate(group).ok_or(NoRoom::Pages { group, missing: 1 })?;
            targets.push((source, Held { what: StateKept::Page { group, tokens }, id: page.as_id().clone() }));
            pages.push(page);
        }
        let mut slots = Vec::with_capacity(image.slots.len());
        for &source in &image.slots {
            let slot = self.slots.as_mut().and_then(Slots::allocate).ok_or(NoRoom::Slots)?;
            targets.push((source, Held { what: StateKept::Slot, id: slot.clone() }));
            slots.push(slot);
        }
        self.tree.graft(&image, &pages, &slots);
        Ok(targets)
    }
}

/// Why a cache cannot be filled from an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraftError {
    /// It is no tree.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// There is less room than was thought.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}
