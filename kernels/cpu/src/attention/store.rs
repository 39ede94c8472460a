//! Writing a step's keys and values to the cache.

use std::ops::Range;

use bantam_backend::{KvType, Step};

use super::{
    element::{Element, with_element},
    quantized::{self, HeadRoom, Rows},
};
use crate::{
    isa::Isa,
    pool::{PAGE_ROWS, Pool, StateSlot},
    simd::{Floats, Kernel, LANES, with_floats},
    step::RowMap,
};

/// Heads that are to be stored: rows of them, or some heads of each row.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a> {
    /// `[row][head][entry]`.
    pub(crate) values: &'a [f32],
    /// Floats from row to row.
    pub(crate) pitch: usize,
    /// The head that a row starts with.
    pub(crate) first: usize,
}

/// Writes some heads of some rows to the pages of their sequences.
///
/// # Safety
/// The step must have been checked against the pool, and nobody else may touch these rows' places in these heads.
pub(crate) unsafe fn store(
    x: Heads<'_>,
    (pool, slot): (&Pool, &StateSlot),
    (step, map): (&Step, &RowMap),
    (rows, heads): (Range<usize>, Range<usize>),
    isa: Isa,
    room: &mut HeadRoom,
) {
    let mut first = rows.start;
    while first < rows.end {
        let run = run_of_page(slot, map, first..rows.end);
        let (page, place) = slot.place(map.positions[first] as usize);
        let page = step.sequences[map.sequences[first] as usize].tables[slot.group][page];
        for head in heads.clone() {
            let target = pool.head(slot, page, head);
            let values = &x.values[first * x.pitch + (head - x.first) * slot.dim..];
            let rows = Rows { x: values, stride: x.pitch, len: run };
            // SAFETY: as this function's; the target is a head of this slot, and the run's rows lie in it.
            unsafe {
                with_element!(slot.ty, E => {
                    with_floats(isa, Run::<E>::new(rows, slot, target, place));
                }, quantized => {
                    quantized::store(isa, rows, slot, target, place, room);
                });
            }
        }
        first += run;
    }
}

/// How many of the rows, from the first on, lie one behind the other in one page.
fn run_of_page(slot: &StateSlot, map: &RowMap, rows: Range<usize>) -> usize {
    let place = |row: usize| slot.place(map.positions[row] as usize);
    let (page, first) = place(rows.start);
    let sequence = map.sequences[rows.start];
    let follows = |(i, row): &(usize, usize)| map.sequences[*row] == sequence && place(*row) == (page, first + i);
    rows.enumerate().take_while(follows).count()
}

/// A run of rows of one head on its way into a page.
struct Run<'a, E: Element> {
    rows: Rows<'a>,
    dim: usize,
    transposed: bool,
    /// The place of the first row's first entry.
    target: *mut E::Bits,
}

impl<'a, E: Element> Run<'a, E> {
    /// # Safety
    /// `head` must be a head of `slot` of this format, and nobody else may touch its rows from `place` on, as many as there
    /// are of `rows`, which must be there.
    unsafe fn new(rows: Rows<'a>, slot: &StateSlot, head: *mut u8, place: usize) -> Self {
        // SAFETY: the first number of a row that is there.
        let target = unsafe { head.cast::<E::Bits>().add(slot.entry(place, 0)) };
        Run { rows, dim: slot.dim, transposed: slot.transposed, target }
    }

    /// Entries of a row from `entry` on, those of a vector or the last.
    #[inline(always)]
    fn entries(&self, row: usize, entry: usize) -> &'a [f32] {
        &self.rows.x[row * self.rows.stride + entry..][..LANES.min(self.dim - entry)]
    }

    /// Writes 16 entries of 16 rows where rows are the fastest axis.
    #[inline(always)]
    fn square<S: Floats>(&self, s: S, row: usize, entry: usize) {
        let mut vectors = [s.splat(0.0); LANES];
        for (i, vector) in vectors.iter_mut().enumerate() {
            *vector = s.load_some(self.entries(row + i, entry), 0.0);
        }
        for (i, column) in s.transpose(vectors).into_iter().enumerate() {
            // SAFETY: these rows' numbers of one entry, 16 of a head's, and the caller's alone.
            let target = unsafe { &mut *self.target.add((entry + i) * PAGE_ROWS + row).cast::<[E::Bits; LANES]>() };
            E::store(s, target, column);
        }
    }

    /// Writes a row from `entry` on, number by number or side by side.
    #[inline(always)]
    fn row<S: Floats>(&self, s: S, row: usize, entry: usize) {
        for entry in (entry..self.dim).step_by(LANES) {
            let entries = self.entries(row, entry);
            let mut bits = [E::Bits::default(); LANES];
            E::store(s, &mut bits, s.load_some(entries, 0.0));
            if self.transposed {
                for (i, bits) in bits[..entries.len()].iter().enumerate() {
                    // SAFETY: one of the head's numbers, and this row's alone.
                    unsafe { self.target.add((entry + i) * PAGE_ROWS + row).write(*bits) };
                }
            } else {
                // SAFETY: as above.
                unsafe {
                    let target = self.target.add(row * self.dim + entry);
                    std::ptr::copy_nonoverlapping(bits.as_ptr(), target, entries.len());
                }
            }
        }
    }
}

