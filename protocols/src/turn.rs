//! The turn that an answer comes to.

pub(crate) use bantam_runtime::engine::{Call, Turn};
