//! GGUF containers and the tensor number formats.

pub mod types;

pub use types::GgmlType;
