//! Heads of 8-bit integers with a scale per block of entries ([`bantam_backend::KvType::Q8_0`]).

use bantam_backend::KV_BLOCK;
use half::f16;

use super::Rows;
use crate::{
    attention::kernels::LINE,
    pool::{PAGE_ROWS, StateSlot},
    simd::{Floats, Kernel, LANES},
};

/// Rounds a block of entries to integers; the bits of their scale.
#[inline(always)]
fn round<S: Floats>(s: S, block: &[f32]) -> ([S::F; 2], u16) {
    let zero = s.splat(0.0);
    let mut codes = [s.load_some(block, 0.0), s.load_some(block.get(LANES..).unwrap_or_default(), 0.0)];
    let mut greatest = zero;
    for x in codes {
        // What is no number is passed over.
        greatest = s.max(s.max(x, s.sub(zero, x)), greatest);
    }
    let mut half = [0; LANES];
    s.store_f16(&mut half, s.splat(s.greatest(greatest) / 127.0));
    let scale = s.load_f16(&half);
    let inverse = s.select_lt(zero, scale, s.div(s.splat(1.0), scale), zero);
    for x in &mut codes {
        *x = s.round(s.max(s.splat(-127.0), s.min(s.splat(127.0), s.mul(*x, inverse))));
    }
    (codes, half[0])
}

/// Rounds a head's entries to the numbers that their integers and scales stand for.
pub(super) struct Round<'a>(pub(super) &'a mut [f32]);

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        for block in self.0.chunks_mut(KV_BLOCK) {
            let (codes, scale) = round(s, block);
            let scale = s.load_f16(&[scale; LANES]);
            for (block, codes) in block.chunks_mut(LANES).zip(codes) {
                let mut integers = [0; LANES];
                s.store_i8(&mut integers, codes);
                s.store_some(block, s.mul(s.load_i8(&integers), scale));
            }
        }
    }
}

/// A run of rows of one head on its way into a page.
pub(super) struct Run<'a> {
    rows: Rows<'a>,
    dim: usize,
    transposed: bool,
    /// The place of the first row's first code.
    codes: *mut i8,
    /// The place of the first row's first scale.
    scales: *mut u16,
}

impl<'a> Run<'a> {
    /// # Safety
    /// `head` must be a head of `slot`, and nobody else may touch its rows from `place` on, as many as there are of `rows`,
    /// which must be there.
    pub(super) unsafe fn new(rows: Rows<'a>, slot: &StateSlot, head: *mut u8, place: usize) -> Self {
        // SAFETY: the first numbers of a row that is there; heads are aligned.
        let (codes, scales) =
            unsafe { (head.cast::<i8>().add(slot.entry(place, 0)), head.add(slot.scales()).cast::<u16>().add(place)) };
        Run { rows, dim: slot.dim, transposed: slot.transposed, codes, scales }
    }

    /// Rounds a block of a row, and writes its scale.
    #[inline(always)]
    fn round<S: Floats>(&self, s: S, row: usize, block: usize) -> [S::F; 2] {
        let entries = &self.rows.x[row * self.rows.stride..][..self.dim][block * KV_BLOCK..];
        let (codes, scale) = round(s, &entries[..entries.len().min(KV_BLOCK)]);
        // SAFETY: one of the head's scales, and this row's alone.
        unsafe { self.scales.add(block * PAGE_ROWS + row).write(scale) };
        codes
    }

    /// Writes a block of 16 rows where rows are the fastest axis.
    #[inline(always)]
    fn square<S: Floats>(&self, s: S, row: usize, block: usize) {
        let [mut low, mut high] = [[s.splat(0.0); LANES]; 2];
        for (i, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
            [*low, *high] = self.round(s, row + i, block);
        }
        for (half, rows) in [low, high].into_iter().enumerate() {
            let first = block * KV_BLOCK + half * LANES;
            for (i, column) in s.transpose(rows).into_iter().enumerate().take(self.dim.saturating_sub(first)) {
                // SAFETY: these rows' codes of one entry, 16 of a head's, and the caller's alone.
                let target = unsafe { &mut *self.codes.add((first + i) * PAGE_ROWS + row).cast::<[i8; LANES]>() };
                s.store_i8(target, column);
            }
        }
    }

    /// Writes a block of a row, code by code or side by side.
    #[inline(always)]
    fn row<S: Floats>(&self, s: S, row: usize, block: usize) {
        let mut codes = [[0; LANES]; 2];
        for (integers, rounded) in codes.iter_mut().zip(self.round(s, row, block)) {
            s.store_i8(integers, rounded);
        }
        let first = block * KV_BLOCK;
        let codes = &codes.as_flattened()[..KV_BLOCK.min(self.dim - first)];
        if self.transposed {
            for (i, code) in codes.iter().enumerate() {
                // SAFETY: one of the head's codes, and this row's alone.
                unsafe { self.codes.add((first + i) * PAGE_ROWS + row).write(*code) };
            }
        } else {
            // SAFETY: as above.
            unsafe {
                std::ptr::copy_nonoverlapping(codes.as_ptr(), self.codes.add(row * self.dim + first), codes.len());
            }
        }
    }
}

impl Kernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let squares = if self.transposed { self.rows.len / LANES * LANES } else { 0 };
        for block in 0..self.dim.div_ceil(KV_BLOCK) {
            for row in (0..squares).step_by(LANES) {
                self.square(s, row, block);
            }
            for row in squares..self.rows.len {
                self.row(s, row, block);
            }
        }
    }
}

/// Turns a head into floats of the same layout.
pub(super) struct Unpack<'a> {
    codes: &'a [i8],
    scales: &'a [[u16; PAGE_ROWS]],
    dim: usize,
    transposed: bool,
    out: &'a mut [f32],
    /// A head that will be read next, to be fetched meanwhile.
    ahead: *const u8,
}

impl<'a> Unpack<'a> {
    /// `out` gets `PAGE_ROWS × dim` floats of the first head; the second is fetched.
    ///
    /// # Safety
    /// The first must be a head of `slot` that nobody writes to.
    pub(super) unsafe fn new(slot: &StateSlot, [head, ahead]: [*const u8; 2], out: &'a mut [f32]) -> Self {
        let (numbers, blocks) = (PAGE_ROWS * slot.dim, slot.dim.div_ceil(KV_BLOCK));
        // SAFETY: a head holds as many codes, and behind them as many scales; heads are aligned.
        let (codes, scales) = unsafe {
            let scales = head.add(slot.scales()).cast::<[u16; PAGE_ROWS]>();
            (std::slice::from_raw_parts(head.cast::<i8>(), numbers), std::slice::from_raw_parts(scales, blocks))
        };
        Unpack { codes, scales, dim: slot.dim, transposed: slot.transposed, out: &mut out[..numbers], ahead }
    }
}

impl Kernel for Unpack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let lines = (self.codes.len() + size_of_val(self.scales)) / LINE;
        for (block, scales) in self.scales.iter().enumerate() {
            for line in block * lines / self.scales.len()..(block + 1) * lines / self.scales.len() {
                s.prefetch(self.ahead.wrapping_add(line * LINE));
            }
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
