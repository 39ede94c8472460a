//! The cache as its owner sees it.

use std::{collections::HashMap, sync::Arc};

use bantam_backend::{RecurrentGroup, StateGroup};

use super::{
    evict::{EvictionPolicy, LeastRecentlyUsed},
    lease::Lease,
    pool::{NoRoom, Page, PoolError, Pools},
    slots::Slots,
    tree::Tree,
};

/// A lease on the longest cached prefix.
#[derive(Debug)]
pub struct Acquired {
    /// The new sequence's pages; its length is the length of the prefix.
    pub lease: Lease,
    /// Tokens that other requests began with alike, at least the lease's length. A sequence that is computed exactly so
    /// far and published there with [`Resume::Keep`] can be resumed by the next request that branches off there.
    pub branch: usize,
    /// The token that a sequence seen before has behind these, where this one has another.
    pub other: Option<u32>,
}

/// Room without which a sequence is not to begin.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// Tokens that it is to reach.
    pub tokens: usize,
    /// Pages of each group that others, which have begun, are yet to take.
    pub beside: Vec<usize>,
}

/// Whether later requests are likely to go on from the end of what is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// No: the sequence is passing. Its window pages go as it moves on, its recurrent value is advanced in place.
    Passing,
    /// Perhaps: what going on takes is kept until the sequence has passed and its memory is needed.
    Interim,
    /// Yes (the end of a message, a branch point, the end of the sequence): window pages before it are kept, and the
    /// recurrent value, if all computed tokens are published.
    Keep,
}

/// More tokens published than computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot publish {tokens} tokens: the state of only {len} is computed")]
pub struct PublishError {
    /// Tokens given.
    pub tokens: usize,
    /// The lease's length.
    pub len: usize,
}

/// What happened since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Prefixes looked up.
    pub lookups: u64,
    /// Of them, those of which at least one token was found.
    pub hits: u64,
    /// Tokens looked up.
    pub tokens_wanted: u64,
    /// Tokens found.
    pub tokens_reused: u64,
    /// Prefixes and resume points evicted, in whole or in part.
    pub evictions: u64,
    /// Tokens whose state was evicted.
    pub tokens_evicted: u64,
}

/// Pages of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// Page ids in existence.
    pub capacity: usize,
    /// Nobody has them.
    pub free: usize,
    /// Only the tree has them.
    pub cached: usize,
    /// Sequences have them, alone or together with the tree.
    pub used: usize,
    /// Bytes of a page.
    pub page_bytes: usize,
}

/// Slots of recurrent state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotUsage {
    /// Slot ids in existence.
    pub capacity: usize,
    /// Nobody has them.
    pub free: usize,
    /// Points in the tree that a sequence can go on from.
    pub attached: usize,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Bytes that slots may take.
    pub budget: u64,
}

/// Pools and prefix tree of a model.
#[derive(Debug)]
pub struct StateCache {
    pub(super) pools: Pools,
    pub(super) slots: Option<Slots>,
    pub(super) tree: Tree,
    policy: Box<dyn EvictionPolicy>,
    counters: Counters,
}

impl StateCache {
    /// An empty cache of at most `budget` bytes. `minimum` pages of each group are set aside for it; take
    /// [`super::one_sequence`], so that a lone sequence always finds pages.
    ///
    /// # Errors
    /// As [`Pools::new`].
    pub fn new(groups: &[StateGroup], budget: u64, minimum: &[usize]) -> Result<Self, PoolError> {
        Ok(StateCache {
            pools: Pools::new(groups, budget, minimum)?,
            slots: None,
            tree: Tree::new(groups.into()),
            policy: Box::new(LeastRecentlyUsed),
            counters: Counters::default(),
        })
    }

    /// The same for a model with recurrent state: slots of it take at most `budget` bytes. One slot is enough for a lone
    /// sequence; as many as there are sequences, for all of them to run at once.
    ///
    /// # Errors
    /// If not one slot fits.
    pub fn with_recurrent(mut self, group: &RecurrentGroup, budget: u64) -> Result<Self, PoolError> {
        self.slots = Some(Slots::new(group, budget)?);
        self.tree.recurrent = true;
        Ok(self)
    }

    /// The same with another order of eviction.
    #[must_use]
    pub fn with_policy(mut self, policy: Box<dyn EvictionPolicy>) -> Self {
        self.policy = policy;
        self
    }

    /// The state groups.
    pub fn groups(&self) -> &[StateGroup] {
        &self.tree.groups
    }

