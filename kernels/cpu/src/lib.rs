//! The CPU backend: runs graphs on ragged batches.
//!
//! [`CpuBackend`] lowers a graph to nodes as coarse as one loop over memory, computes for logit rows only what no state
//! needs, fuses, cuts the nodes into regions with as few barriers as possible, and plans one arena for all values
//! (`compile`). A step runs on all members of the [`Team`] at once (`exec`), with matrix products (`linear`) and
//! attention over the paged cache (`attention`) as the parts that matter.
//!
//! Invariant: on one instruction-set path the bits of a row depend on that row and the state it reads alone. No thread
//! count, batch, chunk or page number changes them.
//!
//! Invariant: a running step allocates nothing and takes no lock but the team's turn, once.

#![allow(unsafe_code, reason = "SIMD intrinsics, and buffers that the members of a team write side by side")]

mod attention;
mod backend;
mod compile;
mod exec;
pub mod isa;
pub mod linear;
mod memory;
mod os;
mod pool;
mod profile;
mod program;
mod recurrent;
mod simd;
mod step;
mod team;

// Unit tests compile the models of the tests of steps.
#[cfg(test)]
#[allow(dead_code, reason = "shared with the suite")]
#[path = "../tests/suite/hybrid.rs"]
mod hybrid;
#[cfg(test)]
#[allow(dead_code, reason = "shared with the suite")]
#[path = "../tests/suite/model.rs"]
mod model;

pub use backend::CpuBackend;
pub use compile::{StateForms, state_forms};
pub use pool::PAGE_ROWS;
pub use team::{Broken, Member, Panicked, Team};
