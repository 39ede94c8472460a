//! A running step as its members see it: where values lie, and who may touch them.
//!
//! The rule that makes sharing sound: values are read and written only by the nodes that name them as operands and
//! results. Between a node that writes and one that reads stands a barrier, except where each member reads only what it
//! wrote itself (`compile::schedule`); values that live at the same time do not overlap (`compile::plan`); and the
//! members that run a node write disjoint parts of its results.

use std::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::Range,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use bantam_backend::Step;

use super::experts::Tally;
use crate::{
    attention::{Partials, PieceScratch, top_keys::Candidates},
    compile::{Plan, Private, Weights, ir::ValueId},
    isa::Isa,
    linear::Scratch,
    memory::Zeroed,
    pool::Pool,
    recurrent::{SlotPool, Strip},
    step::{Prepared, RowMap},
    team::Member,
};

/// A run of entries that several members fill, each its own part.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out by an unsafe function whose callers keep them apart.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// All of some entries.
    #[cfg(test)]
    pub(crate) fn of(entries: &'a mut [T]) -> Self {
        Shared { start: entries.as_mut_ptr(), len: entries.len(), borrow: PhantomData }
    }

    /// A part of it.
    ///
    /// # Safety
    /// Nobody else may touch the part while this borrow lives.
    #[allow(clippy::mut_from_ref, reason = "the parts of different members are disjoint by contract")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range lies in the entries; that it is not shared is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// All of it, for kernels that keep their parts apart themselves.
    pub(crate) fn start(&self) -> *mut T {
        self.start
    }

    /// Entries of it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// How the rows of a value lie: all of them, or those of a piece with the piece's columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Entries from row to row.
    pub(crate) pitch: usize,
    /// The first column that is there.
    pub(crate) first: usize,
    of_piece: bool,
}

/// A row of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceRow {
    /// Its number among the piece's rows.
    pub(crate) number: usize,
    /// Its number among all rows.
    pub(crate) row: usize,
}

impl Layout {
    /// All rows, of so many entries.
    pub(crate) fn whole(pitch: usize) -> Self {
        Layout { pitch, first: 0, of_piece: false }
    }

    /// The entries of some columns of a row.
    pub(crate) fn entries(&self, PieceRow { number, row }: PieceRow, columns: &Range<usize>) -> Range<usize> {
        let start = self.pitch * if self.of_piece { number } else { row };
        start + columns.start - self.first..start + columns.end - self.first
    }

    /// Whether only rows of a piece are there.
    pub(crate) fn is_of_piece(&self) -> bool {
        self.of_piece
    }
}

/// What a member has for itself.
pub(crate) struct MemberScratch {
    pub(crate) linear: Scratch,
    pub(crate) piece: PieceScratch,
    pub(crate) candidates: Candidates,
    /// The state of a unit of a recurrence.
    pub(crate) strips: Vec<Strip>,
}

/// One value per member, each on cache lines of its own.
pub(crate) struct PerMember<T>(Vec<Padded<T>>);

#[repr(align(128))]
struct Padded<T>(UnsafeCell<T>);

// SAFETY: each member takes only its own entry.
unsafe impl<T: Send> Sync for PerMember<T> {}

impl<T> PerMember<T> {
    pub(crate) fn new(values: impl Iterator<Item = T>) -> Self {
        PerMember(values.map(|v| Padded(UnsafeCell::new(v))).collect())
    }

    /// A member's entry.
    ///
    /// # Safety
    /// The member must not hold another borrow of it.
    #[allow(clippy::mut_from_ref, reason = "each member has an entry of its own")]
    unsafe fn of(&self, member: &Member<'_>) -> &mut T {
        // SAFETY: no two threads are the same member; the rest is the caller's promise.
        unsafe { &mut *self.0[member.index()].0.get() }
    }
}

/// Counts the pieces of work of a node that have been taken.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Claims(AtomicUsize);

