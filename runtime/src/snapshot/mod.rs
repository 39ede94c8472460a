//! Snapshots: state as bytes, to be taken up again by another process.
//!
//! There is one format, for a prefix tree with the bytes of its pages and slots (`format`, `index`), under the
//! [`SnapshotKey`] of the model and its configuration. Bytes are taken only if they are whole, undamaged and of the same
//! key; nothing in them is trusted before.
//!
//! A [`SavedState`] is what the program gave for each page and the slot of one sequence, with its tokens: [`encode`] and
//! [`decode`]. How it leaves and enters the caches stands in the scheduler (`actors::scheduler::transfer`): between two
//! steps the kv actor leases it, and the executor's thread copies it.
//!
//! The whole cache of a model is kept in a [`CacheDirectory`]: the archive actor saves it (`actors::archive`), [`restore`]
//! fills an empty cache before the first request.

mod directory;
mod format;
mod index;
mod key;
mod restore;
mod sequence;

#[cfg(test)]
mod tests;

pub(crate) use directory::{CacheDirectory, prepare};
pub use key::SnapshotKey;
pub(crate) use key::key_of;
pub(crate) use restore::restore;
pub(crate) use sequence::{decode, encode};

use crate::cache::PagePlace;

/// Why a state cannot be saved or restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Other bytes.
    #[error("not a snapshot: expected the bytes BANTAMPT at its start")]
    NotASnapshot,
    /// Written by another version.
    #[error("snapshot of format {found}, expected {expected}: it is of no use any more")]
    Version {
        /// Its format.
        found: u32,
        /// The format there is.
        expected: u32,
    },
    /// Of another model, or the same with other cache types.
    #[error("snapshot of another model or configuration: expected key {expected}, found {found}")]
    Foreign {
        /// Key of the model that runs.
        expected: SnapshotKey,
        /// Key of the snapshot.
        found: SnapshotKey,
    },
    /// Cut off or changed.
    #[error("damaged snapshot: {0}")]
    Damaged(&'static str),
    /// None of the tokens' state is there.
    #[error("no state of these tokens is cached")]
    NotCached,
    /// The runtime could not do it.
    #[error("{0}")]
    Failed(String),
}

impl From<std::io::Error> for SnapshotError {
    fn from(error: std::io::Error) -> Self {
        SnapshotError::Failed(error.to_string())
    }
}

/// The state of a sequence after its tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedState {
    pub(crate) tokens: Vec<u32>,
    pub(crate) pages: Vec<SavedPage>,
    /// The recurrent value, if the model has any.
    pub(crate) slot: Option<Vec<u8>>,
}

/// The state of the first `tokens` tokens of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedPage {
    pub(crate) place: PagePlace,
    pub(crate) bytes: Vec<u8>,
}
