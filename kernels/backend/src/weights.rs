//! Where a backend gets its weights from.

use std::{ops::Range, sync::Arc};

use bantam_gguf::GgmlType;
use bantam_graph::Weight;

/// Bytes that stay valid as long as they are held: a part of a mapped file, or memory of their own.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
    is_owned: bool,
}

impl SharedBytes {
    /// A part of what `owner` holds; `None` if it has no such range.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Option<Self> {
        let len = (*owner).as_ref().len();
        (range.start <= range.end && range.end <= len).then_some(SharedBytes { owner, range, is_owned: false })
    }

    /// Memory of its own.
    pub fn owned(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        SharedBytes { owner: Arc::new(bytes), range, is_owned: true }
    }

    /// Whether they are a part of memory of their own, which [`SharedBytes::owned`] was given: not of a file.
    pub fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// A part of these bytes; `None` if they have no such range.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let start = self.range.start.checked_add(range.start)?;
        let end = self.range.start.checked_add(range.end)?;
        if end > self.range.end {
            return None;
        }
        let part = SharedBytes::new(Arc::clone(&self.owner), start..end)?;
        Some(SharedBytes { is_owned: self.is_owned, ..part })
    }
}

impl std::ops::Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.range.len())
    }
}

/// A weight's value: rows of `shape`'s last axis, in blocks of `ty`.
#[derive(Clone, Debug)]
pub struct WeightData {
    /// Number format.
    pub ty: GgmlType,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// The rows, one after another.
    pub bytes: SharedBytes,
}

/// Why a weight cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("weight `{weight}`: {why}")]
pub struct WeightError {
    /// The weight's name.
    pub weight: String,
    /// The tensor, what was expected, what was found.
    pub why: String,
}

/// Evaluates weight expressions over a checkpoint.
pub trait WeightSource: Send + Sync {
    /// The value of a weight, of exactly the declared shape.
    ///
    /// # Errors
    /// A missing tensor, another shape, a format that the expression cannot be computed in.
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError>;

    /// Says that a copy was made of this weight's bytes and the file's pages may leave memory.
    fn release(&self, weight: &Weight);
}
