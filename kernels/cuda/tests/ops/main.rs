//! Each op against naive loops, on the emulated card, and its rows against themselves in other company. The cases
//! are those of all backends, in `kernels/suite`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../../suite/attention.rs"]
mod attention;
mod backends;
#[path = "../../../suite/bench.rs"]
mod bench;
#[path = "../../../suite/custom.rs"]
mod custom;
#[path = "../../../suite/linear.rs"]
mod linear;
#[path = "../../../suite/moe.rs"]
mod moe;
#[path = "../../../suite/rows.rs"]
mod rows;
#[path = "../../../suite/streams.rs"]
mod streams;
#[path = "../../../suite/tables.rs"]
mod tables;
#[path = "../../../suite/turbo.rs"]
mod turbo;
#[path = "../../../suite/weights.rs"]
mod weights;
