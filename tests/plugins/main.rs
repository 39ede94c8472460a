//! Family plugins through the binary: bad ones are refused, one line each, and the rest goes on.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod bad;
mod graphs;
mod ops;
#[path = "../support/plugins.rs"]
mod plugins;
#[path = "../support/mod.rs"]
mod support;
mod trust;
mod wasm;
