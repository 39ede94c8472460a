//! A state on its way between the program and bytes, on the executor's thread.

use std::time::{Duration, Instant};

use bantam_backend::{Program, Step, StepError};
use ractor::RpcReplyPort;

use crate::{
    cache::{Held, Lease, PagePlace, StateKept, Watched},
    snapshot::{SavedPage, SavedState, SnapshotError},
};

/// A transfer on the executor's thread, and back.
#[derive(Debug)]
pub(crate) struct TransferJob {
    pub(crate) lease: Lease,
    /// The lease's pages, by id.
    pub(crate) pages: Vec<(PagePlace, u32)>,
    /// Slot of the recurrent value.
    pub(crate) slot: Option<u32>,
    /// To be run first: takes in accepted rows that the slot keeps as tentative.
    pub(crate) settle: Option<Step>,
    pub(crate) kind: TransferKind,
}

/// Which way.
#[derive(Debug)]
pub(crate) enum TransferKind {
    /// Fills the state.
    Save { state: SavedState, result: Result<(), String>, reply: RpcReplyPort<Result<SavedState, SnapshotError>> },
    /// Writes the state.
    Restore { state: SavedState, result: Result<(), String>, reply: RpcReplyPort<Result<usize, SnapshotError>> },
}

/// The graph whose state is moved.
const TRUNK: usize = 0;

impl TransferJob {
    /// Moves the state.
    pub(crate) fn run(&mut self, program: &mut dyn Program) {
        let (pages, slot) = (&self.pages, self.slot);
        let settled = self.settle.as_ref().map_or(Ok(()), |step| program.run(step));
        let moved = match &mut self.kind {
            TransferKind::Save { state, .. } => settled.and_then(|()| save(program, pages, slot, state)),
            TransferKind::Restore { state, .. } => settled.and_then(|()| restore(program, pages, slot, state)),
        };
        self.end(moved.map_err(|e| e.to_string()));
    }

    /// Notes how it went.
    pub(crate) fn end(&mut self, moved: Result<(), String>) {
        match &mut self.kind {
            TransferKind::Save { result, .. } | TransferKind::Restore { result, .. } => *result = moved,
        }
    }
}

fn save(
    program: &mut dyn Program,
    pages: &[(PagePlace, u32)],
    slot: Option<u32>,
    state: &mut SavedState,
) -> Result<(), StepError> {
    for &(place, page) in pages {
        let mut bytes = Vec::new();
        program.save_page(place.group, page, place.tokens, &mut bytes)?;
        state.pages.push(SavedPage { place, bytes });
    }
    if let Some(slot) = slot {
        program.save_slot(TRUNK, slot, state.slot.insert(Vec::new()))?;
    }
    Ok(())
}

fn restore(
    program: &mut dyn Program,
    pages: &[(PagePlace, u32)],
    slot: Option<u32>,
    state: &SavedState,
) -> Result<(), StepError> {
    for (&(place, page), saved) in pages.iter().zip(&state.pages) {
        program.load_page(place.group, page, place.tokens, &saved.bytes)?;
    }
    match (slot, &state.slot) {
        (Some(slot), Some(bytes)) => program.load_slot(TRUNK, slot, bytes),
        _ => Ok(()),
    }
}

/// Bytes of state, or none where it no longer is what it was.
pub(crate) type Copies = Vec<Option<Vec<u8>>>;

/// A few pages and slots to be copied between two steps.
#[derive(Debug)]
pub(crate) struct CopyJob {
    pub(crate) wanted: Vec<Watched>,
    /// Of the first that were wanted, at least one and as many as time allowed.
    pub(crate) copies: Result<Copies, String>,
    pub(crate) reply: RpcReplyPort<Result<Copies, String>>,
}

impl CopyJob {
    /// How long the next step may have to wait.
    const PAUSE: Duration = Duration::from_millis(2);

    /// Copies.
    pub(crate) fn run(&mut self, program: &dyn Program) {
        let start = Instant::now();
        let in_time = |(done, _): &(usize, &Watched)| *done == 0 || start.elapsed() < CopyJob::PAUSE;
        let wanted = self.wanted.iter().enumerate().take_while(in_time);
        let copies = wanted.map(|(_, watched)| watched.hold().map(|held| copy(program, &held)).transpose());
        self.copies = copies.collect::<Result<Copies, StepError>>().map_err(|e| e.to_string());
    }
}

fn copy(program: &dyn Program, held: &Held) -> Result<Vec<u8>, StepError> {
    let mut bytes = Vec::new();
    match held.what {
        StateKept::Page { group, tokens } => program.save_page(group, held.id(), tokens, &mut bytes)?,
        StateKept::Slot => program.save_slot(TRUNK, held.id(), &mut bytes)?,
    }
    Ok(bytes)
}
