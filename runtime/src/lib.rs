//! The actors, loading, caches and sampling.

pub mod load;
