//! The state of sequences, and the prefix tree through which they share it.
//!
//! Pure structures, owned by one actor: a [`StateCache`] holds the pools of pages (one per state group, all under one
//! budget), slots of recurrent state under their own, and a radix tree over tokens. A running sequence holds a
//! [`Lease`]. Its life:
//!
//! 1. [`StateCache::acquire`] finds the longest cached prefix and gives a lease that starts there.
//! 2. Before a step, [`StateCache::grow`] provides pages for the step's rows, evicting cached prefixes nobody uses.
//!    [`Lease::tables`], [`Lease::take_copies`] and [`Lease::recurrent_step`] go into the step.
//! 3. After it, [`Lease::advance`] counts the accepted rows and [`StateCache::publish`] shows them to other requests,
//!    while this sequence runs on. [`Lease::truncate`] takes rows back.
//! 4. [`StateCache::retire`] ends it; its prefix stays cached. Dropping the lease does the same without publishing.
//!
//! [`StateCache::export`] and [`StateCache::import`] lease state that is saved to bytes, or restored from them.
//!
//! Rules that keep shared pages right:
//!
//! - Rows that others can see are never written again. A sequence appends to a page of its own even when the rows
//!   before are published; whoever did not allocate the page, or wants to rewrite published rows, gets a copy first.
//! - A page held by a node contains the rows of the whole path to that node, from the page's first token on. So a node
//!   may end, and be split, at any token.
//! - A node that a lease stands on is pinned; only unpinned nodes are evicted, from the leaves up.
//! - Pages of window groups are kept only before resume points: ends of leaves, ends published with
//!   [`Resume::Keep`], and points where a request did resume.
//! - A recurrent value is of one length exactly. Where a sequence publishes with [`Resume::Keep`] its value becomes an
//!   attachment of the node, which nobody writes any more: whoever goes on from it, that sequence too, reads it and writes
//!   to a slot of its own; as long as nothing was attached, steps advance the value in place. A model with recurrent state
//!   resumes at attachments alone, so a prefix without one behind it is worth nothing.

mod acquire;
mod evict;
mod graft;
mod ids;
mod image;
mod lease;
mod pool;
mod publish;
mod slots;
mod state_cache;
mod tree;

#[cfg(test)]
mod tests;

pub use evict::{Candidate, CandidateKind, EvictionPolicy, LeastRecentlyUsed};
pub(crate) use graft::{GraftError, Held, StateKept, Watched, WatchedTree};
pub use image::{Amount, ImageError, NodeImage, PageImage, StateShape, TreeImage};
pub use lease::{Lease, LeaseError, PagePlace, PendingCopy};
pub use pool::{NoRoom, Page, PoolError, Pools, one_sequence};
pub use state_cache::{Acquired, Counters, GroupUsage, PublishError, Reserve, Resume, SlotUsage, StateCache};
