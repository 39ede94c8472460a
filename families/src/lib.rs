//! The built-in model families.
//!
//! A family is one file, or one folder, with three parts in a fixed order: its configuration, read from the checkpoint's
//! metadata; its weights, declared with their shapes and checked against the checkpoint; and the forward pass, as a graph.
//! What two families share lives in [`bantam_family_blocks`]. The chat formats stand together in `chat`; where the parts of
//! Hugging Face checkpoints come from, in tables in `hf`.
//!
//! Invariant: nothing here computes, reads a file or knows a device, and no input makes it panic.

mod bailing;
mod chat;
mod deepseek;
mod gemma;
mod gemma4;
mod hf;
mod k2_horizon;
mod laguna;
mod llama;
mod muse_glimmer;
mod nemotron_h;
mod qwen;
mod qwen35;
mod qwen4exp;
mod registry;

pub use bailing::Bailing;
pub use deepseek::DeepSeek;
pub use gemma::Gemma;
pub use gemma4::Gemma4;
pub use k2_horizon::K2Horizon;
pub use laguna::Laguna;
pub use llama::Llama;
pub use muse_glimmer::MuseGlimmer;
pub use nemotron_h::NemotronH;
pub use qwen::Qwen;
pub use qwen4exp::Qwen4Exp;
pub use qwen35::Qwen35;
pub use registry::{architectures, describe, describe_draft, families, family, import};
