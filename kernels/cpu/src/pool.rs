//! The memory of sequences' state: a pool of pages per state group.
//!
//! A page holds [`PAGE_ROWS`] rows of every state of its group, state after state, head after head. Keys lie transposed,
//! `[head][entry][row]`: the scores of 16 rows are then one vector and need no sum across lanes. Other states lie
//! `[head][row][entry]`. Where entries are codes with scales, the scales lie behind the head's codes, `[block][row]`. Pages are saved row
//! by row, `[row][state][head]` and the entries, then the scales, in little-endian order, whatever their layout in memory.

use std::{ops::Range, ptr::NonNull, rc::Rc};

use bantam_backend::{KV_BLOCK, KvType, PageBook, PageCopy, StateGroup, StepError};

use crate::memory::Zeroed;

/// Rows of a page: two vectors of keys.
pub const PAGE_ROWS: usize = 32;

/// Where one state lies in the pages of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateSlot {
    /// State group.
    pub(crate) group: usize,
    /// First byte in the page.
    pub(crate) offset: usize,
    /// Heads of a row.
    pub(crate) heads: usize,
    /// Entries of a head.
    pub(crate) dim: usize,
    /// Number format.
    pub(crate) ty: KvType,
    /// Tokens that a row stands for.
    pub(crate) stride: usize,
    /// Whether rows are the fastest axis.
    pub(crate) transposed: bool,
}

impl StateSlot {
    /// Bytes of one head's part of a page.
    pub(crate) fn head_bytes(&self) -> usize {
        PAGE_ROWS * self.ty.head_bytes(self.dim)
    }

    /// First byte of a head in the page.
    fn head_offset(&self, head: usize) -> usize {
        self.offset + head * self.head_bytes()
    }

    /// Entries of a head as attention sees it.
    pub(crate) fn width(&self) -> usize {
        self.ty.width(self.dim)
    }

    /// Whether heads are rotated before they are stored.
    pub(crate) fn is_rotated(&self) -> bool {
        self.ty.code_bits().is_some()
    }

    /// Numbers of a head in a row: its entries, or the bytes of their codes, and their scales.
    fn numbers(&self) -> usize {
        let scales = match self.ty {
            KvType::F32 | KvType::F16 | KvType::Bf16 => 0,
            KvType::Q8_0 => self.dim.div_ceil(KV_BLOCK),
            KvType::Turbo4 | KvType::Turbo3 => 1,
        };
        self.stored() + scales
    }

    /// Numbers of a head in a row before its scales.
    pub(crate) fn stored(&self) -> usize {
        self.ty.code_bits().map_or(self.dim, |bits| self.width() / 8 * bits)
    }

    /// Whether scales follow the numbers.
    fn has_scales(&self) -> bool {
        matches!(self.ty, KvType::Q8_0 | KvType::Turbo4 | KvType::Turbo3)
    }

    /// Where number `number` of row `row` lies, from the start of the head, in bytes.
    fn number(&self, row: usize, number: usize) -> Range<usize> {
        let (start, bytes) = match (self.ty, number.checked_sub(self.stored())) {
            (KvType::Q8_0 | KvType::Turbo4 | KvType::Turbo3, Some(block)) => {
                (self.scales() + (block * PAGE_ROWS + row) * 2, 2)
            }
            (KvType::Q8_0 | KvType::Turbo4 | KvType::Turbo3, None) => (self.entry(row, number), 1),
            (KvType::F16 | KvType::Bf16, _) => (self.entry(row, number) * 2, 2),
            (KvType::F32, _) => (self.entry(row, number) * 4, 4),
        };
        start..start + bytes
    }

    /// What a row of a head consists of, in the order of its numbers.
    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for number in 0..self.numbers() {
            let (first, second) = (self.number(0, number), self.number(1, number));
            let (start, step, bytes) = (first.start, second.start - first.start, first.len());
            match runs.last_mut() {
                // On other machines each number is turned around by itself.
                Some(last)
                    if cfg!(target_endian = "little") && last.step == step && last.start + last.bytes == start =>
                {
                    last.bytes += bytes;
                }
                _ => runs.push(Run { start, step, bytes }),
            }
        }
        runs
    }

    /// Index of a number of a row, of [`Self::stored`] ones, among those of the head.
    pub(crate) fn entry(&self, row: usize, entry: usize) -> usize {
        if self.transposed { entry * PAGE_ROWS + row } else { row * self.stored() + entry }
    }

    /// First byte of the scales in a head; what lies before them are bytes.
    pub(crate) fn scales(&self) -> usize {
        PAGE_ROWS * self.stored()
    }

    /// Bytes at the start of a head that hold its first `rows` rows.
    fn prefix(&self, rows: usize) -> usize {
        // Rows of a transposed head, and scales, lie strewn over all of it.
        if self.transposed || self.has_scales() { self.head_bytes() } else { self.number(rows, 0).start }
    }

    /// The page of a sequence, and the row in it, that holds the row of the token at `position`.
    pub(crate) fn place(&self, position: usize) -> (usize, usize) {
        let row = position / self.stride;
        (row / PAGE_ROWS, row % PAGE_ROWS)
    }
}

