//! The CPU backend: runs graphs on ragged batches.
