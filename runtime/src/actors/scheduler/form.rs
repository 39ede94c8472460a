//! Forming a step: who takes part, with which tokens and pages.

use bantam_backend::SequenceStep;
use ractor::ActorProcessingErr;

use super::{
    SchedulerState,
    batch::{Budget, Limits},
};
use crate::{
    actors::{
        executor::{ExecutorMessage, StepJob, Want},
        job::TokenEvent,
        kv::{KvMessage, LeaseWork},
    },
    cache::Acquired,
};

/// Part of a step's rows that prompts may take while others decode: bounds the pause between two of their tokens.
const PROMPT_PART_BESIDE_DECODE: usize = 4;

/// Pages are asked for so many tokens at a time, so that most decoding steps need none.
const GROW_BY: usize = 16;

/// Tokens of a prefix that another sequence is about to compute from which on waiting for it pays.
const WORTH_WAITING: usize = 32;

/// Tokens that two sequences begin with alike.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

impl SchedulerState {
    /// Starts the next step if there is anything to compute.
    pub(super) async fn next_step(&mut self) -> Result<(), ActorProcessingErr> {
        self.retire_cancelled()?;
        if self.next_transfer().await? {
            return Ok(());
        }
        self.assign_slots()?;
        self.publish().await?;
        self.choose().await?;
        self.provide_pages().await?;
        let Some(job) = self.build()? else { return Ok(()) };
        self.counters.steps += 1;
        self.counters.rows += job.step.tokens.len() as u64;
        self.counters.max_step_sequences = self.counters.max_step_sequences.max(job.step.sequences.len());
        self.computing = true;
        self.arguments.executor.cast(ExecutorMessage::Run(job, self.myself.clone()))?;
        Ok(())
    }

    /// Sets `in_step` of each sequence.
    async fn choose(&mut self) -> Result<(), ActorProcessingErr> {
        self.note_waiting();
        let rows = self.arguments.batch;
        let limits = Limits { rows, rows_beside_decode: (rows / PROMPT_PART_BESIDE_DECODE).max(1) };
        let decoding = self.running.iter().filter(|s| s.is_decoding() && s.has_room()).count();
        let mut budget = Budget::new(limits, decoding);
        let mut logit_rows = self.arguments.max_logit_rows;
        for sequence in self.running.iter_mut().filter(|s| s.is_decoding()) {
            sequence.in_step = usize::from(logit_rows > 0 && sequence.has_room() && budget.take_decode());
            logit_rows -= sequence.in_step;
        }
        for index in 0..self.running.len() {
            if self.running[index].is_decoding() || budget.prompt_spent() || logit_rows == 0 {
                continue;
            }
            if !self.running[index].has_room() || self.running[index].waits {
                continue;
            }
            self.acquire(index).await?;
            let sequence = &mut self.running[index];
            let pending = match sequence.capture {
                Some(_) => sequence.until_cut().min(logit_rows),
                None => sequence.until_cut(),
            };
            sequence.in_step = budget.take_prompt(pending, sequence.chunk);
            logit_rows -= match sequence.capture {
                Some(_) => sequence.in_step,
                None => usize::from(sequence.in_step == sequence.pending()),
            };
        }
        Ok(())
    }

    /// Notes which sequences wait for a prefix that an older one is computing. Nobody computes what is being computed; if
    /// the older one goes away, the next computes it. Where state cannot be resumed at any token, the older one stops at
    /// the end of what they share.
    fn note_waiting(&mut self) {
        let anywhere = self.arguments.resumes_anywhere;
        for index in 0..self.running.len() {
            let (older, rest) = self.running.split_at_mut(index);
            let Some(sequence) = rest.first_mut() else { break };
            sequence.waits = false;
            if sequence.lease.is_some() || !sequence.share {
                continue;
            }
            for older in older.iter_mut().filter(|older| older.share && !older.started) {
                // One token at least is computed for its logits.
                let shared = common(&older.tokens, &sequence.tokens).min(sequence.tokens.len() - 1);
                let unfinished = if anywhere { shared.saturating_sub(WORTH_WAITING) } else { shared.saturating_sub(1) };
                if shared >= WORTH_WAITING && older.done() <= unfinished {
                    sequence.waits = true;
                    if !anywhere {
                        older.cuts.add(shared);
                    }
                }
            }
        }
    }

    /// Begins a sequence at its longest cached prefix. At least one token is left to compute, for its logits.
    async fn acquire(&mut self, index: usize) -> Result<(), ActorProcessingErr> {
        let sequence = &mut self.running[index];
        if sequence.lease.is_some() {
            return Ok(());
        }
        let at_most = if sequence.share { sequence.tokens.len() - 1 } else { 0 };
        let tokens = sequence.tokens.clone();
        let Acquired { lease, branch } =
            ractor::call!(self.arguments.kv, |reply| KvMessage::Acquire { tokens, at_most, reply })?;
        if !sequence.started {
            sequence.cached = lease.len().min(sequence.prompt_len);
            self.counters.reused_tokens += sequence.cached as u64;
        }
        sequence.published = lease.len();
        if sequence.share {
            // Where the next request that begins like this one goes on; one that is the same computes its last token.
            sequence.cuts.add(branch.min(at_most));
        }
        sequence.grown_to = 0;
        sequence.lease = Some(lease);
        Ok(())
    }