    /// Starts a sequence of `tokens` from the longest cached prefix of at most `at_most` tokens. `namespace` keeps apart
    /// sequences of equal tokens and different state (adapters, images).
    ///
    /// To get logits at least one token must be computed: `at_most` is then `tokens.len() - 1`.
    pub fn acquire(&mut self, namespace: u64, tokens: &[u32], at_most: usize) -> Acquired {
        let acquired = self.tree.acquire(namespace, tokens, at_most);
        self.count_lookup(tokens, &acquired.lease);
        acquired
    }

    /// The same if there is room for what is reserved.
    pub fn admit(
        &mut self,
        namespace: u64,
        tokens: &[u32],
        at_most: usize,
        reserve: Option<&Reserve>,
    ) -> Option<Acquired> {
        let acquired = self.tree.acquire(namespace, tokens, at_most);
        if reserve.is_some_and(|reserve| !self.has_room_for(&acquired.lease, reserve)) {
            return None;
        }
        self.count_lookup(tokens, &acquired.lease);
        Some(acquired)
    }

    fn has_room_for(&mut self, lease: &Lease, Reserve { tokens, beside }: &Reserve) -> bool {
        let wanted = lease.wanted(*tokens).into_iter().zip(beside).enumerate();
        // A window moves on: it never holds more than a lone sequence needs.
        let wanted: Vec<usize> = wanted.map(|(g, (pages, beside))| pages.min(self.pools.minimum(g)) + beside).collect();
        let missing = self.pools.missing(&wanted);
        missing.iter().all(|pages| *pages == 0) || self.usage().iter().zip(missing).all(|(g, pages)| g.cached >= pages)
    }

    fn count_lookup(&mut self, tokens: &[u32], lease: &Lease) {
        self.counters.lookups += 1;
        self.counters.hits += u64::from(!lease.is_empty());
        self.counters.tokens_wanted += tokens.len() as u64;
        self.counters.tokens_reused += lease.len() as u64;
    }

    /// Provides pages for the rows of a sequence up to token `to`, and a slot for its recurrent state, evicting cached
    /// state if need be. Must be called
    /// before each step, with the end of its rows; the step's copies and tables come from the lease afterwards.
    ///
    /// # Errors
    /// If all pages or slots are in use. The sequence is unchanged and may be tried again.
    pub fn grow(&mut self, lease: &mut Lease, to: usize) -> Result<(), NoRoom> {
        self.make_room(&lease.wanted(to))?;
        if lease.wants_slot(to) {
            self.provide_slot(lease)?;
        }
        lease.extend(to, &mut self.pools)
    }

    /// A lease on the longest cached prefix of `tokens` whose state is to be saved. If it is unsettled, a step of no rows
    /// must settle it first.
    ///
    /// # Errors
    /// If it is unsettled and there is no slot to settle it in.
    pub fn export(&mut self, namespace: u64, tokens: &[u32]) -> Result<Lease, NoRoom> {
        let mut lease = self.tree.acquire(namespace, tokens, tokens.len()).lease;
        if lease.unsettled() {
            self.provide_slot(&mut lease)?;
        }
        Ok(lease)
    }

    /// A lease of `len` tokens whose state is to be restored: its pages and slot are its own and hold nothing yet.
    ///
    /// # Errors
    /// If all pages or slots are in use.
    pub fn import(&mut self, namespace: u64, len: usize) -> Result<Lease, NoRoom> {
        let mut lease = self.tree.acquire(namespace, &[], 0).lease;
        self.make_room(&lease.claimed(len))?;
        self.provide_slot(&mut lease)?;
        lease.claim(len, &mut self.pools)?;
        Ok(lease)
    }

    /// Rather than take memory that was never used, gives up short ends of conversations, of which a few are enough: to
    /// compute one again takes less than its memory is worth. So a server of many short requests does not grow.
    fn spare_memory(&mut self, wanted: &[usize]) {
        let groups = self.tree.groups.len();
        while (0..groups).any(|g| wanted.get(g).is_some_and(|&wanted| wanted > self.pools.free(g))) {
            let Some(lost) = self.tree.evict_short_end(self.policy.as_ref()) else { return };
            self.count_eviction(lost);
        }
    }

    /// Evicts until so many pages of each group can be had.
    fn make_room(&mut self, wanted: &[usize]) -> Result<(), NoRoom> {
        self.spare_memory(wanted);
        loop {
            let missing = self.pools.missing(wanted);
            let Some(group) = missing.iter().position(|&n| n > 0) else { return Ok(()) };
            let Some(lost) = self.tree.evict(self.policy.as_ref(), &missing) else {
                return Err(NoRoom::Pages { group, missing: missing[group] });
            };
            self.count_eviction(lost);
        }
    }

