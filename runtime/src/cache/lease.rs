//! What a running sequence holds: its pages, and the tables that a step reads.

use std::sync::Arc;

use bantam_backend::{NO_PAGE, PageCopy, PageTable, RecurrentStep, StateGroup};

use super::{
    pool::{NoRoom, Page, Pools},
    slots::{RecurrentLease, Value},
    tree::{NodeId, Pin, first_page},
};

/// Why a lease cannot move.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// More rows than there are pages for.
    #[error("sequence cannot advance to {to} tokens: pages are there for {reserved}; grow it first")]
    NotReserved {
        /// Tokens asked for.
        to: usize,
        /// Tokens there are pages for.
        reserved: usize,
    },
    /// A window page that the shorter sequence needs was given back.
    #[error("sequence cannot go back to {to} tokens: state group {group} no longer has the rows before it")]
    Forgotten {
        /// Tokens asked for.
        to: usize,
        /// The group.
        group: usize,
    },
    /// The recurrent value is past the place, or not there yet.
    #[error("sequence cannot stand at {to} tokens: its recurrent state has taken in {taken} for good")]
    Taken {
        /// Tokens asked for.
        to: usize,
        /// Tokens taken in.
        taken: usize,
    },
    /// No slot was provided for the step.
    #[error("sequence cannot go on after {len} tokens: it has no slot of its own for recurrent state; grow it first")]
    NoSlot {
        /// Tokens it has.
        len: usize,
    },
    /// The recurrent value was not advanced.
    #[error("sequence cannot advance to {to} tokens: no step of its recurrent state was begun")]
    NoStep {
        /// Tokens asked for.
        to: usize,
    },
}

/// A copy that a step must make. Keeps both pages from being used for anything else; drop it when the step has run.
#[derive(Debug)]
pub struct PendingCopy {
    copy: PageCopy,
    _pages: [Page; 2],
}

impl PendingCopy {
    /// What the step is told.
    pub fn copy(&self) -> PageCopy {
        self.copy
    }
}

/// Which page of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePlace {
    /// State group.
    pub group: usize,
    /// Entry of the group's table.
    pub index: usize,
    /// Tokens of the sequence that it holds.
    pub tokens: usize,
}

/// A page of a sequence.
#[derive(Debug)]
struct Slot {
    page: Page,
    /// Rows of earlier tokens are seen by others, and are not this sequence's to write.
    writable_from: usize,
}

impl Slot {
    /// Lets others lose sight of rows from token `len` on, which they saw and which will be written over.
    fn renewed(self, len: usize) -> Self {
        if self.writable_from <= len { self } else { Slot { page: self.page.renewed(), ..self } }
    }
}

/// Where in the tree a sequence's published tokens end.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) node: NodeId,
    pub(super) _pin: Pin,
}

/// The pages of a running sequence. Dropping it gives back those that nobody else holds.
#[derive(Debug)]
pub struct Lease {
    pub(super) groups: Arc<[StateGroup]>,
    pub(super) namespace: u64,
    pub(super) cursor: Option<Cursor>,
    /// Tokens that the cursor stands behind; 0 after going back behind it.
    pub(super) published: usize,
    len: usize,
    reserved: usize,
    tables: Vec<PageTable>,
    slots: Vec<Vec<Option<Slot>>>,
    /// Per group, the first table entry that was not given back.
    first_kept: Vec<usize>,
    copies: Vec<PendingCopy>,
    /// If the model has recurrent state.
    pub(super) recurrent: Option<RecurrentLease>,
}

impl Lease {
    /// A sequence whose first `len` tokens have their state in shared pages: `page(group, index)` for the needed ones.
    pub(super) fn shared(
        groups: Arc<[StateGroup]>,
        namespace: u64,
        len: usize,
        recurrent: Option<RecurrentLease>,
        page: impl Fn(usize, usize) -> Option<Page>,
    ) -> Self {
        let mut lease = Lease {
            namespace,
            cursor: None,
            published: 0,
            len,
            reserved: len,
            tables: vec![PageTable::new(); groups.len()],
            slots: groups.iter().map(|_| Vec::new()).collect(),
            first_kept: groups.iter().map(|group| first_page(group, len)).collect(),
            copies: Vec::new(),
            recurrent,
            groups,
        };
        for (g, group) in lease.groups.iter().enumerate() {
            let first = lease.first_kept[g];
            for index in 0..group.pages(len) {
                let slot = page(g, index).filter(|_| index >= first);
                lease.tables[g].push(slot.as_ref().map_or(NO_PAGE, Page::id));
                lease.slots[g].push(slot.map(|page| Slot { page, writable_from: usize::MAX }));
            }
        }
        lease
    }

