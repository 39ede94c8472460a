//! The memory ledger: who holds how much, decided before the first byte is taken.

use crate::{
    engine::{MemoryEntry, MemoryStatus},
    os,
    words::size,
};

/// Why memory is not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{owner}: {what} needs {}, but only {} of memory is free after {}; {hint}",
    size(*.needed), size(*.free), size(*.held)
)]
pub(crate) struct OutOfMemory {
    pub(crate) owner: String,
    pub(crate) what: String,
    pub(crate) needed: u64,
    pub(crate) free: u64,
    pub(crate) held: u64,
    pub(crate) hint: String,
}

/// Accounts for the memory of resident models.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    entries: Vec<MemoryEntry>,
    /// What could be taken when the ledger was opened; `u64::MAX` where nobody knows.
    total: u64,
}

impl Ledger {
    /// An empty ledger over what this machine has free now.
    pub(crate) fn of_this_machine() -> Self {
        Ledger::with_total(os::available_memory().unwrap_or(u64::MAX))
    }

    /// An empty ledger over this many bytes.
    pub(crate) fn with_total(total: u64) -> Self {
        Ledger { entries: Vec::new(), total }
    }

    /// Bytes entered.
    pub(crate) fn held(&self) -> u64 {
        self.entries.iter().fold(0, |sum, e| sum.saturating_add(e.bytes))
    }

    /// Bytes not entered.
    pub(crate) fn free(&self) -> u64 {
        self.total.saturating_sub(self.held())
    }

    /// What is entered, for people.
    pub(crate) fn status(&self) -> MemoryStatus {
        let total = Some(self.total).filter(|total| *total < u64::MAX);
        MemoryStatus { total, entries: self.entries.clone(), ..MemoryStatus::default() }
    }

    /// Enters an allocation.
    ///
    /// # Errors
    /// If it is more than is free; `hint` says which flag would make it fit.
    pub(crate) fn enter(&mut self, owner: &str, what: &str, bytes: u64, hint: &str) -> Result<(), OutOfMemory> {
        if bytes > self.free() {
            return Err(OutOfMemory {
                owner: owner.into(),
                what: what.into(),
                needed: bytes,
                free: self.free(),
                held: self.held(),
                hint: hint.into(),
            });
        }
        self.entries.push(MemoryEntry { owner: owner.into(), what: what.into(), bytes });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_all_numbers() {
        let mut ledger = Ledger::with_total(10 << 30);
        ledger.enter("llama:0", "weights", 8 << 30, "").unwrap();
        let error = ledger.enter("llama:0", "state", 3 << 30, "lower --context").unwrap_err();
        let text = error.to_string();
        for part in ["llama:0", "state", "3.00 GiB", "2.00 GiB", "8.00 GiB", "lower --context"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(ledger.held(), 8 << 30, "a refused entry is not kept");
        let MemoryStatus { total, entries, .. } = ledger.status();
        assert_eq!((total, entries.len(), entries[0].what.as_str()), (Some(10 << 30), 1, "weights"));
        assert_eq!(Ledger::with_total(u64::MAX).status().total, None);
    }
}
