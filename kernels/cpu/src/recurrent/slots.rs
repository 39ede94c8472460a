//! The memory of a graph's recurrent state: a pool of slots.

use std::ptr::NonNull;

use bantam_backend::{RecurrentGroup, RecurrentStep, SlotBook, Step, StepError};

use crate::memory::Zeroed;

/// Where one recurrent state lies in a slot, in floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// First float of the value.
    value: usize,
    /// Floats of the value, as its op lays it out.
    len: usize,
    /// First float of the kept inputs, two banks of them.
    kept: usize,
    /// Floats that are kept of a tentative row.
    inputs: usize,
}

/// A recurrent state as a sequence's step finds and leaves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// The value to start from; none: zeros.
    pub(crate) from: Option<NonNull<f32>>,
    /// Where the value after the certain rows goes.
    pub(crate) to: NonNull<f32>,
    /// Kept inputs of the rows to be taken in, row after row.
    pub(crate) kept: Option<NonNull<f32>>,
    /// Where the inputs of this step's tentative rows go.
    pub(crate) keep: NonNull<f32>,
    /// Floats of a row's inputs.
    pub(crate) inputs: usize,
}

impl View {
    /// The kept inputs of an accepted row.
    pub(crate) fn kept_row<'a>(&self, index: usize) -> &'a [f32] {
        let Some(kept) = self.kept else { return &[] };
        // SAFETY: the slot keeps the inputs of every accepted row, which nobody writes in this step.
        unsafe { std::slice::from_raw_parts(kept.as_ptr().add(index * self.inputs).cast_const(), self.inputs) }
    }
}

/// The slots of one graph.
#[derive(Debug)]
pub(crate) struct SlotPool {
    group: RecurrentGroup,
    places: Vec<Place>,
    book: SlotBook,
    segments: Vec<Zeroed>,
    /// Where each slot begins.
    starts: Vec<NonNull<f32>>,
}

// SAFETY: the pointers lead into `segments`, which the pool owns. A step's writes go to slots that were checked to be
// written by one sequence only, in parts that the units of work keep apart.
unsafe impl Send for SlotPool {}
// SAFETY: as above.
unsafe impl Sync for SlotPool {}

/// Bytes that a state of this size (floats of the value, floats kept of a tentative row) takes in a slot.
pub(crate) fn slot_bytes((len, inputs): (usize, usize), tentative: usize) -> Option<usize> {
    let value = len.checked_next_multiple_of(16)?;
    let banks = inputs.checked_mul(tentative)?.checked_mul(2)?;
    value.checked_add(banks)?.checked_next_multiple_of(16)?.checked_mul(size_of::<f32>())
}

impl SlotPool {
    /// An empty pool of slots for states of these sizes: floats of the value, floats kept of a tentative row. `None` if no
    /// address space can hold one.
    pub(crate) fn new(sizes: &[(usize, usize)], tentative: usize) -> Option<Self> {
        let (mut places, mut end) = (Vec::new(), 0usize);
        for (len, inputs) in sizes {
            let value = end;
            let kept = value.checked_add(len.checked_next_multiple_of(16)?)?;
            end = value.checked_add(slot_bytes((*len, *inputs), tentative)? / size_of::<f32>())?;
            places.push(Place { value, len: *len, kept, inputs: *inputs });
        }
        let slot_bytes = end.checked_mul(size_of::<f32>())?;
        let group = RecurrentGroup { slot_bytes, states: (0..sizes.len()).collect() };
        Some(SlotPool { group, places, book: SlotBook::new(tentative), segments: Vec::new(), starts: Vec::new() })
    }

    pub(crate) fn group(&self) -> &RecurrentGroup {
        &self.group
    }

    pub(crate) fn book_mut(&mut self) -> &mut SlotBook {
        &mut self.book
    }

    /// Makes slots `0..slots` exist.
    pub(crate) fn reserve(&mut self, slots: usize) -> Result<(), StepError> {
        let Some(more) = slots.checked_sub(self.starts.len()).filter(|more| *more > 0) else { return Ok(()) };
        let bytes = self.group.slot_bytes;
        let refused = StepError::SlotMemory { slots, slot_bytes: bytes };
        let total = more.checked_mul(bytes).ok_or_else(|| refused.clone())?;
        let segment = Zeroed::new(total).ok_or(refused)?;
        for i in 0..more {
            // SAFETY: the segment has `more` slots of this size.
            self.starts.push(unsafe { segment.start().add(i * bytes) }.cast());
        }
        self.book.grow(slots);
        self.segments.push(segment);
        Ok(())
    }

    /// State `state` as a sequence of a checked step sees it.
    pub(crate) fn view(&self, state: usize, step: &RecurrentStep) -> View {
        let Place { value, kept, inputs, .. } = self.places[state];
        let bank = |start: NonNull<f32>, bank: usize| {
            // SAFETY: a slot has room for two banks of every state.
            unsafe { start.add(kept + bank * self.book.tentative() * inputs) }
        };
        let from = self.starts.get(step.from as usize).copied();
        let to = self.starts[step.to as usize];
        View {
            // SAFETY: the value lies in the slot.
            from: from.map(|start| unsafe { start.add(value) }),
            // SAFETY: as above.
            to: unsafe { to.add(value) },
            kept: from.map(|start| bank(start, self.book.bank(step.from))),
            keep: bank(to, 1 - self.book.bank(step.to)),
            inputs,
        }
    }

    /// Notes what a step that was run has left in the slots.
    pub(crate) fn finish(&mut self, step: &Step) {
        self.book.finish(step);
    }

    /// Appends a slot: the tokens it stands after, then the values.
    pub(crate) fn save(&self, slot: u32, out: &mut Vec<u8>) -> Result<(), StepError> {
        let found = self.starts.get(slot as usize).zip(self.book.tokens(slot));
        let (start, tokens) = found.ok_or_else(|| self.missing(slot))?;
        out.extend((tokens as u64).to_le_bytes());
        for place in &self.places {
            // SAFETY: the value lies in the slot; nobody writes, a step needs `&mut` program.
            let values = unsafe { std::slice::from_raw_parts(start.as_ptr().add(place.value), place.len) };
            out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        }
        Ok(())
    }

    /// Writes what [`SlotPool::save`] gave.
    pub(crate) fn load(&mut self, slot: u32, bytes: &[u8]) -> Result<(), StepError> {
        let floats: usize = self.places.iter().map(|p| p.len).sum();
        let expected = size_of::<u64>() + floats * size_of::<f32>();
        let start = *self.starts.get(slot as usize).ok_or_else(|| self.missing(slot))?;
        let (tokens, values) = bytes.split_first_chunk().map(|(t, v)| (u64::from_le_bytes(*t), v)).unwrap_or_default();
        if bytes.len() != expected || tokens > u64::from(u32::MAX) {
            return Err(StepError::Invalid(format!(
                "recurrent state takes {expected} bytes, found {}: it was saved by another program",
                bytes.len()
            )));
        }
        let mut values = values.as_chunks().0.iter().map(|v| f32::from_le_bytes(*v));
        for place in &self.places {
            for (i, value) in (0..place.len).zip(values.by_ref()) {
                // SAFETY: the value lies in the slot; `&mut self` excludes others.
                unsafe { start.add(place.value + i).write(value) };
            }
        }
        self.book.load(slot, tokens as usize);
        Ok(())
    }

    fn missing(&self, slot: u32) -> StepError {
        StepError::Invalid(format!("nothing was ever written to slot {slot}, of {} slots", self.starts.len()))
    }
}