impl Claims {
    /// None taken.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Takes the next piece of `units`.
    pub(crate) fn next(&self, units: usize) -> Option<usize> {
        let unit = self.0.fetch_add(1, Ordering::Relaxed);
        (unit < units).then_some(unit)
    }
}

/// A running step.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) weights: &'a Weights,
    pub(crate) pools: &'a [Pool],
    /// The recurrent state of the graph that runs.
    pub(crate) slots: Option<&'a SlotPool>,
    pub(crate) step: &'a Step,
    pub(crate) prepared: &'a Prepared,
    pub(crate) arena: &'a Zeroed,
    pub(crate) scratch: &'a PerMember<MemberScratch>,
    pub(crate) partials: &'a Partials,
    /// One per node.
    pub(crate) claims: &'a [Claims],
    pub(crate) tally: &'a Tally,
    /// Why an op from outside could not compute its rows, if one could not.
    pub(crate) fault: &'a OnceLock<String>,
    pub(crate) isa: Isa,
    /// Whether the step has so few rows that members round them for themselves.
    pub(crate) few: bool,
}

impl<'a> Frame<'a> {
    /// What the rows of a value's space stand for.
    pub(crate) fn row_map(&self, value: ValueId) -> &'a RowMap {
        self.prepared.rows(self.plan.values[value].rows)
    }

    /// Rows of a value in this step.
    pub(crate) fn rows(&self, value: ValueId) -> usize {
        self.row_map(value).len() * self.plan.values[value].per_row
    }

    /// Entries of a row of a value.
    pub(crate) fn width(&self, value: ValueId) -> usize {
        self.plan.values[value].width
    }

    /// How each member has a value for itself in this step, if it does.
    pub(crate) fn private(&self, value: ValueId) -> Option<Private> {
        self.plan.places.private[value].filter(|private| self.few || matches!(private, Private::Piece(_)))
    }

    /// How the rows of a value lie, to a member that has columns `piece` in hand.
    pub(crate) fn layout(&self, value: ValueId, piece: &Range<usize>) -> Layout {
        match self.private(value) {
            Some(Private::Piece(_)) => Layout { pitch: piece.len(), first: piece.start, of_piece: true },
            _ => Layout::whole(self.width(value)),
        }
    }

    /// The entries of a value as member `member` reads them.
    ///
    /// # Safety
    /// `T` must be the type of the value's entries, and no member may write what the caller reads.
    pub(crate) unsafe fn read<T>(&self, value: ValueId, member: usize) -> &'a [T] {
        let shared = self.write::<T>(value, member);
        // SAFETY: the value's place holds initialised entries (zeros at first), which nobody writes now.
        unsafe { std::slice::from_raw_parts(shared.start, shared.len) }
    }

    /// The entries of a value as member `member` writes them, in parts.
    pub(crate) fn write<T>(&self, value: ValueId, member: usize) -> Shared<'a, T> {
        let v = &self.plan.values[value];
        assert_eq!(size_of::<T>(), v.entry.bytes(), "entries of `{}`", v.name);
        let private = self.private(value);
        let own = private.map_or(0, |private| member * private.stride());
        let offset = self.plan.places.offsets[value] + own;
        let len = match private {
            Some(Private::Piece(stride)) => stride / size_of::<T>(),
            _ => v.entries(self.row_map(value).len()),
        };
        assert!(offset + len * size_of::<T>() <= self.arena.len(), "`{}` lies outside of the arena", v.name);
        // SAFETY: just checked.
        let start = unsafe { self.arena.start().as_ptr().add(offset) };
        Shared { start: start.cast(), len, borrow: PhantomData }
    }

    /// A member's scratch.
    ///
    /// # Safety
    /// The member must not hold another borrow of it.
    pub(crate) unsafe fn scratch(&self, member: &Member<'_>) -> &'a mut MemberScratch {
        // SAFETY: as the caller promises.
        unsafe { self.scratch.of(member) }
    }
}