    /// Tokens whose state is there: the next step starts with the token of this index.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token's state is there.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens that pages are there for, at least [`Lease::len`].
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Page tables for the next step, one per state group.
    pub fn tables(&self) -> &[PageTable] {
        &self.tables
    }

    /// The pages that a sequence needs to go on, with their ids.
    pub fn pages(&self) -> impl Iterator<Item = (PagePlace, u32)> {
        let groups = self.groups.iter().zip(&self.tables).enumerate();
        groups.flat_map(move |(g, (group, table))| {
            let indexes = first_page(group, self.len)..group.pages(self.len);
            let held = indexes.zip(table.iter().skip(first_page(group, self.len)));
            held.filter(|(_, id)| **id != NO_PAGE).map(move |(index, &id)| {
                let tokens = group.page_tokens.min(self.len - index * group.page_tokens);
                (PagePlace { group: g, index, tokens }, id)
            })
        })
    }

    /// The slot of its recurrent value.
    pub fn slot(&self) -> Option<u32> {
        self.recurrent.as_ref().and_then(RecurrentLease::slot)
    }

    /// Whether its recurrent value has yet to take in accepted rows; a step of no rows does it.
    pub fn unsettled(&self) -> bool {
        self.recurrent.as_ref().is_some_and(|recurrent| recurrent.taken() < self.len)
    }

    /// Copies that the next step must make before it computes.
    pub fn take_copies(&mut self) -> Vec<PendingCopy> {
        std::mem::take(&mut self.copies)
    }

    /// How the next step, of `rows` tokens of which the last `tentative` may be rejected, advances the recurrent state;
    /// `None` if there is none. To be called once for the step, which [`Lease::advance`] ends.
    ///
    /// # Errors
    /// If the lease was not grown for the step.
    pub fn recurrent_step(&mut self, rows: usize, tentative: usize) -> Result<Option<RecurrentStep>, LeaseError> {
        let len = self.len;
        self.recurrent.as_mut().map(|recurrent| recurrent.begin(len, rows, tentative)).transpose()
    }

    /// Counts `rows` more tokens as computed, after the step that computed them, and gives back pages that no later
    /// token needs.
    ///
    /// # Errors
    /// If there are no pages for so many, or the step's certain rows were more.
    pub fn advance(&mut self, rows: usize) -> Result<(), LeaseError> {
        let to = self.len.saturating_add(rows);
        if to > self.reserved {
            return Err(LeaseError::NotReserved { to, reserved: self.reserved });
        }
        self.recurrent.as_mut().map_or(Ok(()), |recurrent| recurrent.end(to))?;
        self.len = to;
        for g in 0..self.groups.len() {
            let first = first_page(&self.groups[g], to);
            for index in self.first_kept[g]..first.min(self.slots[g].len()) {
                self.put(g, index, None);
            }
            self.first_kept[g] = self.first_kept[g].max(first);
        }
        Ok(())
    }

    /// Keeps the first `to` tokens: gives back pages behind them, and forgets tokens that were computed behind them.
    ///
    /// # Errors
    /// If a window group gave back rows that the token at `to` needs, or the recurrent value is past it; the sequence is
    /// unchanged then. It can always begin anew, at 0.
    pub fn truncate(&mut self, to: usize) -> Result<(), LeaseError> {
        let len = self.len.min(to);
        for (g, group) in self.groups.iter().enumerate() {
            let mut needed = first_page(group, len)..group.pages(len);
            if needed.any(|index| !matches!(self.slots[g].get(index), Some(Some(_)))) {
                return Err(LeaseError::Forgotten { to, group: g });
            }
        }
        if let Some(recurrent) = &mut self.recurrent {
            let taken = recurrent.taken();
            match len {
                0 => recurrent.reset(),
                len if len < taken => return Err(LeaseError::Taken { to, taken }),
                _ => {}
            }
        }
        for (g, group) in self.groups.iter().enumerate() {
            self.slots[g].truncate(group.pages(to));
            self.tables[g].truncate(group.pages(to));
            self.first_kept[g] = self.first_kept[g].min(first_page(group, len));
        }
        self.reserved = self.reserved.min(to);
        self.len = len;
        if self.len < self.published {
            self.published = 0;
        }
        Ok(())
    }

    /// Pages of each group that [`Lease::extend`] would take, copies of shared tails included.
    pub fn wanted(&self, to: usize) -> Vec<usize> {
        (0..self.groups.len())
            .map(|g| self.written_pages(g, to).filter(|&index| !self.is_writable(g, index)).count())
            .collect()
    }

