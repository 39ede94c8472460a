//! Where the keys and values of a block lie: in pages, as they are, or gathered.

use std::marker::PhantomData;

use bantam_backend::KvType;

use super::{
    element::{Element, with_element},
    integers::Scales,
    quantized::{self, HeadRoom, rotate},
    run::Attention,
    sight::Source,
};
use crate::{
    pool::{PAGE_ROWS, StateSlot},
    simd::{Floats, Kernel, LANES, with_floats},
};

/// A head of a block, ready for the kernels: keys `[entry][key]`, values `[key][entry]`. Quantized heads lie as in the cache,
/// all others as numbers.
pub(super) struct Lines {
    pub(super) keys: *const u8,
    pub(super) keys_in: KvType,
    /// What will be read next, if it is known.
    pub(super) keys_ahead: *const u8,
    pub(super) values: *const u8,
    pub(super) values_in: KvType,
    pub(super) values_ahead: *const u8,
}

/// Room for the keys and values of one head of a block; for the scales alone where these are integers in the cache.
#[derive(Debug)]
pub(super) struct BlockScratch {
    pub(super) keys: Vec<f32>,
    pub(super) values: Vec<f32>,
    /// One of them on its way.
    pub(super) row: HeadRoom,
}

impl BlockScratch {
    /// For heads of at most these numbers of entries.
    pub(super) fn new(k_dim: usize, v_dim: usize) -> Self {
        let row = HeadRoom::new(k_dim.max(v_dim));
        BlockScratch { keys: vec![0.0; PAGE_ROWS * k_dim], values: vec![0.0; PAGE_ROWS * v_dim], row }
    }
}

/// Where a head of a block is looked for.
#[derive(Clone, Copy)]
pub(super) struct At {
    /// The step's sequence.
    pub(super) sequence: usize,
    pub(super) block: usize,
    pub(super) head: usize,
}

/// The blocks that the queries of a tile walk.
pub(super) struct Blocks<'a> {
    pub(super) of: &'a Attention<'a>,
    /// The row of the tile's first query.
    pub(super) row: usize,
    /// Whether integers are read as they lie, by queries too few to make up for unpacking them.
    pub(super) direct: bool,
}

