//! States that leave and enter the caches between two steps: snapshots taken and restored, copies for the archive.
//!
//! The kv actor leases the state, so that its pages and slot stay what they are; the executor's thread copies it; then the
//! lease ends, and a restored state stays findable.

use std::{collections::VecDeque, time::Instant};

use bantam_backend::{SequenceStep, Step};
use ractor::{ActorProcessingErr, RpcReplyPort};

use super::SchedulerState;
use crate::{
    actors::{
        executor::ExecutorMessage,
        kv::KvMessage,
        transfer::{Copies, CopyJob, TransferJob, TransferKind},
    },
    cache::{Lease, Watched},
    snapshot::{SavedState, SnapshotError},
};

/// A transfer that was asked for.
#[derive(Debug)]
pub(crate) enum Transfer {
    /// Save the state of these tokens, as far as it is cached.
    Save { tokens: Vec<u32>, reply: RpcReplyPort<Result<SavedState, SnapshotError>> },
    /// Make this state findable; the answer is its number of tokens.
    Restore { state: SavedState, reply: RpcReplyPort<Result<usize, SnapshotError>> },
    /// Copy the first of these, as many as a short pause allows.
    Copy { wanted: Vec<Watched>, reply: RpcReplyPort<Result<Copies, String>> },
}

impl SchedulerState {
    /// Hands the next transfer that can be made to the executor; true if there was one.
    pub(super) async fn next_transfer(&mut self) -> Result<bool, ActorProcessingErr> {
        while let Some(transfer) = self.transfers.pop_front() {
            let myself = self.myself.clone();
            let job = match transfer {
                Transfer::Save { tokens, reply } => self.save(tokens, reply).await?,
                Transfer::Restore { state, reply } => self.restore(state, reply).await?,
                Transfer::Copy { wanted, reply } => {
                    let job = Box::new(CopyJob { wanted, copies: Ok(Copies::new()), reply });
                    self.computing = Some(Instant::now());
                    self.arguments.executor.cast(ExecutorMessage::Copy(job, myself))?;
                    return Ok(true);
                }
            };
            if let Some(job) = job {
                self.computing = Some(Instant::now());
                self.arguments.executor.cast(ExecutorMessage::Transfer(Box::new(job), myself))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn save(
        &self,
        mut tokens: Vec<u32>,
        reply: RpcReplyPort<Result<SavedState, SnapshotError>>,
    ) -> Result<Option<TransferJob>, ActorProcessingErr> {
        let wanted = tokens.clone();
        let found = ractor::call!(self.arguments.kv, |reply| KvMessage::Export { tokens: wanted, reply })?;
        let mut lease = match found {
            Ok(lease) if !lease.is_empty() => lease,
            Ok(_) => return Ok(refuse(reply, SnapshotError::NotCached)),
            Err(why) => return Ok(refuse(reply, SnapshotError::Failed(why.to_string()))),
        };
        tokens.truncate(lease.len());
        let history = &tokens[tokens.len().saturating_sub(self.arguments.history)..];
        let settle = match lease.unsettled() {
            true => Some(settling(&mut lease, history)?),
            false => None,
        };
        let (pages, slot) = (lease.pages().collect(), lease.slot());
        let state = SavedState { tokens, ..SavedState::default() };
        let kind = TransferKind::Save { state, result: Ok(()), reply };
        Ok(Some(TransferJob { lease, pages, slot, settle, kind }))
    }

    async fn restore(
        &self,
        state: SavedState,
        reply: RpcReplyPort<Result<usize, SnapshotError>>,
    ) -> Result<Option<TransferJob>, ActorProcessingErr> {
        let tokens = state.tokens.len();
        if tokens == 0 {
            return Ok(refuse(reply, SnapshotError::Damaged("it has no tokens")));
        }
        let lease = match ractor::call!(self.arguments.kv, |reply| KvMessage::Import { tokens, reply })? {
            Ok(lease) => lease,
            Err(why) => return Ok(refuse(reply, SnapshotError::Failed(why.to_string()))),
        };
        let (pages, slot) = (lease.pages().collect::<Vec<_>>(), lease.slot());
        let places = state.pages.iter().map(|page| page.place);
        if !places.eq(pages.iter().map(|(place, _)| *place)) || state.slot.is_some() != slot.is_some() {
            return Ok(refuse(reply, SnapshotError::Damaged("its pages are not those of its tokens")));
        }
        let kind = TransferKind::Restore { state, result: Ok(()), reply };
        Ok(Some(TransferJob { lease, pages, slot, settle: None, kind }))
    }

    /// A part of the cache was copied.
    pub(super) fn copy_done(&mut self, job: CopyJob) {
        self.computing = None;
        // Whoever asked may have gone.
        job.reply.send(job.copies).ok();
    }

    /// A transfer was made.
    pub(super) fn transfer_done(&mut self, job: TransferJob) -> Result<(), ActorProcessingErr> {
        self.computing = None;
        // Whoever asked may have gone.
        match job.kind {
            TransferKind::Save { state, result, reply } => {
                reply.send(result.map(|()| state).map_err(SnapshotError::Failed)).ok();
            }
            TransferKind::Restore { state, result, reply } => {
                let tokens = state.tokens.len();
                if result.is_ok() {
                    self.arguments.kv.cast(KvMessage::Retire { lease: job.lease, tokens: state.tokens })?;
                }
                reply.send(result.map(|()| tokens).map_err(SnapshotError::Failed)).ok();
            }
        }
        Ok(())
    }
}

/// Transfers that wait for the step to end.
pub(super) type Transfers = VecDeque<Transfer>;

fn refuse<T: Send + 'static>(reply: RpcReplyPort<Result<T, SnapshotError>>, why: SnapshotError) -> Option<TransferJob> {
    reply.send(Err(why)).ok();
    None
}

/// A step without rows, which only takes in accepted ones.
fn settling(lease: &mut Lease, history: &[u32]) -> Result<Step, ActorProcessingErr> {
    let sequence = SequenceStep {
        rows: 0,
        start: lease.len(),
        tables: lease.tables().to_vec(),
        history: history.to_vec(),
        recurrent: lease.recurrent_step(0, 0)?,
    };
    lease.advance(0)?;
    Ok(Step { sequences: vec![sequence], ..Step::default() })
}
