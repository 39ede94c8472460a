//! The actors, loading, caches and sampling.