    /// Gives up pages of at most about `bytes`: first those that nobody has, then cached prefixes that no sequence uses. The
    /// program is to release their memory before they are dropped.
    pub fn give_up(&mut self, bytes: u64) -> Vec<(usize, Page)> {
        let page_bytes: Vec<u64> = self.tree.groups.iter().map(|group| group.page_bytes as u64).collect();
        let of = |pages: &[(usize, Page)]| pages.iter().map(|(group, _)| page_bytes[*group]).sum::<u64>();
        let mut given = self.pools.take_unused(bytes);
        while of(&given) < bytes {
            let left = bytes - of(&given);
            let each = left.checked_div(page_bytes.iter().sum()).unwrap_or(0) as usize + 1;
            let Some(lost) = self.tree.evict(self.policy.as_ref(), &vec![each; page_bytes.len()]) else { break };
            self.count_eviction(lost);
            given.extend(self.pools.take_unused(left));
        }
        given
    }

    /// Gives a sequence with recurrent state a slot to write to, unless it has one.
    fn provide_slot(&mut self, lease: &mut Lease) -> Result<(), NoRoom> {
        let (Some(slots), Some(recurrent)) = (&mut self.slots, &mut lease.recurrent) else { return Ok(()) };
        while recurrent.wants_slot() {
            if let Some(slot) = slots.allocate() {
                recurrent.provide(slot);
                break;
            }
            let lost = self.tree.evict_attachment(self.policy.as_ref(), recurrent.slot()).ok_or(NoRoom::Slots)?;
            self.counters.evictions += 1;
            self.counters.tokens_evicted += lost as u64;
        }
        Ok(())
    }

    fn count_eviction(&mut self, lost: usize) {
        self.counters.evictions += 1;
        self.counters.tokens_evicted += lost as u64;
    }

    /// Lets others find the state of `tokens`, the first of the sequence, up to any that is computed. The sequence runs
    /// on, and may find equal pages of others in place of some of its own.
    ///
    /// # Errors
    /// If some of the tokens are not computed.
    pub fn publish(&mut self, lease: &mut Lease, tokens: &[u32], resume: Resume) -> Result<(), PublishError> {
        if tokens.len() > lease.len() {
            return Err(PublishError { tokens: tokens.len(), len: lease.len() });
        }
        if tokens.len() >= lease.published && !tokens.is_empty() {
            self.tree.publish(lease, tokens, resume);
        }
        Ok(())
    }

    /// Ends a sequence. The state of `tokens` stays cached.
    ///
    /// # Errors
    /// As [`StateCache::publish`]; the sequence is ended all the same.
    pub fn retire(&mut self, mut lease: Lease, tokens: &[u32]) -> Result<(), PublishError> {
        self.publish(&mut lease, tokens, Resume::Keep)
    }

    /// Evicts all that no sequence uses.
    pub fn clear(&mut self) {
        self.tree.clear();
    }

    /// Page ids of a group are below this; a program must have reserved so many before a step uses them.
    pub fn capacity(&self, group: usize) -> usize {
        self.pools.capacity(group)
    }

    /// Bytes of pages spoken for, and bytes there are for them.
    pub fn bytes(&self) -> (u64, u64) {
        (self.pools.committed(), self.pools.budget())
    }

    /// Who has the slots of recurrent state; all zero if the model has none.
    pub fn slot_usage(&mut self) -> SlotUsage {
        let Some(slots) = &mut self.slots else { return SlotUsage::default() };
        let (capacity, free) = (slots.capacity(), slots.free());
        let attached = self.tree.live().filter(|(_, node)| node.attachment.is_some()).count();
        SlotUsage { capacity, free, attached, slot_bytes: slots.slot_bytes(), budget: slots.budget() }
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Who has the pages. Looks at every cached page: for metrics, not for each step.
    pub fn usage(&mut self) -> Vec<GroupUsage> {
        let groups = Arc::clone(&self.tree.groups);
        groups.iter().enumerate().map(|(g, group)| self.group_usage(g, group)).collect()
    }

    fn group_usage(&mut self, g: usize, group: &StateGroup) -> GroupUsage {
        let mut outside: HashMap<u32, usize> = HashMap::new();
        for page in self.tree.live().flat_map(|(_, node)| node.pages[g].iter().flatten()) {
            *outside.entry(page.id()).or_insert_with(|| page.references()) -= 1;
        }
        let cached = outside.values().filter(|references| **references == 0).count();
        let (capacity, free) = (self.pools.capacity(g), self.pools.free(g));
        let used = capacity.saturating_sub(free + cached);
        GroupUsage { capacity, free, cached, used, page_bytes: group.page_bytes }
    }
}
