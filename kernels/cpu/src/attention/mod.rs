//! Attention over the paged cache.
//!
//! Queries walk the keys in blocks of a page, on a grid anchored at the sequence's first token, with a softmax that is
//! corrected as greater scores come. Every [`SEGMENT`] blocks the softmax starts anew and the finished segment is merged
//! into the total. So do blocks of keys from other sources, after those of the cache (`sight`). A query's blocks, segments and order of sums depend on its position alone, and keys that it does not
//! see take no part in any sum: so its bits do not depend on how the work is cut (`pieces`).

mod blocks;
mod coded;
pub(crate) mod element;
mod integers;
mod kernels;
mod merge;
mod pieces;
mod quantized;
mod run;
pub(crate) mod sight;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod tiles;
pub(crate) mod top_keys;

pub(crate) use merge::{Partials, places};
pub(crate) use pieces::Pieces;
pub(crate) use run::{Attention, PieceScratch};
pub(crate) use tiles::Cut;

/// Blocks after which the softmax starts anew.
const SEGMENT: usize = 16;

/// Most queries of a tile.
const TILE_QUERIES: usize = 32;

/// Most queries of a piece, counted for each of its heads of keys.
const SLOTS: usize = 64;
