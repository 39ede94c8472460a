//! The chat page, embedded in the binary.
