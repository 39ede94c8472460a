//! Writing a step's keys and values to the cache.

use std::ops::Range;

use bantam_backend::{KvType, Step};

use super::{
    element::{Element, with_element},
    quantized::{self, HeadRoom},
};
use crate::{
    isa::Isa,
    pool::{Pool, StateSlot},
    step::RowMap,
};

/// Writes items (row, head) of `x` to the pages of their sequences.
///
/// # Safety
/// The step must have been checked against the pool, and nobody else may touch these items' places.
pub(crate) unsafe fn store(
    x: &[f32],
    (pool, slot): (&Pool, &StateSlot),
    (step, rows): (&Step, &RowMap),
    items: Range<usize>,
    isa: Isa,
    room: &mut HeadRoom,
) {
    for item in items {
        let (row, head) = (item / slot.heads, item % slot.heads);
        let (page, place) = slot.place(rows.positions[row] as usize);
        let page = step.sequences[rows.sequences[row] as usize].tables[slot.group][page];
        let target = pool.head(slot, page, head);
        let values = &x[item * slot.dim..][..slot.dim];
        // SAFETY: as this function's; the target is a head of this slot.
        unsafe {
            with_element!(slot.ty, E => store_as::<E>(values, slot, target, place), quantized => {
                quantized::store(isa, values, slot, target, place, room);
            });
        }
    }
}

/// Writes row `place` of a head.
///
/// # Safety
/// `target` must be a head of `slot`, and nobody else may touch the row.
unsafe fn store_as<E: Element>(values: &[f32], slot: &StateSlot, target: *mut u8, place: usize) {
    const CHUNK: usize = 64;
    let mut rounded = [E::Bits::default(); CHUNK];
    for (c, values) in values.chunks(CHUNK).enumerate() {
        let rounded = &mut rounded[..values.len()];
        E::store(values, rounded);
        for (i, bits) in rounded.iter().enumerate() {
            // SAFETY: one of the head's `PAGE_ROWS × dim` numbers, and this row's alone.
            unsafe { target.cast::<E::Bits>().add(slot.entry(place, c * CHUNK + i)).write(*bits) };
        }
    }
}
