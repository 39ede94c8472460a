//! The built-in model families: each builds graphs.
