//! Hugging Face checkpoints: their configuration and tensors in the terms of the families' GGUF files.
//!
//! The family code reads GGUF's keys and tensors alone; what is here says, as data, where each comes from. A family adds a
//! file with
//!
//! 1. a table of [`Key`]s that are copied from `config.json` under another name ([`Importer::keys`]), each with what the
//!    reference takes where it is missing; a table of those of which the family knows one value ([`Config::fixed`]); and a
//!    few lines for those that are computed ([`Importer::set`]);
//! 2. tables of [`Row`]s for the tensors outside the layers, of each kind of layer, and of the draft block
//!    ([`Importer::tensors`]): the name behind a prefix, the name in the files behind another, and [`How`] one becomes the
//!    other, with the shape that it must have in the files where the family does not see that. A row whose tensor the
//!    files lack is passed over: the family itself says what it misses, and the error is translated back;
//! 3. a function from [`HfCheckpoint`](bantam_family_api::HfCheckpoint) to [`Import`](bantam_family_api::Import), which its
//!    [`Family::import`](bantam_family_api::Family::import) calls, and the names in
//!    [`Family::hf_architectures`](bantam_family_api::Family::hf_architectures).

mod config;
mod importer;

pub use config::{Config, Fixed};
pub use importer::{How, Importer, Key, Row, Shape};
