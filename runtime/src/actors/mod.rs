//! The actors. Each file has its messages on top; they are the documentation.
//!
//! ```text
//! root ─ registry ─ model ┬ archive    saves the cache to disk
//!                         ├ executor   owns the program and its thread
//!                         ├ experts    owns the statistics of mixtures of experts
//!                         ├ kv         owns pages and prefix tree
//!                         ├ scheduler  decides who runs
//!                         ├ turns      owns what was generated, by its text
//!                         └ slot × N   tokens to events
//! ```
//!
//! Rules: nothing computes in a handler; queues are bounded beside the mailboxes; cancellation is looked at between
//! steps; every request ends in exactly one terminal event.

pub(crate) mod archive;
pub(crate) mod executor;
pub(crate) mod experts;
pub(crate) mod job;
pub(crate) mod kv;
pub(crate) mod masks;
pub(crate) mod model;
pub(crate) mod registry;
pub(crate) mod root;
pub(crate) mod scheduler;
pub(crate) mod slot;
pub(crate) mod speech;
pub(crate) mod transfer;
pub(crate) mod tree;
pub(crate) mod turns;

#[cfg(test)]
mod tests;
