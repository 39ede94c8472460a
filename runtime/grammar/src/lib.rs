//! What a model may say: which tools it may call and with what arguments, and what form its answer must have.

mod ask;

pub use ask::{ResponseFormat, ToolChoice};
