//! Snapshots: the whole state of a sequence as bytes, to be taken up again by another process.
//!
//! A [`SavedState`] is what the program gave for each page and the slot of a sequence, with its tokens. [`encode`] makes
//! bytes of it, under the [`SnapshotKey`] of the model and its configuration; [`decode`] takes bytes only if they are
//! whole, undamaged and of the same key. Nothing in them is trusted before.
//!
//! How a state leaves and enters the caches stands in the scheduler (`actors::scheduler::transfer`): between two steps
//! the kv actor leases it, and the executor's thread copies it.

mod format;
mod key;

pub(crate) use format::{decode, encode};
pub use key::SnapshotKey;
pub(crate) use key::key_of;

use crate::cache::PagePlace;

/// Why a state cannot be saved or restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Other bytes.
    #[error("not a snapshot: expected the bytes BANTAMST at its start")]
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
