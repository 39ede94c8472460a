//! What a model writes under a grammar is what was asked for, whatever the model; what cannot be held to is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod calls;
mod families;
mod guides;
mod hostile;
mod model;
mod reader;
mod schemas;
