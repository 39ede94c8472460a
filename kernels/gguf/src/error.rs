//! What can be wrong with a GGUF file.

use std::io;
use std::path::PathBuf;

/// A file that cannot be opened, breaks the format, or lacks what a caller needs. Every message begins with the file.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The operating system would not open or map the file.
    #[error("{}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A part of the file breaks a rule of the format.
    #[error("{}: {field}: expected {expected}, found {found}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The part, such as `tensor output.weight: offset`.
        field: String,
        /// The rule.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// A key holds a value of another type, or one out of range, than the caller needs.
    #[error("{}: key {key}: expected {expected}, found {found}", .file.display())]
    Value {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// The type needed.
        expected: &'static str,
        /// Type and value, shortened.
        found: String,
    },
    /// A key that the caller needs is not there.
    #[error("{}: key {key}: expected {expected}, found no such key", .file.display())]
    MissingKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// The type needed.
        expected: &'static str,
    },
    /// A tensor that the caller needs is not there.
    #[error("{}: tensor {tensor}: not in the file", .file.display())]
    MissingTensor {
        /// The file.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
    },
    /// The user named a later shard; a model is opened by its first.
    #[error("{}: this is a later shard of a split model; open the first, {}", .file.display(), .first.display())]
    NotFirstShard {
        /// The file.
        file: PathBuf,
        /// The file to open instead.
        first: PathBuf,
    },
}

/// A broken rule before it is known which file it is in.
#[derive(Debug)]
pub(crate) struct Fault {
    field: String,
    expected: String,
    found: String,
}

impl Fault {
    pub(crate) fn new(field: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { field: field.into(), expected: expected.into(), found: found.into() }
    }

    /// The same fault, its field being part of `outer`.
    pub(crate) fn within(self, outer: &str) -> Self {
        Self { field: format!("{outer}: {}", self.field), ..self }
    }

    pub(crate) fn in_file(self, file: impl Into<PathBuf>) -> GgufError {
        GgufError::Invalid { file: file.into(), field: self.field, expected: self.expected, found: self.found }
    }
}

/// Longest part of a file's text in a message.
const SHOWN: usize = 64;

/// Bytes of a file as text in quotes, cut to a length that suits a message.
pub(crate) fn quote(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN) {
        Some(start) if bytes.len() > SHOWN => format!("{:?}…", String::from_utf8_lossy(start)),
        _ => format!("{:?}", String::from_utf8_lossy(bytes)),
    }
}

/// A key or a tensor as the field of a fault. Its name is the file's, so it may be long and hold anything.
pub(crate) fn named(kind: &str, name: &str) -> String {
    let cut = if name.chars().nth(SHOWN).is_some() { "…" } else { "" };
    let shown: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    format!("{kind} {shown}{cut}")
}
