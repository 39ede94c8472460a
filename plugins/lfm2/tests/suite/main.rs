//! The plugin's family against the reference's logits, and against damaged checkpoints.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod golden;
mod hostile;
mod imports;
#[path = "../../../../families/tests/suite/interpreter/mod.rs"]
#[allow(dead_code, reason = "shared with the families' suite")]
mod interpreter;
mod support;
