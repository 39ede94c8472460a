//! Where the keys and values of a block lie: in pages, as they are, or gathered.

use bantam_backend::{KV_BLOCK, KvType};
use half::{bf16, f16};

use super::{
    element::{Element, with_element},
    quantized::{self, Unpack},
    run::Attention,
    sight::Source,
};
use crate::{
    pool::{PAGE_ROWS, StateSlot},
    simd::{Floats, Kernel, LANES, with_floats},
};

/// A head of a block, ready for the kernels: keys `[entry][key]`, values `[key][entry]`.
pub(super) struct Lines {
    pub(super) keys: *const u8,
    pub(super) keys_in: KvType,
    /// What will be read next, if it is known.
    pub(super) keys_ahead: *const u8,
    pub(super) values: *const u8,
    pub(super) values_in: KvType,
    pub(super) values_ahead: *const u8,
}

/// Room for the keys and values of one head of a block.
#[derive(Debug)]
pub(super) struct BlockScratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    row: Vec<f32>,
}

impl BlockScratch {
    /// For heads of at most these numbers of entries.
    pub(super) fn new(k_dim: usize, v_dim: usize) -> Self {
        let dim = k_dim.max(v_dim).next_multiple_of(LANES);
        BlockScratch { keys: vec![0.0; PAGE_ROWS * k_dim], values: vec![0.0; PAGE_ROWS * v_dim], row: vec![0.0; dim] }
    }
}

/// The blocks that the queries of a tile walk.
pub(super) struct Blocks<'a> {
    pub(super) of: &'a Attention<'a>,
    /// Their sequence in the step.
    pub(super) sequence: usize,
    /// The row of the first query.
    pub(super) row: usize,
}

impl Blocks<'_> {
    /// A head of a block.
    ///
    /// # Safety
    /// The step must have been checked against the pools, and nobody may write to them while the lines are used.
    pub(super) unsafe fn lines(
        &self,
        source: Source,
        (block, head): (usize, usize),
        (next_block, next_head): (usize, usize),
        scratch: &mut BlockScratch,
    ) -> Lines {
        let attend = self.of.attend;
        let pages = |slot: &StateSlot| [self.page(slot, block, head), self.page(slot, next_block, next_head)];
        match (source, &attend.compressed) {
            (Source::Step, _) => self.own(block, head, scratch),
            (Source::Compressed, Some(slot)) if slot.transposed && self.of.chosen_rows.is_none() => {
                // SAFETY: as this function's.
                unsafe { self.in_keys(slot, pages(slot), scratch) }
            }
            // SAFETY: as this function's.
            (Source::Compressed, Some(slot)) => unsafe { self.gathered(slot, block, head, scratch) },
            (Source::Compressed, None) | (Source::Cache, _) => {
                let keys = pages(&attend.k);
                let Some(v) = &attend.v else {
                    // SAFETY: as this function's.
                    return unsafe { self.in_keys(&attend.k, keys, scratch) };
                };
                // SAFETY: as this function's.
                unsafe { self.in_pages([(&attend.k, keys), (v, pages(v))], scratch) }
            }
        }
    }

    fn page(&self, slot: &StateSlot, block: usize, head: usize) -> *const u8 {
        let table = &self.of.step.sequences[self.sequence].tables[slot.group];
        self.of.pools[slot.group].head(slot, table[block], head)
    }

    /// Pages of keys and of values.
    unsafe fn in_pages(&self, [k, v]: [(&StateSlot, [*const u8; 2]); 2], scratch: &mut BlockScratch) -> Lines {
        // SAFETY: as `lines`.
        let [keys, values] =
            unsafe { [self.floats(k.0, k.1, &mut scratch.keys), self.floats(v.0, v.1, &mut scratch.values)] };
        let ((keys, keys_in, keys_ahead), (values, values_in, values_ahead)) = (keys, values);
        Lines { keys, keys_in, keys_ahead, values, values_in, values_ahead }
    }

    /// A page of keys whose first entries are the values.
    unsafe fn in_keys(&self, slot: &StateSlot, page: [*const u8; 2], scratch: &mut BlockScratch) -> Lines {
        let dim = self.of.attend.value_dim;
        // SAFETY: as `lines`.
        let (keys, keys_in, keys_ahead) = unsafe { self.floats(slot, page, &mut scratch.keys) };
        let values = &mut scratch.values;
        with_element!(keys_in, E => {
            // SAFETY: a page, or what it was unpacked to, holds a whole head, aligned, and nobody writes to it.
            let keys = unsafe { std::slice::from_raw_parts(keys.cast::<<E as Element>::Bits>(), dim * PAGE_ROWS) };
            with_floats(self.of.isa, Turn::<E> { keys, values, dim });
        }, quantized => {});
        let (values, values_ahead) = (scratch.values.as_ptr().cast(), std::ptr::null());
        Lines { keys, keys_in, keys_ahead, values, values_in: KvType::F32, values_ahead }
    }

    /// A head of a page as it lies there, or, where it is quantized, as floats; and what will be read next.
    unsafe fn floats(
        &self,
        slot: &StateSlot,
        [page, ahead]: [*const u8; 2],
        room: &mut [f32],
    ) -> (*const u8, KvType, *const u8) {
        if slot.ty != KvType::Q8_0 {
            return (page, slot.ty, ahead);
        }
        // SAFETY: as `lines`: the page holds a whole head of the slot.
        with_floats(self.of.isa, unsafe { Unpack::new(slot, page, room) });
        (room.as_ptr().cast(), KvType::F32, std::ptr::null())
    }

    /// Rows of the compressed state, those on the list or simply the next.
    unsafe fn gathered(&self, slot: &StateSlot, block: usize, head: usize, scratch: &mut BlockScratch) -> Lines {
        let list = self.of.chosen_rows.map(|ids| self.of.of_row(ids, self.row));
        let table = &self.of.step.sequences[self.sequence].tables[slot.group];
        for i in 0..PAGE_ROWS {
            let place = block * PAGE_ROWS + i;
            let row = list.map_or(Some(place), |list| list.get(place).map(|id| *id as usize));
            let Some((page, row)) = row.and_then(|row| Some((*table.get(row / PAGE_ROWS)?, row % PAGE_ROWS))) else {
                // Behind the end of the list no query sees a key.
                break;
            };
            let head = self.of.pools[slot.group].head(slot, page, head);
            // SAFETY: as `lines`.
            unsafe { read_row(slot, head, row, &mut scratch.row[..slot.dim]) };
            scratch.set(i, slot.dim, self.of.attend.value_dim);
        }
        scratch.lines()
    }

    /// Keys and values of the step's rows, rounded as those in the cache are.
    fn own(&self, block: usize, head: usize, scratch: &mut BlockScratch) -> Lines {
        let attend = self.of.attend;
        let rows = self.of.step.sequences[self.sequence].rows;
        let first = self.of.first_rows[self.sequence] + block * PAGE_ROWS;
        let Some([keys, values]) = self.of.own else { return scratch.lines() };
        for i in 0..PAGE_ROWS.min(rows.saturating_sub(block * PAGE_ROWS)) {
            let item = (first + i) * attend.k.heads + head;
            scratch.row[..attend.k.dim].copy_from_slice(&keys[item * attend.k.dim..][..attend.k.dim]);
            round(attend.k.ty, &mut scratch.row[..attend.k.dim]);
            scratch.set_key(i, attend.k.dim);
            if let Some(v) = &attend.v {
                scratch.row[..v.dim].copy_from_slice(&values[item * v.dim..][..v.dim]);
                round(v.ty, &mut scratch.row[..v.dim]);
            }
            scratch.set_value(i, attend.value_dim);
        }
        scratch.lines()
    }
}

