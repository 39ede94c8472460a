//! The memory of a graph's recurrent state: a pool of slots.

use std::ptr::NonNull;

use bantam_backend::{NO_SLOT, RecurrentGroup, RecurrentStep, SequenceStep, Step, StepError};

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

#[derive(Debug)]
struct Slot {
    start: NonNull<f32>,
    /// Tokens that the value stands after; none: nothing was written yet.
    tokens: Option<usize>,
    /// Tentative rows whose inputs are kept.
    kept: usize,
    /// Bank that holds them.
    bank: usize,
    /// Number of the last step that wrote it.
    written: u64,
}

/// The slots of one graph.
#[derive(Debug)]
pub(crate) struct SlotPool {
    group: RecurrentGroup,
    places: Vec<Place>,
    /// Most tentative rows of a step.
    tentative: usize,
    segments: Vec<Zeroed>,
    slots: Vec<Slot>,
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
        Some(SlotPool { group, places, tentative, segments: Vec::new(), slots: Vec::new() })
    }

    pub(crate) fn group(&self) -> &RecurrentGroup {
        &self.group
    }

    /// Makes slots `0..slots` exist.
    pub(crate) fn reserve(&mut self, slots: usize) -> Result<(), StepError> {
        let Some(more) = slots.checked_sub(self.slots.len()).filter(|more| *more > 0) else { return Ok(()) };
        let bytes = self.group.slot_bytes;
        let refused = StepError::SlotMemory { slots, slot_bytes: bytes };
        let total = more.checked_mul(bytes).ok_or_else(|| refused.clone())?;
        let segment = Zeroed::new(total).ok_or(refused)?;
        for i in 0..more {
            // SAFETY: the segment has `more` slots of this size.
            let start = unsafe { segment.start().add(i * bytes) }.cast();
            self.slots.push(Slot { start, tokens: None, kept: 0, bank: 0, written: 0 });
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Checks what step number `number` does with a sequence's slots, and notes that it writes one.
    pub(crate) fn check(&mut self, sequence: &SequenceStep, number: u64) -> Result<(), String> {
        let Some(RecurrentStep { from, to, accepted, tentative }) = sequence.recurrent else {
            return Err("the graph has recurrent state, and no slots are given".into());
        };
        let exist = self.slots.len();
        let (after, kept) = match self.slots.get(from as usize) {
            _ if from == NO_SLOT => (Some(0), 0),
            Some(slot) => (slot.tokens, slot.kept),
            None => return Err(format!("slot {from} of {exist}")),
        };
        if accepted > kept {
            return Err(format!("{accepted} accepted rows, and slot {from} keeps {kept}"));
        }
        if after.is_none_or(|after| after + accepted != sequence.start) {
            let after = after.map_or("no tokens at all".into(), |after| format!("{after} tokens"));
            let start = sequence.start;
            return Err(format!("slot {from} stands after {after}, expected {start} - {accepted}"));
        }
        if tentative > sequence.rows || tentative > self.tentative {
            let (rows, most) = (sequence.rows, self.tentative);
            return Err(format!("{tentative} tentative rows of {rows}, expected at most {most}"));
        }
        let target = self.slots.get_mut(to as usize).ok_or_else(|| format!("slot {to} of {exist}"))?;
        if std::mem::replace(&mut target.written, number) == number {
            return Err(format!("slot {to} is written twice in one step"));
        }
        Ok(())
    }

    /// Whether step number `number` was noted to write a slot.
    pub(crate) fn is_written(&self, slot: u32, number: u64) -> bool {
        self.slots.get(slot as usize).is_some_and(|slot| slot.written == number)
    }

    /// State `state` as a sequence of a checked step sees it.
    pub(crate) fn view(&self, state: usize, step: &RecurrentStep) -> View {
        let Place { value, kept, inputs, .. } = self.places[state];
        let bank = |slot: &Slot, bank: usize| {
            // SAFETY: a slot has room for two banks of every state.
            unsafe { slot.start.add(kept + bank * self.tentative * inputs) }
        };
        let from = self.slots.get(step.from as usize);
        let to = &self.slots[step.to as usize];
        View {
            // SAFETY: the value lies in the slot.
            from: from.map(|slot| unsafe { slot.start.add(value) }),
            // SAFETY: as above.
            to: unsafe { to.start.add(value) },
            kept: from.map(|slot| bank(slot, slot.bank)),
            keep: bank(to, 1 - to.bank),
            inputs,
        }
    }

    /// Notes what a step that was run has left in the slots.
    pub(crate) fn finish(&mut self, step: &Step) {
        for sequence in &step.sequences {
            let Some(RecurrentStep { to, tentative, .. }) = sequence.recurrent else { continue };
            if let Some(slot) = self.slots.get_mut(to as usize) {
                slot.tokens = Some(sequence.start + sequence.rows - tentative);
                slot.kept = tentative;
                slot.bank = 1 - slot.bank;
            }
        }
    }

    /// Appends a slot: the tokens it stands after, then the values.
    pub(crate) fn save(&self, slot: u32, out: &mut Vec<u8>) -> Result<(), StepError> {
        let found = self.slots.get(slot as usize).and_then(|s| Some((s, s.tokens?)));
        let (slot, tokens) = found.ok_or_else(|| self.missing(slot))?;
        out.extend((tokens as u64).to_le_bytes());
        for place in &self.places {
            // SAFETY: the value lies in the slot; nobody writes, a step needs `&mut` program.
            let values = unsafe { std::slice::from_raw_parts(slot.start.as_ptr().add(place.value), place.len) };
            out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        }
        Ok(())
    }

    /// Writes what [`SlotPool::save`] gave.
    pub(crate) fn load(&mut self, slot: u32, bytes: &[u8]) -> Result<(), StepError> {
        let floats: usize = self.places.iter().map(|p| p.len).sum();
        let expected = size_of::<u64>() + floats * size_of::<f32>();
        let missing = self.missing(slot);
        let target = self.slots.get_mut(slot as usize).ok_or(missing)?;
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
                unsafe { target.start.add(place.value + i).write(value) };
            }
        }
        (target.tokens, target.kept) = (Some(tokens as usize), 0);
        Ok(())
    }

    fn missing(&self, slot: u32) -> StepError {
        StepError::Invalid(format!("nothing was ever written to slot {slot}, of {} slots", self.slots.len()))
    }
}
