//! The CPU backend: runs graphs on ragged batches.

#![allow(unsafe_code, reason = "vector instructions and memory shared by worker threads")]

pub mod isa;
pub mod linear;
