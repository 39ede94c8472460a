//! Opening a model: files, description, weights.
//!
//! [`open`] maps a GGUF file or a directory of safetensors files, gives metadata and tensor list to the family of its
//! architecture, and returns the description with a [`ModelSource`] that evaluates its weights. No weight is read before a
//! backend asks for it. A directory is first brought into the terms of the family's GGUF files
//! ([`Families::import`]), so that the same family code describes both.

mod checkpoint;
mod draft;
mod expr;
mod files;
mod fingerprint;
mod form;
mod safetensors;
mod source;

pub use checkpoint::checkpoint;
pub use draft::{DraftSource, LoadedDraft, open_draft};
pub use files::{Directory, ModelFiles};
pub(crate) use fingerprint::fingerprint;
pub use form::WeightForm;
#[cfg(test)]
pub(crate) use form::form;
pub use safetensors::{SafetensorsError, SafetensorsFiles, TensorEntry};
pub use source::ModelSource;

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::Arc,
};

use bantam_backend::CustomOps;
use bantam_family_api::{FamilyError, Model};
use bantam_gguf::GgufError;
use bantam_plugins::{Described, Families};

/// An opened and described model.
#[derive(Debug)]
pub struct LoadedModel {
    /// What the family says of it.
    pub model: Model,
    /// Where its tokenizer and its chat template are.
    pub files: ModelFiles,
    /// Its weights.
    pub source: ModelSource,
    /// What computes the ops that its plugin brings, if it has any.
    pub ops: Option<Arc<dyn CustomOps>>,
}

/// Why a model cannot be opened. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The GGUF file cannot be read or breaks the format.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Safetensors files cannot be read, are missing or break the format.
    #[error(transparent)]
    Safetensors(#[from] SafetensorsError),
    /// The family refuses the checkpoint, or there is none for it.
    #[error("{}: {source}", .file.display())]
    Family {
        /// The file or directory.
        file: PathBuf,
        /// The key, tensor or architecture at fault.
        source: FamilyError,
    },
    /// Another file is missing or damaged: configuration, tokenizer, chat template.
    #[error("{}: {why}", .file.display())]
    Other {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl LoadError {
    fn other(file: &Path, why: &dyn Display) -> Self {
        LoadError::Other { file: file.into(), why: why.to_string() }
    }
}

/// Unused tensors that a warning names.
const NAMED_UNUSED: usize = 8;

/// Opens a GGUF model by its only or first file, or a directory of safetensors files. Warns of tensors that the model does
/// not use.
///
/// # Errors
/// A file that cannot be read or is damaged, an unknown architecture, a key or tensor that does not fit.
pub fn open(path: impl AsRef<Path>, families: &Families) -> Result<LoadedModel, LoadError> {
    let files = ModelFiles::open(path.as_ref())?;
    let (described, source) = files.describe(families)?;
    let ops = families.ops(&described).map_err(|source| LoadError::Family { file: files.path().into(), source })?;
    let Described { model, .. } = described;
    let draft = model.draft.iter().map(|draft| &draft.graph);
    let unused = source.unused(std::iter::once(&model.text).chain(draft));
    if !unused.is_empty() {
        let (count, first) = (unused.len(), unused.get(..NAMED_UNUSED).unwrap_or(&unused));
        tracing::warn!(file = %files.path().display(), count, ?first, "the model does not use some of its tensors");
    }
    Ok(LoadedModel { model, files, source, ops })
}