/// The pages of one state group.
#[derive(Debug)]
pub(crate) struct Pool {
    book: PageBook,
    slots: Vec<StateSlot>,
    /// What the pages lie in; one entry for each time the pool grew.
    segments: Vec<Zeroed>,
    pages: Vec<Page>,
}

impl AsRef<PageBook> for Pool {
    fn as_ref(&self) -> &PageBook {
        &self.book
    }
}

impl AsMut<PageBook> for Pool {
    fn as_mut(&mut self) -> &mut PageBook {
        &mut self.book
    }
}

#[derive(Clone, Copy, Debug)]
struct Page(NonNull<u8>);

// SAFETY: the pointers lead into `segments`, which the pool owns. Who writes through them when is ordered by the program:
// a step's writes are checked to be disjoint, and barriers stand between writing and reading.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Pool {
    /// An empty pool for pages of these states.
    pub(crate) fn new(group: StateGroup, slots: Vec<StateSlot>) -> Self {
        Pool { book: PageBook::new(group), slots, segments: Vec::new(), pages: Vec::new() }
    }

    /// What it is for.
    pub(crate) fn group(&self) -> &StateGroup {
        self.book.group()
    }

    /// Pages that exist.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Makes pages `0..pages` exist.
    pub(crate) fn reserve(&mut self, index: usize, pages: usize) -> Result<(), StepError> {
        let Some(more) = pages.checked_sub(self.pages.len()).filter(|more| *more > 0) else { return Ok(()) };
        let refused = StepError::Memory { group: index, pages, page_bytes: self.group().page_bytes };
        let bytes = more.checked_mul(self.group().page_bytes).ok_or_else(|| refused.clone())?;
        let segment = Zeroed::new(bytes).ok_or(refused)?;
        for i in 0..more {
            // SAFETY: the segment has `more` pages of this size.
            self.pages.push(Page(unsafe { segment.start().add(i * self.group().page_bytes) }));
        }
        self.segments.push(segment);
        self.book.grow(pages);
        Ok(())
    }

    /// Gives a page's memory back to the system; what it holds is lost.
    pub(crate) fn release(&mut self, page: u32) {
        let Some(&Page(start)) = self.pages.get(page as usize) else { return };
        // SAFETY: the page is the pool's, and `&mut self` keeps others from it.
        unsafe { crate::os::give_back(start.as_ptr(), self.group().page_bytes) };
    }

    /// First byte of a head's part of a page, [`StateSlot::head_bytes`] long.
    #[inline]
    pub(crate) fn head(&self, slot: &StateSlot, page: u32, head: usize) -> *mut u8 {
        assert!(head < slot.heads, "head {head} of {}", slot.heads);
        // SAFETY: a slot's heads lie in the page, by the plan of the group's slots.
        unsafe { self.pages[page as usize].0.as_ptr().add(slot.head_offset(head)) }
    }

    /// Copies part `part` of `parts` of a page prefix. Both pages must exist.
    pub(crate) fn copy(&self, copy: &PageCopy, part: usize, parts: usize) {
        if copy.from == copy.to {
            return;
        }
        let heads = self.slots.iter().flat_map(|slot| (0..slot.heads).map(move |head| (slot, head)));
        for (slot, head) in heads.skip(part).step_by(parts) {
            let bytes = slot.prefix(copy.tokens / slot.stride);
            // SAFETY: both heads are in existing pages, which are different, and belong to this part alone; the rows are
            // at most the page's.
            unsafe {
                let (from, to) = (self.head(slot, copy.from, head), self.head(slot, copy.to, head));
                std::ptr::copy_nonoverlapping(from, to, bytes.min(slot.head_bytes()));
            }
        }
    }

    /// Appends the first `tokens` tokens of a page.
    pub(crate) fn save(&self, page: u32, tokens: usize, out: &mut Vec<u8>) -> Result<(), StepError> {
        let rows = self.rows(page, tokens)?;
        let (at, row_bytes) = (out.len(), self.row_bytes());
        out.resize(at + rows * row_bytes, 0);
        let saved = &mut out[at..];
        for (slot, head, runs, mut column) in self.heads() {
            // SAFETY: the page exists and this is the head's part of it. Nobody writes: a step needs `&mut` program.
            let bytes = unsafe { std::slice::from_raw_parts(self.head(slot, page, head), slot.head_bytes()) };
            for run in runs.iter() {
                copy_rows(run.bytes, rows, (bytes, run.start, run.step), (saved, column, row_bytes));
                column += run.bytes;
            }
        }
        Ok(())
    }

    /// Writes what [`Pool::save`] gave.
    pub(crate) fn load(&mut self, page: u32, tokens: usize, bytes: &[u8]) -> Result<(), StepError> {
        let rows = self.rows(page, tokens)?;
        let row_bytes = self.row_bytes();
        let expected = rows * row_bytes;
        if bytes.len() != expected {
            return Err(StepError::Invalid(format!(
                "{tokens} tokens of a page take {expected} bytes, found {}: it was saved by another program",
                bytes.len()
            )));
        }
        for (slot, head, runs, mut column) in self.heads() {
            // SAFETY: the page exists and this is the head's part of it; `&mut self` excludes others.
            let target = unsafe { std::slice::from_raw_parts_mut(self.head(slot, page, head), slot.head_bytes()) };
            for run in runs.iter() {
                copy_rows(run.bytes, rows, (bytes, column, row_bytes), (target, run.start, run.step));
                column += run.bytes;
            }
        }
        Ok(())
    }

    /// Every head in the order of saving, with what it consists of and where in a saved row it begins.
    fn heads(&self) -> impl Iterator<Item = (&StateSlot, usize, Rc<[Run]>, usize)> {
        let mut column = 0;
        self.slots.iter().flat_map(move |slot| {
            let runs: Rc<[Run]> = slot.runs().into();
            let (first, bytes) = (column, runs.iter().map(|run| run.bytes).sum::<usize>());
            column += slot.heads * bytes;
            (0..slot.heads).map(move |head| (slot, head, Rc::clone(&runs), first + head * bytes))
        })
    }

    fn row_bytes(&self) -> usize {
        self.group().page_bytes / PAGE_ROWS
    }

    /// Rows that the first `tokens` tokens of a page have, if there is such a page.
    fn rows(&self, page: u32, tokens: usize) -> Result<usize, StepError> {
        if self.book.holds(page, tokens) {
            return Ok(tokens / self.group().stride());
        }
        let (pages, of) = (self.pages.len(), self.group().page_tokens);
        Err(StepError::Invalid(format!("{tokens} tokens of page {page}, of {pages} pages of {of} tokens")))
    }
}

