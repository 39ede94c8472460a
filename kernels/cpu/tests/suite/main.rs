//! The CPU backend on small random models: against plain loops, against itself, and against steps that do not fit.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod batching;
mod failure;
mod huge;
mod hybrid;
mod model;
mod oracle;
mod recurrent;
mod refusals;
mod session;
mod state;