impl<E: Element> Kernel for Run<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Floats>(self, s: S) {
        let squares = if self.transposed { self.rows.len / LANES * LANES } else { 0 };
        let whole = self.dim / LANES * LANES;
        for row in (0..squares).step_by(LANES) {
            for entry in (0..whole).step_by(LANES) {
                self.square(s, row, entry);
            }
        }
        for row in 0..self.rows.len {
            self.row(s, row, if row < squares { whole } else { 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use bantam_backend::{SequenceStep, StateGroup};
    use bantam_graph::StateKind;
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    /// Rows of sequences that start at these places, each with pages of its own: what is stored, and the pools' pages.
    struct Setting {
        slot: StateSlot,
        pool: Pool,
        step: Step,
        map: RowMap,
    }

    impl Setting {
        fn new(slot: StateSlot, sequences: &[(usize, usize)]) -> Self {
            let group = StateGroup {
                kind: StateKind::Strided { stride: slot.stride },
                page_tokens: PAGE_ROWS * slot.stride,
                page_bytes: slot.heads * slot.head_bytes(),
                states: vec![0],
            };
            let (mut step, mut map, mut pages) = (Step::default(), RowMap::default(), 0);
            for (s, &(start, rows)) in sequences.iter().enumerate() {
                map.positions.extend((start..start + rows).map(|row| (row * slot.stride) as u32));
                map.sequences.extend(std::iter::repeat_n(s as u32, rows));
                let table = (pages..pages + (start + rows).div_ceil(PAGE_ROWS) as u32).rev().collect::<Vec<_>>();
                pages += table.len() as u32;
                step.sequences.push(SequenceStep { start, rows, tables: vec![table], ..SequenceStep::default() });
            }
            let mut pool = Pool::new(group, vec![slot]);
            pool.reserve(0, pages as usize).unwrap();
            Setting { slot, pool, step, map }
        }

        /// The number of an entry in the pages.
        fn stored(&self, row: usize, head: usize, entry: usize) -> f32 {
            let (page, place) = self.slot.place(self.map.positions[row] as usize);
            let page = self.step.sequences[self.map.sequences[row] as usize].tables[0][page];
            let (head, entry) = (self.pool.head(&self.slot, page, head), self.slot.entry(place, entry));
            // SAFETY: the page exists, and has this number of this head.
            with_element!(self.slot.ty, E => E::value(unsafe { *head.cast::<<E as Element>::Bits>().add(entry) }), quantized => f32::NAN)
        }

        /// How many numbers of the pages are not zero.
        fn written(&self) -> usize {
            let mut bytes = Vec::new();
            for page in 0..self.pool.pages() {
                self.pool.save(page as u32, self.pool.group().page_tokens, &mut bytes).unwrap();
            }
            bytes.chunks(self.slot.ty.head_bytes(16) / 16).filter(|number| number.iter().any(|byte| *byte != 0)).count()
        }
    }

    proptest! {
        #[test]
        fn every_row_gets_to_its_place_however_the_work_is_cut(
            sequences in prop::collection::vec((0usize..70, 1usize..90), 1..4),
            (heads, dim) in (1usize..4, prop::sample::select(vec![1usize, 7, 16, 37, 64])),
            ty in prop::sample::select(vec![KvType::F32, KvType::F16, KvType::Bf16]),
            (stride, transposed) in (1usize..3, any::<bool>()),
            (rows_cut, heads_cut) in (0.0f64..1.0, 0.0f64..1.0),
        ) {
            let slot = StateSlot { group: 0, offset: 0, heads, dim, ty, stride, transposed };
            let total: usize = sequences.iter().map(|(_, rows)| rows).sum();
            let x: Vec<f32> = (0..total * heads * dim).map(|i| 1.0 + (i * 7919 % 10_007) as f32 / 977.0).collect();
            let cut = |len: usize, at: f64| [0..(len as f64 * at) as usize, (len as f64 * at) as usize..len];
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let setting = Setting::new(slot, &sequences);
                let (place, of) = ((&setting.pool, &slot), (&setting.step, &setting.map));
                for rows in cut(total, rows_cut) {
                    for part in cut(heads, heads_cut) {
                        // The rows as a piece of them has them, with the part's heads alone.
                        let of_part = |row: &[f32]| row[part.start * dim..part.end * dim].to_vec();
                        let values: Vec<f32> = x.chunks(heads * dim).flat_map(of_part).collect();
                        let piece = Heads { values: &values, pitch: part.len() * dim, first: part.start };
                        // SAFETY: the pools have these pages, and nobody else has them.
                        unsafe { store(piece, place, of, (rows.clone(), part), isa, &mut HeadRoom::default()) };
                    }
                }
                for (i, x) in x.iter().enumerate() {
                    let wanted = match ty {
                        KvType::F16 => f16::from_f32(*x).to_f32(),
                        KvType::Bf16 => bf16::from_f32(*x).to_f32(),
                        _ => *x,
                    };
                    let (row, head, entry) = (i / dim / heads, i / dim % heads, i % dim);
                    prop_assert_eq!(setting.stored(row, head, entry), wanted, "{:?}: {}, {}, {}", isa, row, head, entry);
                }
                prop_assert_eq!(setting.written(), x.len(), "{:?}: nothing else is touched", isa);
            }
        }
    }
}
