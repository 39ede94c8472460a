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
        for (block, scales) in self.scales.iter().enumerate() {
            let entries = block * KV_BLOCK..self.dim.min((block + 1) * KV_BLOCK);
            if self.transposed {
                let numbers = entries.start * PAGE_ROWS..entries.end * PAGE_ROWS;
                columns(s, &self.codes[numbers.clone()], scales, &mut self.out[numbers]);
            } else {
                let rows = self.out.chunks_exact_mut(self.dim).zip(self.codes.chunks_exact(self.dim));
                for ((out, codes), scale) in rows.zip(scales) {
                    row(s, &codes[entries.clone()], f16::from_bits(*scale), &mut out[entries.clone()]);
                }
            }
        }
    }
}

/// Entries of all rows, one after another.
#[inline(always)]
fn columns<S: Floats>(s: S, codes: &[i8], scales: &[u16; PAGE_ROWS], out: &mut [f32]) {
    let [low, high] = scales.as_chunks::<LANES>().0 else { return };
    let scales = [s.load_f16(low), s.load_f16(high)];
    let entries = out.as_chunks_mut::<LANES>().0.as_chunks_mut::<2>().0.iter_mut();
    for (out, codes) in entries.zip(codes.as_chunks::<LANES>().0.as_chunks::<2>().0) {
        for ((out, codes), scale) in out.iter_mut().zip(codes).zip(scales) {
            s.store(out, s.mul(s.load_i8(codes), scale));
        }
    }
}

/// A block of one row.
#[inline(always)]
fn row<S: Floats>(s: S, codes: &[i8], scale: f16, out: &mut [f32]) {
    let scale = scale.to_f32();
    let ((vectors, rest), (out, rest_out)) = (codes.as_chunks::<LANES>(), out.as_chunks_mut::<LANES>());
    for (out, codes) in out.iter_mut().zip(vectors) {
        s.store(out, s.mul(s.load_i8(codes), s.splat(scale)));
    }
    for (out, code) in rest_out.iter_mut().zip(rest) {
        *out = f32::from(*code) * scale;
    }
}
