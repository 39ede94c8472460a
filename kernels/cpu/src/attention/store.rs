//! Writing a step's keys and values to the cache.

use std::ops::Range;

use bantam_backend::{KvType, Step};

use super::element::{Element, with_element};
use crate::{
    pool::{PAGE_ROWS, Pool, StateSlot},
    step::RowMap,
};

/// Writes items (row, head) of `x` to the pages of their sequences.
///
/// # Safety
/// The step must have been checked against the pool, and nobody else may touch these items' places.
pub(crate) unsafe fn store(x: &[f32], pool: &Pool, slot: &StateSlot, step: &Step, rows: &RowMap, items: Range<usize>) {
    // SAFETY: as this function's.
    with_element!(slot.ty, E => unsafe { store_as::<E>(x, pool, slot, step, rows, items) });
}

unsafe fn store_as<E: Element>(
    x: &[f32],
    pool: &Pool,
    slot: &StateSlot,
    step: &Step,
    rows: &RowMap,
    items: Range<usize>,
) {
    const CHUNK: usize = 64;
    let mut rounded = [E::Bits::default(); CHUNK];
    for item in items {
        let (row, head) = (item / slot.heads, item % slot.heads);
        let position = rows.positions[row] as usize;
        let (page, place) = slot.place(position);
        let page = step.sequences[rows.sequences[row] as usize].tables[slot.group][page];
        let target = pool.head(slot, page, head).cast::<E::Bits>();
        for (c, values) in x[item * slot.dim..][..slot.dim].chunks(CHUNK).enumerate() {
            let rounded = &mut rounded[..values.len()];
            E::store(values, rounded);
            for (i, bits) in rounded.iter().enumerate() {
                let entry = c * CHUNK + i;
                let at = if slot.transposed { entry * PAGE_ROWS + place } else { place * slot.dim + entry };
                // SAFETY: one of the head's `PAGE_ROWS × dim` numbers, and this item's alone.
                unsafe { target.add(at).write(*bits) };
            }
        }
    }
}
