//! Attention on heads of integers with a scale per block of entries ([`bantam_backend::KvType::Q8_0`]), as they lie in the
//! cache.
//!
//! A number is its integer times its scale, which `f32` holds exactly: so it is all one whether a head is turned into floats
//! before it is read or while it is.

use bantam_backend::KV_BLOCK;

use super::kernels::{KeySource, LINE, ValueSource};
use crate::{
    pool::{PAGE_ROWS, StateSlot},
    simd::{Floats, Kernel, LANES},
};

/// A head of a page in integers.
#[derive(Clone, Copy)]
pub(super) struct Integers<'a> {
    /// Keys `[entry][row]`, values `[row][entry]`.
    codes: &'a [i8],
    /// `[block of entries][row]`.
    scales: &'a [[f32; PAGE_ROWS]],
    dim: usize,
}

impl<'a> Integers<'a> {
    /// `scales` are what [`Scales`] gave.
    ///
    /// # Safety
    /// `head` must be a head of `slot` that nobody writes to meanwhile.
    pub(super) unsafe fn new(slot: &StateSlot, head: *const u8, scales: &'a [f32]) -> Self {
        // SAFETY: a head has a code for each entry of its rows.
        let codes = unsafe { std::slice::from_raw_parts(head.cast::<i8>(), PAGE_ROWS * slot.dim) };
        let scales = &scales.as_chunks().0[..slot.dim.div_ceil(KV_BLOCK)];
        Integers { codes, scales, dim: slot.dim }
    }

    /// Fetches block `block` of the scales of a head at `ahead`.
    #[inline(always)]
    fn fetch_scales<S: Floats>(self, s: S, ahead: *const u8, block: usize) {
        s.prefetch(ahead.wrapping_add(self.codes.len() + block * PAGE_ROWS * size_of::<u16>()));
    }
}

/// Turns the scales of a head into floats.
pub(super) struct Scales<'a> {
    halves: &'a [u16],
    out: &'a mut [f32],
}

impl<'a> Scales<'a> {
    /// # Safety
    /// `head` must be a head of `slot` that nobody writes to meanwhile.
    pub(super) unsafe fn new(slot: &StateSlot, head: *const u8, out: &'a mut [f32]) -> Self {
        let scales = slot.dim.div_ceil(KV_BLOCK) * PAGE_ROWS;
        // SAFETY: so many scales lie behind a head's codes; heads are aligned.
        let halves = unsafe { std::slice::from_raw_parts(head.add(slot.scales()).cast::<u16>(), scales) };
        Scales { halves, out }
    }
}

impl Kernel for Scales<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let halves = self.halves.as_chunks::<LANES>().0;
        for (out, halves) in self.out.as_chunks_mut::<LANES>().0.iter_mut().zip(halves) {
            s.store(out, s.load_f16(halves));
        }
    }
}

impl KeySource for Integers<'_> {
    fn dim(self) -> usize {
        self.dim
    }

    #[inline(always)]
    fn load<S: Floats>(self, s: S, entry: usize) -> Option<[S::F; 2]> {
        let [low, high] = self.codes.as_chunks::<LANES>().0.as_chunks::<2>().0.get(entry)?;
        let (scales, _) = self.scales.get(entry / KV_BLOCK)?.as_chunks::<LANES>();
        Some([s.mul(s.load_i8(low), s.load(&scales[0])), s.mul(s.load_i8(high), s.load(&scales[1]))])
    }

    #[inline(always)]
    fn fetch<S: Floats>(self, s: S, ahead: *const u8, entry: usize) {
        if entry.is_multiple_of(LINE / PAGE_ROWS) {
            s.prefetch(ahead.wrapping_add(entry * PAGE_ROWS));
        }
        if entry.is_multiple_of(KV_BLOCK) {
            self.fetch_scales(s, ahead, entry / KV_BLOCK);
        }
    }
}

impl ValueSource for Integers<'_> {
    fn dim(self) -> usize {
        self.dim
    }

    #[inline(always)]
    fn load<S: Floats, const V: usize>(self, s: S, key: usize, entry: usize) -> Option<[S::F; V]> {
        let codes = self.codes.get(key * self.dim + entry..)?.as_chunks::<LANES>().0.first_chunk::<V>()?;
        // Several vectors start with a block.
        let scales = self.scales.get(entry / KV_BLOCK..)?;
        if scales.len() < V.div_ceil(KV_BLOCK / LANES) {
            return None;
        }
        let mut vectors = [s.splat(0.0); V];
        for v in 0..V {
            vectors[v] = s.mul(s.load_i8(&codes[v]), s.splat(scales[v / (KV_BLOCK / LANES)][key % PAGE_ROWS]));
        }
        Some(vectors)
    }

    #[inline(always)]
    fn load_rest<S: Floats>(self, s: S, key: usize, entry: usize) -> S::F {
        let mut value = [0; LANES];
        let rest = &self.codes[key * self.dim + entry..(key + 1) * self.dim];
        value[..rest.len()].copy_from_slice(rest);
        s.mul(s.load_i8(&value), s.splat(self.scales[entry / KV_BLOCK][key]))
    }

    #[inline(always)]
    fn fetch<S: Floats, const V: usize>(self, s: S, ahead: *const u8, key: usize, entry: usize) {
        if entry == 0 {
            let first = key * self.dim;
            for line in first.div_ceil(LINE)..(first + self.dim).div_ceil(LINE) {
                s.prefetch(ahead.wrapping_add(line * LINE));
            }
            if key < self.scales.len() {
                self.fetch_scales(s, ahead, key);
            }
        }
    }
}
