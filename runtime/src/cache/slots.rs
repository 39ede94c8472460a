//! Slots of recurrent state under their own byte budget, and what sequences and nodes hold of them.

use bantam_backend::{NO_SLOT, RecurrentGroup, RecurrentStep};

use super::{
    ids::{Id, Ids},
    lease::LeaseError,
    pool::PoolError,
};

/// The slots of a graph's recurrent state.
#[derive(Debug)]
pub(super) struct Slots {
    ids: Ids,
    slot_bytes: u64,
    budget: u64,
}

impl Slots {
    /// No slots yet, and at most as many as fit into `budget` bytes.
    pub(super) fn new(group: &RecurrentGroup, budget: u64) -> Result<Self, PoolError> {
        let needed = group.slot_bytes as u64;
        if needed > budget {
            return Err(PoolError::SlotBudget { needed, budget });
        }
        Ok(Slots { ids: Ids::new(), slot_bytes: needed, budget })
    }

    /// Takes a slot, if one is free or the budget allows another.
    pub(super) fn allocate(&mut self) -> Option<Id> {
        let next = (self.ids.capacity() as u64).saturating_add(1);
        if self.ids.free() == 0 && (next.saturating_mul(self.slot_bytes) > self.budget || !self.ids.grow()) {
            return None;
        }
        self.ids.take()
    }

    pub(super) fn capacity(&self) -> usize {
        self.ids.capacity()
    }

    /// Slots that fit into the budget.
    pub(super) fn most(&self) -> usize {
        self.budget.checked_div(self.slot_bytes).map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    pub(super) fn free(&mut self) -> usize {
        self.ids.free()
    }

    pub(super) fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    pub(super) fn budget(&self) -> u64 {
        self.budget
    }
}

/// The recurrent value of a sequence: its slot stands after the first `taken` tokens, and keeps the inputs of the rows that
/// were tentative then. So it serves for any length that ends within the accepted ones of these.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) slot: Id,
    pub(super) taken: usize,
}

/// A value that hangs on a node, whose end is its length. Nobody writes its slot any more.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) value: Value,
    /// When it was made, or last gone on from.
    pub(super) last_used: u64,
}

/// The recurrent state of a running sequence.
#[derive(Debug, Default)]
pub(super) struct RecurrentLease {
    /// The value after the sequence's tokens; none before the first.
    value: Option<Value>,
    /// Where the next step goes if others see the value.
    next: Option<Id>,
    /// What the value becomes when the step that is being computed ends, and how many rows of it are tentative.
    in_step: Option<(Value, usize)>,
}

impl RecurrentLease {
    pub(super) fn starting_at(value: Option<Value>) -> Self {
        RecurrentLease { value, next: None, in_step: None }
    }

    /// Whether the next step needs another slot than the value's, and has none.
    pub(super) fn wants_slot(&self) -> bool {
        self.next.is_none() && !self.is_own()
    }

    fn is_own(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.slot.references() == 1)
    }

    pub(super) fn provide(&mut self, slot: Id) {
        self.next = Some(slot);
    }

    /// The slot that the value is in.
    pub(super) fn slot(&self) -> Option<u32> {
        self.value.as_ref().map(|value| value.slot.get())
    }

    /// The value as others may go on from it; none while a step may be writing it.
    pub(super) fn share(&self) -> Option<Value> {
        if self.in_step.is_some() { None } else { self.value.clone() }
    }

    /// Tokens of the value that no longer can be taken back.
    pub(super) fn taken(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.taken)
    }

    /// Every slot it holds, for bookkeeping.
    #[cfg(test)]
    pub(super) fn held(&self) -> impl Iterator<Item = u32> {
        let value = self.value.iter().chain(self.in_step.iter().map(|(value, _)| value)).map(|value| value.slot.get());
        value.chain(self.next.iter().map(Id::get))
    }

    /// How the step over `rows` tokens behind the first `len` advances the state, in place where nobody else sees it.
    pub(super) fn begin(&mut self, len: usize, rows: usize, tentative: usize) -> Result<RecurrentStep, LeaseError> {
        if self.is_own() {
            // It may have been seen by others before.
            self.value = self.value.take().map(|value| Value { slot: value.slot.renewed(), ..value });
        }
        let to = match (&self.value, self.next.take()) {
            (Some(value), next) if value.slot.references() == 1 => {
                self.next = next;
                value.slot.clone()
            }
            (_, Some(next)) => next,
            (_, None) => return Err(LeaseError::NoSlot { len }),
        };
        let from = self.value.as_ref().map_or(NO_SLOT, |value| value.slot.get());
        let (accepted, step_to) = (len - self.taken(), to.get());
        let taken = len + rows.saturating_sub(tentative);
        self.in_step = Some((Value { slot: to, taken }, tentative));
        Ok(RecurrentStep { from, to: step_to, accepted, tentative })
    }

    /// Takes over what the step made, of which the tokens up to `to` are kept.
    pub(super) fn end(&mut self, to: usize) -> Result<(), LeaseError> {
        let Some((value, tentative)) = &self.in_step else { return Err(LeaseError::NoStep { to }) };
        if to < value.taken || to > value.taken + tentative {
            return Err(LeaseError::Taken { to, taken: value.taken });
        }
        self.value = self.in_step.take().map(|(value, _)| value);
        Ok(())
    }

    /// Takes the provided slot for the value after `len` tokens.
    pub(super) fn claim(&mut self, len: usize) {
        self.value = self.next.take().map(|slot| Value { slot, taken: len });
    }

    /// Forgets the value: the sequence begins anew.
    pub(super) fn reset(&mut self) {
        self.value = None;
    }
}