impl BlockScratch {
    /// Makes the row that was read key and value `i`.
    fn set(&mut self, i: usize, k_dim: usize, v_dim: usize) {
        self.set_key(i, k_dim);
        self.set_value(i, v_dim);
    }

    fn set_key(&mut self, i: usize, dim: usize) {
        for (column, x) in self.keys.chunks_exact_mut(PAGE_ROWS).zip(&self.row[..dim]) {
            column[i] = *x;
        }
    }

    fn set_value(&mut self, i: usize, dim: usize) {
        self.values[i * dim..][..dim].copy_from_slice(&self.row[..dim]);
    }

    fn lines(&self) -> Lines {
        let (keys, values) = (self.keys.as_ptr().cast(), self.values.as_ptr().cast());
        let (keys_ahead, values_ahead) = (std::ptr::null(), std::ptr::null());
        Lines { keys, keys_in: KvType::F32, keys_ahead, values, values_in: KvType::F32, values_ahead }
    }
}

/// Reads a row of a head.
///
/// # Safety
/// `head` must be that of a page of the slot that nobody writes to, and `row` below [`PAGE_ROWS`].
unsafe fn read_row(slot: &StateSlot, head: *const u8, row: usize, out: &mut [f32]) {
    let entries = out.iter_mut().enumerate();
    with_element!(slot.ty, E => {
        let head = head.cast::<<E as Element>::Bits>();
        for (d, x) in entries {
            // SAFETY: one of the head's `PAGE_ROWS × dim` numbers; heads are aligned.
            *x = E::value(unsafe { *head.add(slot.entry(row, d)) });
        }
    }, quantized => {
        for (d, x) in entries {
            // SAFETY: one of the head's `PAGE_ROWS × dim` codes, and the scale of its block; heads are aligned.
            let (code, scale) = unsafe {
                let scales = head.add(slot.scales()).cast::<u16>();
                (*head.cast::<i8>().add(slot.entry(row, d)), *scales.add(d / KV_BLOCK * PAGE_ROWS + row))
            };
            *x = f32::from(code) * f16::from_bits(scale).to_f32();
        }
    });
}

/// Rounds numbers to a format of the cache.
fn round(ty: KvType, x: &mut [f32]) {
    match ty {
        KvType::F32 => {}
        KvType::F16 => x.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()),
        KvType::Bf16 => x.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32()),
        KvType::Q8_0 => x.chunks_mut(KV_BLOCK).for_each(|block| {
            let scale = quantized::scale(block);
            block.iter_mut().for_each(|x| *x = f32::from(quantized::code(*x, scale)) * scale.to_f32());
        }),
    }
}

/// Turns the first entries of the keys of a page into values, `[key][entry]`.
struct Turn<'a, E: Element> {
    /// `[entry][key]`.
    keys: &'a [E::Bits],
    values: &'a mut [f32],
    dim: usize,
}

impl<E: Element> Kernel for Turn<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        for (entry, halves) in self.keys.as_chunks::<LANES>().0.as_chunks::<2>().0.iter().enumerate() {
            for (half, bits) in halves.iter().enumerate() {
                let mut lanes = [0.0; LANES];
                s.store(&mut lanes, E::load(s, bits));
                let rows = self.values[half * LANES * self.dim..].chunks_exact_mut(self.dim);
                for (row, x) in rows.zip(lanes) {
                    row[entry] = x;
                }
            }
        }
    }
}
