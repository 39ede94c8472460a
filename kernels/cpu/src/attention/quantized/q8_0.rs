//! Heads of 8-bit integers with a scale per block of entries ([`bantam_backend::KvType::Q8_0`]).

use bantam_backend::KV_BLOCK;
use half::f16;

use crate::{
    pool::{PAGE_ROWS, StateSlot},
    simd::{Floats, Kernel, LANES},
};

/// The scale of a block.
pub(super) fn scale(values: &[f32]) -> f16 {
    let greatest = values.iter().fold(0.0f32, |greatest, x| greatest.max(x.abs()));
    f16::from_f32(greatest / 127.0)
}

/// The integer of a number in a block of this scale.
pub(super) fn code(x: f32, scale: f16) -> i8 {
    let inverse = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
    (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8
}

/// Rounds a row to integers and writes it as row `place` of a head.
///
/// # Safety
/// `head` must be a head of `slot`, and nobody else may touch the row.
pub(super) unsafe fn store(values: &[f32], slot: &StateSlot, head: *mut u8, place: usize) {
    for (block, values) in values.chunks(KV_BLOCK).enumerate() {
        let scale = scale(values);
        for (i, x) in values.iter().enumerate() {
            let code = code(*x, scale);
            // SAFETY: one of the head's codes, and this row's alone.
            unsafe { head.cast::<i8>().add(slot.entry(place, block * KV_BLOCK + i)).write(code) };
        }
        // SAFETY: one of the head's scales, and this row's alone; heads are aligned.
        unsafe { head.add(slot.scales()).cast::<u16>().add(block * PAGE_ROWS + place).write(scale.to_bits()) };
    }
}

/// Turns a head into floats of the same layout.
pub(super) struct Unpack<'a> {
    codes: &'a [i8],
    scales: &'a [[u16; PAGE_ROWS]],
    dim: usize,
    transposed: bool,
    out: &'a mut [f32],
}

impl<'a> Unpack<'a> {
    /// `out` gets `PAGE_ROWS × dim` floats.
    ///
    /// # Safety
    /// `head` must be a head of `slot` that nobody writes to.
    pub(super) unsafe fn new(slot: &StateSlot, head: *const u8, out: &'a mut [f32]) -> Self {
        let (numbers, blocks) = (PAGE_ROWS * slot.dim, slot.dim.div_ceil(KV_BLOCK));
        // SAFETY: a head holds as many codes, and behind them as many scales; heads are aligned.
        let (codes, scales) = unsafe {
            let scales = head.add(slot.scales()).cast::<[u16; PAGE_ROWS]>();
            (std::slice::from_raw_parts(head.cast::<i8>(), numbers), std::slice::from_raw_parts(scales, blocks))
        };
        Unpack { codes, scales, dim: slot.dim, transposed: slot.transposed, out: &mut out[..numbers] }
    }
}

impl Kernel for Unpack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        for (block, bits) in self.scales.iter().enumerate() {
            let mut scales = [0.0f32; PAGE_ROWS];
            for (scales, bits) in scales.as_chunks_mut::<LANES>().0.iter_mut().zip(bits.as_chunks::<LANES>().0) {
                s.store(scales, s.load_f16(bits));
            }
            let entries = block * KV_BLOCK..self.dim.min((block + 1) * KV_BLOCK);
            if self.transposed {
                let numbers = entries.start * PAGE_ROWS..entries.end * PAGE_ROWS;
                let codes = self.codes[numbers.clone()].as_chunks::<PAGE_ROWS>().0;
                for (out, codes) in self.out[numbers].as_chunks_mut::<PAGE_ROWS>().0.iter_mut().zip(codes) {
                    for ((out, code), scale) in out.iter_mut().zip(codes).zip(&scales) {
                        *out = f32::from(*code) * scale;
                    }
                }
            } else {
                let rows = self.out.chunks_exact_mut(self.dim).zip(self.codes.chunks_exact(self.dim));
                for ((out, codes), scale) in rows.zip(&scales) {
                    for (out, code) in out[entries.clone()].iter_mut().zip(&codes[entries.clone()]) {
                        *out = f32::from(*code) * scale;
                    }
                }
            }
        }
    }
}
