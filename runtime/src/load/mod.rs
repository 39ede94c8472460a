//! Opening a model: file, description, weights.
//!
//! [`open`] maps the file, gives its metadata and tensor list to the family of its architecture, and returns the
//! description with a [`GgufSource`] that evaluates its weights. No weight is read before a backend asks for it.

mod checkpoint;
mod expr;
mod fingerprint;
mod source;

pub use checkpoint::checkpoint;
pub(crate) use fingerprint::fingerprint;
pub use source::GgufSource;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bantam_families::describe;
use bantam_family_api::{FamilyError, Model};
use bantam_gguf::{GgufError, GgufFile};

/// An opened and described model.
#[derive(Debug)]
pub struct LoadedModel {
    /// What the family says of it.
    pub model: Model,
    /// The file: its keys hold the tokenizer and the chat template.
    pub file: Arc<GgufFile>,
    /// Its weights.
    pub source: GgufSource,
}

/// Why a model cannot be opened. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read or breaks the format.
    #[error(transparent)]
    File(#[from] GgufError),
    /// The family refuses the checkpoint, or there is none for it.
    #[error("{}: {source}", .file.display())]
    Family {
        /// The file.
        file: PathBuf,
        /// The key, tensor or architecture at fault.
        source: FamilyError,
    },
}

/// Opens a GGUF model by its only or first file. Warns of tensors that the model does not use.
///
/// # Errors
/// A file that cannot be read or is damaged, an unknown architecture, a key or tensor that does not fit.
pub fn open(path: impl AsRef<Path>) -> Result<LoadedModel, LoadError> {
    let file = Arc::new(GgufFile::open(path)?);
    let model =
        describe(&checkpoint(&file)?).map_err(|source| LoadError::Family { file: file.path().into(), source })?;
    let source = GgufSource::new(Arc::clone(&file));
    let unused = source.unused(&model.text);
    if !unused.is_empty() {
        tracing::warn!(file = %file.path().display(), tensors = ?unused, "the model does not use some of its tensors");
    }
    Ok(LoadedModel { model, file, source })
}
