//! A model's turn taken apart, in the format of every family: recorded outputs, and whatever else a model may write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cases;
mod formats;
mod properties;
mod streaming;
mod support;

use support::Case;

#[test]
fn recorded_outputs_come_apart_as_they_are_meant() {
    let wrong: Vec<String> = cases::all().iter().filter_map(Case::wrong).collect();
    assert!(wrong.is_empty(), "{} outputs:\n{}", wrong.len(), wrong.join("\n\n"));
}
