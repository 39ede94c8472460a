//! Each op against naive loops, on every instruction set, and its rows against themselves in other company.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod attention;
mod bench;
mod custom;
mod linear;
mod moe;
mod rows;
mod streams;
mod tables;
mod turbo;
mod weights;
