//! Tables read by integers, and the hashes that address them.

use bantam_gguf::dequantize_row;
use bantam_graph::NgramHash;

use super::turn::Turn;
use crate::compile::{IntegerTable, Table, ir::ValueId};

/// Writes the table row of each id, times `scale`. Ids are below the table's rows: the step was checked.
pub(super) fn embed(table: &Table, ids: &[u32], scale: f32, out: &mut [f32]) {
    for (id, out) in ids.iter().zip(out.chunks_exact_mut(table.width)) {
        let decoded = dequantize_row(table.data.ty, &table.data.bytes, *id as usize, out);
        assert!(decoded.is_ok(), "row {id} of {}: {decoded:?}", table.rows);
        if scale != 1.0 {
            out.iter_mut().for_each(|x| *x *= scale);
        }
    }
}

/// Writes the integers of each id.
pub(super) fn lookup(turn: &Turn<'_>, ids: ValueId, table: &IntegerTable) {
    let rows = turn.member.share(turn.rows(), 1);
    let ids = &turn.read::<u32>(ids)[rows.clone()];
    for (out, id) in turn.own::<u32>(rows, table.width).chunks_exact_mut(table.width).zip(ids) {
        out.copy_from_slice(&table.values[*id as usize * table.width..][..table.width]);
    }
}

/// Hashes the last tokens of each row, once for each head. `places` holds the token, the one before, and so on.
pub(super) fn ngram_hash(turn: &Turn<'_>, places: &[ValueId], hash: &NgramHash) {
    let (rows, heads) = (turn.member.share(turn.rows(), 1), hash.heads.len());
    for (out, row) in turn.own::<u32>(rows.clone(), heads).chunks_exact_mut(heads).zip(rows) {
        let id = |place: usize| turn.read::<u32>(places[place])[row];
        // Tokens from the nearest boundary on count as the boundary; the token itself cuts nothing.
        let cut = (1..places.len()).find(|place| id(*place) == hash.boundary).unwrap_or(places.len());
        for (out, head) in out.iter_mut().zip(&hash.heads) {
            let term = |place: usize| {
                let id = if place < cut { id(place) } else { hash.boundary };
                u64::from(id).wrapping_mul(hash.multipliers[place])
            };
            let mixed = (0..head.order).fold(0, |mixed, place| mixed ^ term(place));
            // Below `rows`, so it fits.
            *out = head.offset + (mixed % u64::from(head.rows)) as u32;
        }
    }
}
