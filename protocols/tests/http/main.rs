//! The server over a real engine and a tiny model with random weights: what it says is nonsense, how it says it is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod answers;
mod anthropic;
mod client;
mod control;
mod exposition;
mod families;
mod fuzz;
mod inside;
mod lifecycle;
mod limits;
mod llama;
mod load;
mod metrics;
mod progress;
mod refusals;
mod responses;
mod script;
mod server;
