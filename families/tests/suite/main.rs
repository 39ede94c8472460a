//! What the built-in families promise, checked without a backend.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod card;
mod chats;
mod config;
mod described;
mod drafts;
#[path = "../../../kernels/graph/tests/suite/everything.rs"]
mod everything;
mod golden;
mod hostile;
mod imports;
mod interpreter;
mod layouts;
mod mixers;
mod support;
mod wire;