/// Numbers of a head that lie side by side in each row, in memory as in what is saved.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Where those of the first row begin, from the start of the head, in bytes.
    start: usize,
    /// Bytes from a row to the next.
    step: usize,
    /// Bytes of a row.
    bytes: usize,
}

/// Rows of equally many bytes in some memory: where the first is, and how far the next.
type Rows<'a> = (&'a [u8], usize, usize);
type RowsMut<'a> = (&'a mut [u8], usize, usize);

/// Copies the first `rows` rows of so many bytes each.
fn copy_rows(bytes: usize, rows: usize, from: Rows<'_>, to: RowsMut<'_>) {
    // Keys are copied number by number. Their sizes are known here, so that each takes one instruction.
    match bytes {
        1 => copy_numbers::<1>(rows, from, to),
        2 => copy_numbers::<2>(rows, from, to),
        4 => copy_numbers::<4>(rows, from, to),
        _ => {
            let ((from, from_start, from_step), (to, to_start, to_step)) = (from, to);
            for row in 0..rows {
                let (source, target) = (from_start + row * from_step, to_start + row * to_step);
                to[target..target + bytes].copy_from_slice(&from[source..source + bytes]);
            }
        }
    }
}

fn copy_numbers<const BYTES: usize>(rows: usize, from: Rows<'_>, to: RowsMut<'_>) {
    let ((from, from_start, from_step), (to, to_start, to_step)) = (from, to);
    for row in 0..rows {
        let (source, target) = (from_start + row * from_step, to_start + row * to_step);
        let number = &mut to[target..target + BYTES];
        number.copy_from_slice(&from[source..source + BYTES]);
        if cfg!(target_endian = "big") {
            number.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use bantam_graph::StateKind;

    use super::*;

    fn pool() -> Pool {
        let key = StateSlot { group: 0, offset: 0, heads: 2, dim: 3, ty: KvType::F16, stride: 1, transposed: true };
        let value =
            StateSlot { offset: 2 * key.head_bytes(), heads: 2, dim: 5, ty: KvType::F32, transposed: false, ..key };
        let rounded = StateSlot { offset: value.offset + 2 * value.head_bytes(), dim: 37, ty: KvType::Q8_0, ..key };
        let flat = StateSlot { offset: rounded.offset + 2 * rounded.head_bytes(), transposed: false, ..rounded };
        let turned = StateSlot { offset: flat.offset + 2 * flat.head_bytes(), ty: KvType::Turbo3, ..rounded };
        let rows = StateSlot { offset: turned.offset + 2 * turned.head_bytes(), ty: KvType::Turbo4, ..flat };
        let page_bytes = rows.offset + 2 * rows.head_bytes();
        let kind = StateKind::PerToken;
        Pool::new(
            StateGroup { kind, page_tokens: PAGE_ROWS, page_bytes, states: vec![0, 1, 2, 3, 4, 5] },
            vec![key, value, rounded, flat, turned, rows],
        )
    }

    #[test]
    fn pages_round_trip_through_bytes_and_copies() {
        let mut pool = pool();
        pool.reserve(0, 2).unwrap();
        pool.reserve(0, 3).unwrap();
        let bytes: Vec<u8> = (0..7 * pool.row_bytes()).map(|i| (i * 7 % 251) as u8).collect();
        pool.load(0, 7, &bytes).unwrap();
        for part in 0..3 {
            pool.copy(&PageCopy { group: 0, from: 0, to: 2, tokens: 7 }, part, 3);
        }
        let mut saved = Vec::new();
        pool.save(2, 7, &mut saved).unwrap();
        assert_eq!(saved, bytes);
        saved.clear();
        pool.save(1, 32, &mut saved).unwrap();
        assert!(saved.iter().all(|b| *b == 0), "a new page is zero");
    }

    #[test]
    fn what_is_saved_are_the_numbers_of_each_row_in_their_order() {
        let mut pool = pool();
        pool.reserve(0, 1).unwrap();
        let bytes: Vec<u8> = (0..5 * pool.row_bytes()).map(|i| (i * 7 % 251) as u8).collect();
        pool.load(0, 5, &bytes).unwrap();
        let mut numbers = Vec::new();
        for (row, slot) in (0..5).flat_map(|row| pool.slots.iter().map(move |slot| (row, slot))) {
            for (head, number) in (0..slot.heads).flat_map(|head| (0..slot.numbers()).map(move |n| (head, n))) {
                let place = slot.number(row, number);
                // SAFETY: the page exists, the place is a number's in the head, and nobody writes.
                let found =
                    unsafe { std::slice::from_raw_parts(pool.head(slot, 0, head).add(place.start), place.len()) };
                numbers.extend_from_slice(found);
                if cfg!(target_endian = "big") {
                    let last = numbers.len() - found.len();
                    numbers[last..].reverse();
                }
            }
        }
        assert_eq!(numbers, bytes);
    }

    #[test]
    fn a_released_page_can_be_written_again_and_its_neighbours_keep_what_they_hold() {
        let slot = StateSlot { group: 0, offset: 0, heads: 40, dim: 64, ty: KvType::F16, stride: 1, transposed: false };
        let page_bytes = 40 * slot.head_bytes();
        let group = StateGroup { kind: StateKind::PerToken, page_tokens: PAGE_ROWS, page_bytes, states: vec![0] };
        let mut pool = Pool::new(group, vec![slot]);
        pool.reserve(0, 3).unwrap();
        let bytes: Vec<u8> = (0..page_bytes).map(|i| 1 + (i % 251) as u8).collect();
        (0..3).for_each(|page| pool.load(page, PAGE_ROWS, &bytes).unwrap());
        pool.release(1);
        pool.release(7);
        let saved = |pool: &Pool, page| {
            let mut saved = Vec::new();
            pool.save(page, PAGE_ROWS, &mut saved).unwrap();
            saved
        };
        assert!(saved(&pool, 0) == bytes && saved(&pool, 2) == bytes);
        if cfg!(target_os = "linux") {
            let kept = saved(&pool, 1).iter().filter(|byte| **byte != 0).count();
            assert!(kept < page_bytes / 2, "{kept} of {page_bytes} bytes are still there");
        }
        pool.load(1, PAGE_ROWS, &bytes).unwrap();
        assert!(saved(&pool, 1) == bytes);
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        let mut pool = pool();
        pool.reserve(0, 1).unwrap();
        assert!(pool.save(1, 1, &mut Vec::new()).is_err());
        assert!(pool.save(0, 33, &mut Vec::new()).is_err());
        assert!(pool.load(0, 2, &[0; 3]).is_err());
        assert!(matches!(pool.reserve(0, usize::MAX / 2), Err(StepError::Memory { .. })));
        assert_eq!(pool.book.pages(), 1);
    }
}
