//! Ids that give themselves back.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
};

/// A reference to an id. Clones share it; when the last one is dropped, on whatever thread, the id is free again.
#[derive(Clone, Debug)]
pub(super) struct Id(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    id: u32,
    home: Sender<u32>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Fails only if the pool is gone, and then nobody can use the id.
        let _ = self.home.send(self.id);
    }
}

impl Id {
    pub(super) fn get(&self) -> u32 {
        self.0.id
    }

    /// References to it, this one included.
    pub(super) fn references(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Sees it without keeping it.
    pub(super) fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.0))
    }

    /// The same id, of which those who watched it lose sight: what they saw under it is about to be written over. Only
    /// its one reference may do that.
    pub(super) fn renewed(self) -> Self {
        if Arc::weak_count(&self.0) == 0 {
            return self;
        }
        match Arc::try_unwrap(self.0) {
            Ok(owned) => Id(Arc::new(owned)),
            Err(shared) => Id(shared),
        }
    }
}

/// Sight of an id for as long as what is under it stays what it was.
#[derive(Clone, Debug)]
pub(super) struct Watch(Weak<Owned>);

impl Watch {
    pub(super) fn get(&self) -> Option<Id> {
        self.0.upgrade().map(Id)
    }
}

/// Ids `0..capacity`, some of them in use. The lowest free one is taken first: what is behind those that were never taken needs
/// no memory.
#[derive(Debug)]
pub(super) struct Ids {
    capacity: usize,
    free: BinaryHeap<Reverse<u32>>,
    returned: Receiver<u32>,
    home: Sender<u32>,
}

impl Ids {
    pub(super) fn new() -> Self {
        let (home, returned) = channel();
        Ids { capacity: 0, free: BinaryHeap::new(), returned, home }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Ids that nobody references.
    pub(super) fn free(&mut self) -> usize {
        self.free.extend(self.returned.try_iter().map(Reverse));
        self.free.len()
    }

    /// Adds one id; false if there can be no more.
    pub(super) fn grow(&mut self) -> bool {
        // The greatest number stands for "none" in tables and steps.
        let Some(id) = u32::try_from(self.capacity).ok().filter(|id| *id != u32::MAX) else { return false };
        self.capacity += 1;
        self.free.push(Reverse(id));
        true
    }

    /// Takes the free ids of which this is true, one after the other.
    pub(super) fn take_if(&mut self, mut wanted: impl FnMut(u32) -> bool) -> Vec<Id> {
        self.free.extend(self.returned.try_iter().map(Reverse));
        let (taken, left) =
            std::mem::take(&mut self.free).into_iter().partition::<Vec<_>, _>(|Reverse(id)| wanted(*id));
        self.free = left.into();
        taken.into_iter().map(|Reverse(id)| id).map(|id| Id(Arc::new(Owned { id, home: self.home.clone() }))).collect()
    }

    /// Takes a free id.
    pub(super) fn take(&mut self) -> Option<Id> {
        self.free.extend(self.returned.try_iter().map(Reverse));
        let Reverse(id) = self.free.pop()?;
        Some(Id(Arc::new(Owned { id, home: self.home.clone() })))
    }
}
