//! The actors, loading, caches and sampling.

pub mod cache;
pub mod load;
pub mod sampling;