impl Blocks<'_> {
    /// A head of a block; `ahead` is the one that will be asked for next.
    ///
    /// # Safety
    /// The step must have been checked against the pools, and nobody may write to them while the lines are used.
    pub(super) unsafe fn lines(&self, source: Source, at: At, ahead: At, scratch: &mut BlockScratch) -> Lines {
        let attend = self.of.attend;
        let pages = |slot: &StateSlot| [self.page(slot, at), self.page(slot, ahead)];
        match (source, &attend.compressed) {
            (Source::Step, _) => self.own(at, scratch),
            (Source::Compressed, Some(slot))
                if slot.transposed && self.of.chosen_rows.is_none() && slot.is_rotated() == attend.k.is_rotated() =>
            {
                // SAFETY: as this function's.
                unsafe { self.in_keys(slot, pages(slot), scratch) }
            }
            // SAFETY: as this function's.
            (Source::Compressed, Some(slot)) => unsafe { self.gathered(slot, at, scratch) },
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

    fn page(&self, slot: &StateSlot, At { sequence, block, head }: At) -> *const u8 {
        let table = &self.of.step.sequences[sequence].tables[slot.group];
        self.of.pools[slot.group].head(slot, table[block], head)
    }

    /// Pages of keys and of values.
    unsafe fn in_pages(&self, [k, v]: [(&StateSlot, [*const u8; 2]); 2], scratch: &mut BlockScratch) -> Lines {
        let lines = |(slot, page): (&StateSlot, [*const u8; 2]), room: &mut [f32]| {
            if slot.is_rotated() {
                return (page[0], slot.ty, page[1]);
            }
            if slot.ty == KvType::Q8_0 && self.direct {
                // SAFETY: as `lines`.
                with_floats(self.of.isa, unsafe { Scales::new(slot, page[0], room) });
                return (page[0], slot.ty, page[1]);
            }
            // SAFETY: as `lines`.
            unsafe { self.floats(slot, page, room) }
        };
        let [keys, values] = [lines(k, &mut scratch.keys), lines(v, &mut scratch.values)];
        let ((keys, keys_in, keys_ahead), (values, values_in, values_ahead)) = (keys, values);
        Lines { keys, keys_in, keys_ahead, values, values_in, values_ahead }
    }

    /// A page of keys whose first entries are the values.
    unsafe fn in_keys(&self, slot: &StateSlot, page: [*const u8; 2], scratch: &mut BlockScratch) -> Lines {
        let dim = self.of.attend.sum_width();
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
        pages: [*const u8; 2],
        room: &mut [f32],
    ) -> (*const u8, KvType, *const u8) {
        with_element!(slot.ty, _E => (pages[0], slot.ty, pages[1]), quantized => {
            // SAFETY: as `lines`: the page holds a whole head of the slot.
            unsafe { quantized::unpack(self.of.isa, slot, pages, room) };
            (room.as_ptr().cast(), KvType::F32, std::ptr::null())
        })
    }

    /// Rows of the compressed state, those on the list or simply the next.
    unsafe fn gathered(&self, slot: &StateSlot, at: At, scratch: &mut BlockScratch) -> Lines {
        let At { sequence, block, head } = at;
        let list = self.of.chosen_rows.map(|ids| self.of.of_row(ids, self.row));
        let table = &self.of.step.sequences[sequence].tables[slot.group];
        for i in 0..PAGE_ROWS {
            let place = block * PAGE_ROWS + i;
            let row = list.map_or(Some(place), |list| list.get(place).map(|id| *id as usize));
            let Some((page, row)) = row.and_then(|row| Some((*table.get(row / PAGE_ROWS)?, row % PAGE_ROWS))) else {
                // Behind the end of the list no query sees a key.
                break;
            };
            let head = self.of.pools[slot.group].head(slot, page, head);
            // SAFETY: as `lines`.
            unsafe { self.read_row(slot, head, row, &mut scratch.row) };
            scratch.set(i, self.of.attend.key_width(), self.of.attend.sum_width());
        }
        scratch.lines()
    }

    /// Reads a row of a head, rotated if the keys of the cache are.
    ///
    /// # Safety
    /// `head` must be that of a page of the slot that nobody writes to, and `row` below [`PAGE_ROWS`].
    unsafe fn read_row(&self, slot: &StateSlot, head: *const u8, row: usize, out: &mut HeadRoom) {
        let isa = self.of.isa;
        with_element!(slot.ty, E => {
            let head = head.cast::<<E as Element>::Bits>();
            for (d, x) in out.entries[..slot.dim].iter_mut().enumerate() {
                // SAFETY: one of the head's `PAGE_ROWS × dim` numbers; heads are aligned.
                *x = E::value(unsafe { *head.add(slot.entry(row, d)) });
            }
        }, quantized => {
            // SAFETY: as this function's.
            unsafe { out.read(isa, slot, head, row) }
        });
        if slot.is_rotated() != self.of.attend.k.is_rotated() {
            let whole = &mut out.entries[..KvType::Turbo4.width(slot.dim)];
            if !slot.is_rotated() {
                whole[slot.dim..].fill(0.0);
            }
            rotate(isa, whole);
        }
    }

    /// Keys and values of the step's rows, rounded as those in the cache are.
    fn own(&self, At { sequence, block, head }: At, scratch: &mut BlockScratch) -> Lines {
        let attend = self.of.attend;
        let rows = self.of.step.sequences[sequence].rows;
        let first = self.of.first_rows[sequence] + block * PAGE_ROWS;
        let Some([keys, values]) = self.of.own else { return scratch.lines() };
        for i in 0..PAGE_ROWS.min(rows.saturating_sub(block * PAGE_ROWS)) {
            let item = (first + i) * attend.k.heads + head;
            self.round(&keys[item * attend.k.dim..][..attend.k.dim], &attend.k, &mut scratch.row);
            scratch.set_key(i, attend.key_width());
            if let Some(v) = &attend.v {
                self.round(&values[item * v.dim..][..v.dim], v, &mut scratch.row);
            }
            scratch.set_value(i, attend.sum_width());
        }
        scratch.lines()
    }

    /// Rounds a head as it would be stored, and rotates it if it would be.
    fn round(&self, head: &[f32], slot: &StateSlot, out: &mut HeadRoom) {
        out.put(head, slot.width());
        with_element!(slot.ty, E => {
            with_floats(self.of.isa, Round::<E> { entries: &mut out.entries[..slot.dim], stored_as: PhantomData });
        }, quantized => out.round(self.of.isa, slot.ty, slot.dim));
    }
}

impl BlockScratch {
    /// Makes the row that was read key and value `i`.
    fn set(&mut self, i: usize, k_dim: usize, v_dim: usize) {
        self.set_key(i, k_dim);
        self.set_value(i, v_dim);
    }

    fn set_key(&mut self, i: usize, dim: usize) {
        for (column, x) in self.keys.chunks_exact_mut(PAGE_ROWS).zip(&self.row.entries[..dim]) {
            column[i] = *x;
        }
    }

    fn set_value(&mut self, i: usize, dim: usize) {
        self.values[i * dim..][..dim].copy_from_slice(&self.row.entries[..dim]);
    }

    fn lines(&self) -> Lines {
        let (keys, values) = (self.keys.as_ptr().cast(), self.values.as_ptr().cast());
        let (keys_ahead, values_ahead) = (std::ptr::null(), std::ptr::null());
        Lines { keys, keys_in: KvType::F32, keys_ahead, values, values_in: KvType::F32, values_ahead }
    }
}

/// Rounds entries to numbers of a format.
struct Round<'a, E> {
    entries: &'a mut [f32],
    stored_as: PhantomData<E>,
}

impl<E: Element> Kernel for Round<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        for entries in self.entries.chunks_mut(LANES) {
            let mut bits = [E::Bits::default(); LANES];
            E::store(s, &mut bits, s.load_some(entries, 0.0));
            s.store_some(entries, E::load(s, &bits));
        }
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