    /// Takes pages for rows up to `to`. If a pool has too few, those taken before stay.
    pub(super) fn extend(&mut self, to: usize, pools: &mut Pools) -> Result<(), NoRoom> {
        for g in 0..self.groups.len() {
            for index in self.written_pages(g, to) {
                if !self.is_writable(g, index) {
                    let page = pools.allocate(g).ok_or(NoRoom::Pages { group: g, missing: 1 })?;
                    self.copy_shared_rows(g, index, &page);
                    self.put(g, index, Some(Slot { page, writable_from: 0 }));
                } else if let Some(entry) = self.slots[g].get_mut(index) {
                    *entry = entry.take().map(|slot| slot.renewed(self.len));
                }
            }
        }
        self.reserved = self.reserved.max(to);
        Ok(())
    }

    /// Pages of each group that [`Lease::claim`] takes.
    pub(super) fn claimed(&self, len: usize) -> Vec<usize> {
        self.groups.iter().map(|group| group.pages(len).saturating_sub(first_page(group, len))).collect()
    }

    /// Gives an empty sequence pages of its own for the state after `len` tokens, and its provided slot, to be written.
    pub(super) fn claim(&mut self, len: usize, pools: &mut Pools) -> Result<(), NoRoom> {
        let groups = Arc::clone(&self.groups);
        for (g, group) in groups.iter().enumerate() {
            let first = first_page(group, len);
            for index in 0..group.pages(len) {
                let page = match index < first {
                    true => None,
                    false => Some(pools.allocate(g).ok_or(NoRoom::Pages { group: g, missing: 1 })?),
                };
                self.put(g, index, page.map(|page| Slot { page, writable_from: 0 }));
            }
            self.first_kept[g] = first;
        }
        self.recurrent.iter_mut().for_each(|recurrent| recurrent.claim(len));
        (self.len, self.reserved) = (len, len);
        Ok(())
    }

    /// Whether a step up to token `to` needs a slot of recurrent state that is not there.
    pub(super) fn wants_slot(&self, to: usize) -> bool {
        to > self.len && self.recurrent.as_ref().is_some_and(RecurrentLease::wants_slot)
    }

    /// The recurrent value after the sequence's tokens.
    pub(super) fn value(&self) -> Option<Value> {
        self.recurrent.as_ref().and_then(RecurrentLease::share)
    }

    /// Page `index` of a group as a node ending at `end` keeps it; `None` if nobody resuming there needs it.
    pub(super) fn page_for(&self, group: usize, index: usize, end: usize) -> Option<Page> {
        let slot = self.slots[group].get(index)?.as_ref()?;
        (index >= first_page(&self.groups[group], end)).then(|| slot.page.clone())
    }

    /// Uses an equal page that others hold already instead of its own.
    pub(super) fn adopt(&mut self, group: usize, index: usize, page: &Page) {
        let held = self.slots[group].get(index).and_then(Option::as_ref);
        if held.is_some_and(|slot| slot.page.id() != page.id()) {
            self.put(group, index, Some(Slot { page: page.clone(), writable_from: usize::MAX }));
        }
    }

    /// Notes that others see the rows of tokens `from..end`.
    pub(super) fn seal(&mut self, from: usize, end: usize) {
        for (group, slots) in self.groups.iter().zip(&mut self.slots) {
            let pages = slots.iter_mut().take(group.pages(end)).skip(from / group.page_tokens);
            for slot in pages.flatten() {
                slot.writable_from = slot.writable_from.max(end);
            }
        }
    }

    /// Table entries that rows `len..to` are written to.
    fn written_pages(&self, group: usize, to: usize) -> std::ops::Range<usize> {
        let group = &self.groups[group];
        if to > self.len { self.len / group.page_tokens..group.pages(to) } else { 0..0 }
    }

    fn is_writable(&self, group: usize, index: usize) -> bool {
        let slot = self.slots[group].get(index).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.writable_from <= self.len || slot.page.references() == 1)
    }

    fn copy_shared_rows(&mut self, group: usize, index: usize, to: &Page) {
        let rows = self.len.saturating_sub(index * self.groups[group].page_tokens);
        let Some(Some(slot)) = self.slots[group].get(index) else { return };
        if rows > 0 {
            let copy = PageCopy { group, from: slot.page.id(), to: to.id(), tokens: rows };
            self.copies.push(PendingCopy { copy, _pages: [slot.page.clone(), to.clone()] });
        }
    }

    fn put(&mut self, group: usize, index: usize, slot: Option<Slot>) {
        let (slots, table) = (&mut self.slots[group], &mut self.tables[group]);
        if slots.len() <= index {
            slots.resize_with(index + 1, || None);
            table.resize(index + 1, NO_PAGE);
        }
        table[index] = slot.as_ref().map_or(NO_PAGE, |slot| slot.page.id());
        slots[index] = slot;
    }
}
