//! The memory of a graph's recurrent state on the device: a pool of slots.
//!
//! A slot holds for each state its value, and behind it two banks of the inputs of tentative rows. A step writes the bank
//! that the slot does not hold, so that a slot can be advanced in place.

use std::{collections::HashMap, sync::Arc};

use bantam_backend::{CompileError, RecurrentGroup, SlotBook, StepError};
use bantam_graph::{Checked, DeltaRule, Op, Recurrent, ShortConv, Ssm};

use crate::{
    device::{Address, Buffer, Device},
    pages::failed,
    recurrent::{self, SlotLayout},
};

/// Where one recurrent state lies in a slot, in floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// First float of the value.
    pub(crate) value: usize,
    /// Floats of the value.
    pub(crate) len: usize,
    /// First float of the kept inputs, two banks of them.
    pub(crate) kept: usize,
    /// Floats that are kept of a tentative row.
    pub(crate) inputs: usize,
    /// Rows of a bank.
    pub(crate) bank_rows: usize,
}

/// Floats that a state may have at most, far below where sizes overflow.
const MAX_ENTRIES: usize = 1 << 36;

/// Lays a graph's recurrent states out: where each lies, by name, and the pool of slots, if there are any.
pub(crate) fn layout(
    checked: &Checked<'_>,
    tentative: usize,
    device: &Arc<dyn Device>,
) -> Result<(HashMap<String, Place>, Option<Slots>), CompileError> {
    let states = &checked.graph.recurrent;
    let Some(last) = states.last() else { return Ok((HashMap::new(), None)) };
    let mut writers: HashMap<&str, &Op> = HashMap::new();
    for op in checked.graph.nodes.iter().map(|node| &node.op) {
        let (Op::ShortConv(ShortConv { state, .. })
        | Op::DeltaRule(DeltaRule { state, .. })
        | Op::Ssm(Ssm { state, .. })) = op
        else {
            continue;
        };
        writers.insert(state, op);
    }
    let mut sizes = Vec::new();
    for state in states {
        let size = writers.get(state.name.as_str()).and_then(|op| size(checked, state, op));
        sizes.push(size.ok_or_else(|| too_large(state, "its value"))?);
    }
    let laid_out = SlotLayout::new(&sizes, tentative).filter(|layout| layout.slot_floats < 1 << 38);
    let laid_out = laid_out.ok_or_else(|| too_large(last, "a slot with it and the states before it"))?;
    let place = |([len, inputs], [value, kept]): (&[usize; 2], &[usize; 2])| Place {
        value: *value,
        len: *len,
        kept: *kept,
        inputs: *inputs,
        bank_rows: tentative,
    };
    let places: Vec<Place> = sizes.iter().zip(&laid_out.places).map(place).collect();
    let by_name = states.iter().map(|state| state.name.clone()).zip(places.iter().copied()).collect();
    Ok((by_name, Some(Slots::new(places, laid_out.slot_floats * 4, tentative, device))))
}

/// What a recurrent state, which this op advances, takes in a slot: floats of the value, floats kept of a tentative row.
fn size(checked: &Checked<'_>, state: &Recurrent, writer: &Op) -> Option<[usize; 2]> {
    if state.entries() > MAX_ENTRIES {
        return None;
    }
    let width = |name: &str| checked.types.get(name).map(|t| t.width);
    match writer {
        Op::ShortConv(o) => Some([state.entries(), width(&o.x)?]),
        Op::DeltaRule(o) => Some(recurrent::delta_shape(checked, o, width)?.sizes()),
        Op::Ssm(o) => Some(recurrent::scan_shape(checked, o, width)?.sizes()),
        _ => None,
    }
}

fn too_large(state: &Recurrent, what: &str) -> CompileError {
    let why = format!("{what} is too large, {:?} entries", state.shape);
    CompileError::State { state: state.name.clone(), why }
}

/// The slots of one graph.
#[derive(Debug)]
pub(crate) struct Slots {
    group: RecurrentGroup,
    places: Vec<Place>,
    book: SlotBook,
    memory: Option<Buffer>,
    device: Arc<dyn Device>,
}

impl Slots {
    /// An empty pool.
    pub(crate) fn new(places: Vec<Place>, slot_bytes: usize, tentative: usize, device: &Arc<dyn Device>) -> Self {
        let group = RecurrentGroup { slot_bytes, states: (0..places.len()).collect() };
        Slots { group, places, book: SlotBook::new(tentative), memory: None, device: Arc::clone(device) }
    }

    pub(crate) fn group(&self) -> &RecurrentGroup {
        &self.group
    }

    pub(crate) fn book(&self) -> &SlotBook {
        &self.book
    }

    pub(crate) fn book_mut(&mut self) -> &mut SlotBook {
        &mut self.book
    }

    /// Where slot 0 lies.
    pub(crate) fn address(&self) -> Address {
        self.memory.as_ref().map_or(0, Buffer::address)
    }

    /// Makes slots `0..slots` exist: what there is moves into one larger piece of memory.
    pub(crate) fn reserve(&mut self, slots: usize) -> Result<(), StepError> {
        if slots <= self.book.slots() {
            return Ok(());
        }
        let slot_bytes = self.group.slot_bytes;
        let refused = StepError::SlotMemory { slots, slot_bytes };
        let bytes = slots.checked_mul(slot_bytes).ok_or_else(|| refused.clone())?;
        let memory = Buffer::new(&self.device, bytes, "recurrent state").map_err(|_| refused)?;
        if let Some(old) = &self.memory {
            self.device.copy(old.address(), memory.address(), old.bytes()).map_err(failed)?;
            self.device.synchronize().map_err(failed)?;
        }
        self.memory = Some(memory);
        self.book.grow(slots);
        Ok(())
    }

    fn value(&self, slot: u32, place: &Place) -> Address {
        self.address() + u64::from(slot) * self.group.slot_bytes as u64 + place.value as u64 * 4
    }

    /// Appends a slot: the tokens it stands after, then the values.
    pub(crate) fn save(&self, slot: u32, out: &mut Vec<u8>) -> Result<(), StepError> {
        let tokens = self.book.tokens(slot).ok_or_else(|| self.missing(slot))?;
        out.extend((tokens as u64).to_le_bytes());
        for place in &self.places {
            let at = out.len();
            out.resize(at + place.len * 4, 0);
            self.device.download(self.value(slot, place), &mut out[at..]).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes what [`Slots::save`] gave.
    pub(crate) fn load(&mut self, slot: u32, bytes: &[u8]) -> Result<(), StepError> {
        if slot as usize >= self.book.slots() {
            return Err(self.missing(slot));
        }
        let expected = 8 + self.places.iter().map(|place| place.len * 4).sum::<usize>();
        let (tokens, mut values) =
            bytes.split_first_chunk().map(|(t, v)| (u64::from_le_bytes(*t), v)).unwrap_or_default();
        if bytes.len() != expected || tokens > u64::from(u32::MAX) {
            return Err(StepError::Invalid(format!(
                "recurrent state takes {expected} bytes, found {}: it was saved by another program",
                bytes.len()
            )));
        }
        for place in &self.places {
            let (value, rest) = values.split_at(place.len * 4);
            values = rest;
            self.device.upload(self.value(slot, place), value).map_err(failed)?;
        }
        self.book.load(slot, tokens as usize);
        Ok(())
    }

    fn missing(&self, slot: u32) -> StepError {
        StepError::Invalid(format!("nothing was ever written to slot {slot}, of {} slots", self.book.slots()))
    }
}
