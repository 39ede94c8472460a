//! Heads that are stored as codes with scales, behind them.
//!
//! A head of 8-bit integers is turned into floats once for many queries of a piece, and then read like one that was stored so;
//! few queries read it as it lies, with the same bits (`integers`). Rotated heads are read as they lie (`coded`).

use bantam_backend::{KV_BLOCK, KvType};
use half::f16;

mod q8_0;
mod rotation;
pub(super) mod turbo;

pub(super) use rotation::rotate;

use super::coded::{Codes, with_bits};
use crate::{
    isa::Isa,
    pool::{PAGE_ROWS, StateSlot},
    simd::with_floats,
};

/// Room for a head on its way into the cache or out of it.
#[derive(Debug, Default)]
pub(crate) struct HeadRoom {
    /// Its entries; those beyond the head's take what a rotated one has more.
    pub(super) entries: Vec<f32>,
    /// Codes, 8 to a word.
    words: Vec<u32>,
}

impl HeadRoom {
    /// For heads of at most `dim` entries.
    pub(crate) fn new(dim: usize) -> Self {
        let width = KvType::Turbo4.width(dim);
        HeadRoom { entries: vec![0.0; width], words: vec![0; width / 8] }
    }

    /// Takes a head in, filled up with zeros.
    pub(super) fn put(&mut self, head: &[f32], width: usize) {
        self.entries[..head.len()].copy_from_slice(head);
        self.entries[head.len()..width].fill(0.0);
    }

    /// Rounds the head of `dim` entries that was put here to a quantized type; leaves it rotated if the type is.
    pub(super) fn round(&mut self, isa: Isa, ty: KvType, dim: usize) {
        if ty.code_bits().is_some() {
            let scale = turbo::encode(isa, ty, dim, self);
            turbo::decode(isa, ty, dim, scale, self);
        } else {
            with_floats(isa, q8_0::Round(&mut self.entries[..dim]));
        }
    }

    /// Reads a row of a quantized head, rotated if the type is.
    ///
    /// # Safety
    /// `head` must be that of a page of the slot that nobody writes to, and `row` below [`PAGE_ROWS`].
    pub(super) unsafe fn read(&mut self, isa: Isa, slot: &StateSlot, head: *const u8, row: usize) {
        // SAFETY: one of the head's scales, which lie behind its codes; heads are aligned.
        let scale = |block: usize| unsafe {
            f16::from_bits(*head.add(slot.scales()).cast::<u16>().add(block * PAGE_ROWS + row))
        };
        if slot.ty.code_bits().is_some() {
            // SAFETY: as this function's.
            unsafe { turbo::read(slot, head, row, &mut self.words) };
            return turbo::decode(isa, slot.ty, slot.dim, scale(0), self);
        }
        for (d, x) in self.entries[..slot.dim].iter_mut().enumerate() {
            // SAFETY: one of the head's `PAGE_ROWS × dim` codes.
            let code = unsafe { *head.cast::<i8>().add(slot.entry(row, d)) };
            *x = f32::from(code) * scale(d / KV_BLOCK).to_f32();
        }
    }
}

/// A run of rows of one head.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// The rows, `stride` floats from one to the next.
    pub(super) x: &'a [f32],
    pub(super) stride: usize,
    pub(super) len: usize,
}

/// Rounds rows and writes them as rows of a head from `place` on.
///
/// # Safety
/// `head` must be a head of `slot`, and nobody else may touch these rows of it, which must be there.
pub(super) unsafe fn store(
    isa: Isa,
    rows: Rows<'_>,
    slot: &StateSlot,
    head: *mut u8,
    place: usize,
    room: &mut HeadRoom,
) {
    if slot.ty.code_bits().is_none() {
        // SAFETY: as this function's.
        return with_floats(isa, unsafe { q8_0::Run::new(rows, slot, head, place) });
    }
    for (i, x) in rows.x.chunks(rows.stride).take(rows.len).enumerate() {
        room.put(&x[..slot.dim], slot.width());
        let scale = turbo::encode(isa, slot.ty, slot.dim, room);
        // SAFETY: as this function's.
        unsafe { turbo::write(slot, head, place + i, &room.words, scale) };
    }
}

/// Turns the first head into floats of the same layout, `PAGE_ROWS` times [`StateSlot::width`]; rotated heads must be of keys.
///
/// # Safety
/// The first must be a head of `slot` that nobody writes to; the second is what will be read next, if that is known.
pub(super) unsafe fn unpack(isa: Isa, slot: &StateSlot, [head, ahead]: [*const u8; 2], out: &mut [f32]) {
    if slot.is_rotated() {
        with_bits!(slot.ty, BITS => {
            // SAFETY: as this function's.
            let codes = unsafe { Codes::<BITS>::new(slot, head) };
            with_floats(isa, turbo::Unpack { codes, out, ahead });
        });
    } else {
        // SAFETY: as this function's.
        with_floats(isa, unsafe { q8_0::Unpack::new(slot, [head, ahead], out) });
    }
}

#[cfg(test)]
mod tests;
