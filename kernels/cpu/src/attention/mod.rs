//! Attention over the paged cache.
//!
//! The queries that share a head of keys are cut into tiles of one sequence. A tile walks the keys in blocks of a page,
//! on a grid anchored at the sequence's first token, with a softmax that is corrected as greater scores come. Every
//! [`SEGMENT`] blocks the softmax starts anew and the finished segment is merged into the total, so that segments can be
//! computed by different members. A query's blocks, segments and order of sums depend on its position alone; keys that it
//! does not see take no part in any sum.

pub(crate) mod element;
mod kernels;
pub(crate) mod store;
mod tile;

pub(crate) use tile::{Attention, TileScratch, Tiles};

/// Blocks after which the softmax starts anew.
const SEGMENT: usize = 16;

/// Most queries of a tile.
const TILE_QUERIES: usize = 32;
