//! Remembering what a piece of text was encoded to, within one text.

use std::collections::HashMap;
use std::ops::Range;

/// Longer pieces hardly ever come twice.
const LONGEST: usize = 64;

/// Where in the output the ids of each piece already are. The keys come from users, so the hash is one that they cannot
/// make collide.
#[derive(Default)]
pub(crate) struct PieceCache<'t>(HashMap<&'t str, Range<usize>>);

impl<'t> PieceCache<'t> {
    /// Appends the ids of `piece` to `ids`: those of its earlier occurrence, or what `encode` appends.
    pub(crate) fn encode(&mut self, piece: &'t str, ids: &mut Vec<u32>, encode: impl FnOnce(&mut Vec<u32>)) {
        if piece.len() > LONGEST {
            return encode(ids);
        }
        if let Some(range) = self.0.get(piece) {
            ids.extend_from_within(range.clone());
            return;
        }
        let start = ids.len();
        encode(ids);
        self.0.insert(piece, start..ids.len());
    }
}