    /// Shows the rows of earlier steps to others, before anyone looks for a prefix.
    async fn publish(&mut self) -> Result<(), ActorProcessingErr> {
        let mut work = Vec::new();
        for sequence in &mut self.running {
            let Some(publish) = sequence.to_publish() else { continue };
            let resume = sequence.resume();
            if let Some(lease) = sequence.lease.take() {
                work.push(LeaseWork {
                    id: sequence.id,
                    lease,
                    publish: Some((publish, resume)),
                    grow_to: 0,
                    grown: false,
                });
            }
        }
        self.prepare(work).await.map(|_| ())
    }

    /// Gets pages for all chosen rows. While they do not suffice, the youngest sequence is displaced.
    async fn provide_pages(&mut self) -> Result<(), ActorProcessingErr> {
        loop {
            let work = self.growth();
            if self.prepare(work).await? {
                return Ok(());
            }
            self.displace_youngest()?;
        }
    }

    /// Has leases published and grown; false if one could not grow.
    async fn prepare(&mut self, work: Vec<LeaseWork>) -> Result<bool, ActorProcessingErr> {
        if work.is_empty() {
            return Ok(true);
        }
        let done = ractor::call!(self.arguments.kv, |reply| KvMessage::Prepare { work, reply })?;
        let mut all = true;
        for item in done {
            all &= item.grown;
            if let Some(sequence) = self.running.iter_mut().find(|s| s.id == item.id) {
                if let Some((tokens, _)) = item.publish {
                    sequence.published = tokens.len();
                    sequence.grown_to = 0;
                } else if item.grown {
                    sequence.grown_to = item.grow_to;
                }
                sequence.lease = Some(item.lease);
            }
        }
        Ok(all)
    }

    /// Leases whose chosen rows were not provided for since they were last published: publishing may replace a lease's last
    /// page by an equal one that is written no more.
    fn growth(&mut self) -> Vec<LeaseWork> {
        let mut work = Vec::new();
        for sequence in self.running.iter_mut().filter(|s| s.in_step > 0) {
            let end = sequence.done() + sequence.in_step + sequence.rejected();
            if end <= sequence.grown_to {
                continue;
            }
            if let Some(lease) = sequence.lease.take() {
                let grow_to = end.next_multiple_of(GROW_BY);
                work.push(LeaseWork { id: sequence.id, lease, publish: None, grow_to, grown: false });
            }
        }
        work
    }

    /// Takes the pages of the youngest sequence that holds any. A sequence that is alone and still finds none fails: the
    /// pools were sized so that this cannot happen.
    fn displace_youngest(&mut self) -> Result<(), ActorProcessingErr> {
        let holders: Vec<usize> = (0..self.running.len()).filter(|&i| self.running[i].lease.is_some()).collect();
        match holders[..] {
            [] => Ok(()),
            [only] => {
                let why = "no memory for the state of this sequence alone; raise --kv-mib or lower --context";
                self.running[only].tell(TokenEvent::Failed(why.into()));
                self.retire(only)
            }
            [.., youngest] => {
                let sequence = &mut self.running[youngest];
                tracing::debug!(id = sequence.id, "displaced: no free pages");
                sequence.in_step = 0;
                self.let_go(youngest)
            }
        }
    }

    fn build(&mut self) -> Result<Option<Box<StepJob>>, ActorProcessingErr> {
        let mut job = self.spare.take().unwrap_or_default();
        job.step.tokens.clear();
        job.step.logit_rows.clear();
        job.step.copies.clear();
        job.step.sequences.clear();
        job.wants.clear();
        job.held.clear();
        for sequence in self.running.iter_mut().filter(|s| s.in_step > 0) {
            let rejected = sequence.rejected();
            let Some(lease) = &mut sequence.lease else { continue };
            let (start, end) = (lease.len(), lease.len() + sequence.in_step);
            let rows = sequence.in_step + rejected;
            let first_row = job.step.tokens.len();
            job.step.tokens.extend(sequence.tokens.iter().skip(start).take(sequence.in_step));
            job.step.tokens.extend(std::iter::repeat_n(0, rejected));
            job.step.sequences.push(SequenceStep {
                rows,
                start,
                tables: lease.tables().to_vec(),
                history: sequence.tokens[start.saturating_sub(self.arguments.history)..start].to_vec(),
                recurrent: lease.recurrent_step(rows, rejected)?,
            });
            let copies = lease.take_copies();
            job.step.copies.extend(copies.iter().map(crate::cache::PendingCopy::copy));
            job.held.extend(copies);
            let last = end == sequence.tokens.len();
            let first_wanted = match (&sequence.capture, last) {
                (Some(_), _) => start,
                (None, true) => end - 1,
                (None, false) => end,
            };
            for index in first_wanted..end {
                job.step.logit_rows.push(u32::try_from(first_row + index - start).unwrap_or(u32::MAX));
                let sampler = if last && index + 1 == end { sequence.sampler.take() } else { None };
                let capture = sequence.capture.clone();
                let (id, slot) = (sequence.id, sequence.slot);
                job.wants.push(Want { id, index, slot, rejected, sampler, capture, sampled: None });
            }
        }
        if job.step.tokens.is_empty() {
            self.spare = Some(job);
            return Ok(None);
        }
        Ok(Some(job))
    }
}
