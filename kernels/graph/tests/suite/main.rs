//! The IR from outside: its JSON form, what the checker refuses, and graphs that work together.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod everything;
mod hostile;
mod json;
mod linked;
mod refusals;
