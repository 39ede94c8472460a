//! The runtime: loads models, keeps the state of sequences, decides what is computed when, and samples.
//!
//! [`engine::Engine`] is the front. Behind it stand the actors (`actors`), each owning one thing that lives longer than
//! a request. [`cache`] and [`sampling`] are pure structures that actors own; [`load`] reads checkpoints; [`snapshot`] makes
//! bytes of a sequence's state; [`placement`] decides what lies where; [`probe`] runs
//! exactly given tokens and checks that all ways of computing them agree.
//!
//! Invariants: this crate knows no wire format and no model family; nothing computes on the threads that serve I/O.

mod actors;
pub mod cache;
pub mod engine;
pub mod hardware;
pub mod load;
mod memory;
mod os;
pub mod placement;
pub mod probe;
mod resident;
pub mod sampling;
pub mod snapshot;
mod turns;
pub mod words;

pub use os::available_memory;
