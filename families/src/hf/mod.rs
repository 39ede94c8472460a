//! Hugging Face checkpoints of the built-in families, by the tables that [`bantam_family_blocks::hf`] reads.

pub(crate) mod bailing;
pub(crate) mod qwen35;
