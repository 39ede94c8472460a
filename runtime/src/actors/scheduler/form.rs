//! Forming a step: who takes part, with which tokens and pages.

use std::time::Instant;

use bantam_backend::SequenceStep;
use ractor::ActorProcessingErr;

use super::{
    SchedulerState, Shape,
    batch::{Prompt, share_out},
    sequence::{Sequence, Wait},
};
use crate::{
    actors::{
        executor::{ExecutorMessage, StepJob, Want},
        job::TokenEvent,
        kv::{KvMessage, LeaseWork},
    },
    cache::{Acquired, Lease, Reserve},
    engine::{Difference, Failure, Miss},
};

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
        if self.relieve().await? || self.next_transfer().await? {
            return Ok(());
        }
        self.assign_slots()?;
        self.turn_to_background()?;
        self.publish().await?;
        self.choose().await?;
        self.provide_pages().await?;
        let Some(job) = self.build()? else { return Ok(()) };
        self.shape = Shape::of(&self.running);
        self.computing = Some(Instant::now());
        self.arguments.executor.cast(ExecutorMessage::Run(job, self.myself.clone()))?;
        Ok(())
    }

    /// Sets `in_step` of each sequence.
    async fn choose(&mut self) -> Result<(), ActorProcessingErr> {
        self.note_waiting();
        self.begin_all().await?;
        let suspect = self.running.iter().position(|sequence| sequence.suspect && sequence.lease.is_some());
        if let Some(suspect) = suspect {
            let rows = self.arguments.batch;
            let sequence = &mut self.running[suspect];
            let most = if sequence.capture.is_some() { rows.min(self.arguments.max_logit_rows) } else { rows };
            sequence.in_step = sequence.until_cut().min(most);
            return Ok(());
        }
        let mut logit_rows = self.arguments.max_logit_rows;
        let mut decoding = 0;
        for sequence in self.running.iter_mut().filter(|s| s.is_decoding()) {
            let fits = decoding < logit_rows && decoding < self.arguments.batch;
            sequence.in_step = usize::from(fits && sequence.has_room());
            decoding += sequence.in_step;
        }
        logit_rows -= decoding;
        let (indexes, prompts) = self.prompts(logit_rows);
        let pending = prompts.iter().map(|prompt| prompt.wants).sum();
        let rows = self.pace.rows(decoding, pending, self.arguments.batch - decoding);
        for (index, rows) in indexes.into_iter().zip(share_out(&prompts, rows)) {
            self.running[index].in_step = rows;
        }
        Ok(())
    }

    /// Sequences with prompt tokens to compute, and what they could take of the next step.
    fn prompts(&self, mut logit_rows: usize) -> (Vec<usize>, Vec<Prompt>) {
        let (mut indexes, mut prompts) = (Vec::new(), Vec::new());
        for (index, sequence) in self.running.iter().enumerate() {
            let stays = sequence.is_decoding() || sequence.cancel.is_set();
            let waits = stays || sequence.lease.is_none() || !sequence.has_room();
            if waits || logit_rows == 0 {
                continue;
            }
            let chunk = if sequence.chunk == 0 { usize::MAX } else { sequence.chunk };
            let wants = match sequence.capture {
                Some(_) => sequence.until_cut().min(chunk).min(logit_rows),
                None => sequence.until_cut().min(chunk),
            };
            logit_rows -= if sequence.capture.is_some() { wants } else { 1 };
            indexes.push(index);
            prompts.push(Prompt { wants, pending: sequence.pending() });
        }
        (indexes, prompts)
    }

    /// Notes which sequences wait for a prefix that another is computing. Nobody computes what is being computed; if that
    /// one goes away, the next computes it. Where state cannot be resumed at any token, it stops at the end of what they
    /// share. It is as urgent as the most urgent of those that wait for it.
    fn note_waiting(&mut self) {
        let mut urgent = false;
        for index in 0..self.running.len() {
            let sequence = &self.running[index];
            let begins = sequence.lease.is_none() && sequence.share;
            if begins && sequence.waits.is_some_and(|wait| self.is_under_way(wait, index)) {
                continue;
            }
            self.running[index].waits = None;
            if begins {
                urgent |= self.find_shared(index);
            }
        }
        if urgent {
            self.running.sort_by_key(|sequence| (sequence.priority, sequence.id));
        }
    }

    /// Whether what sequence `index` waits for is yet to come. Not from one behind it that has lost its state: that one may
    /// come to wait for this one.
    fn is_under_way(&self, wait: Wait, index: usize) -> bool {
        let computing = self.running.iter().enumerate().find(|(_, sequence)| sequence.id == wait.request);
        computing.is_some_and(|(other, computing)| {
            let is_first = computing.lease.is_some() || other < index;
            is_first && !computing.started && computing.done() <= wait.unfinished
        })
    }

    /// Lets a sequence wait for the one with which it shares most of those that compute or come before it. Returns whether
    /// another has become more urgent by it.
    fn find_shared(&mut self, index: usize) -> bool {
        let anywhere = self.arguments.resumes_anywhere;
        let (mut longest, mut urgent) = (0, false);
        for other in 0..self.running.len() {
            let Ok([sequence, computing]) = self.running.get_disjoint_mut([index, other]) else { continue };
            let is_first = computing.lease.is_some() || other < index;
            if !is_first || !computing.share || computing.started {
                continue;
            }
            // One token at least is computed for its logits.
            let shared = common(&computing.tokens, &sequence.tokens).min(sequence.tokens.len() - 1);
            let unfinished = if anywhere { shared.saturating_sub(WORTH_WAITING) } else { shared.saturating_sub(1) };
            if shared < WORTH_WAITING || computing.done() > unfinished {
                continue;
            }
            if shared > longest {
                longest = shared;
                sequence.waits = Some(Wait { request: computing.id, unfinished });
            }
            urgent |= sequence.priority < computing.priority;
            computing.priority = computing.priority.min(sequence.priority);
            if !anywhere {
                computing.cuts.add(shared);
            }
        }
        urgent
    }

    /// Gives each sequence that waits for nothing its state, as long as memory suffices beside that of those before it. What
    /// those behind it have it may take: they would only have come to it first because its client did not read.
    async fn begin_all(&mut self) -> Result<(), ActorProcessingErr> {
        for index in 0..self.running.len() {
            let sequence = &self.running[index];
            if sequence.lease.is_some() || sequence.waits.is_some() || !sequence.has_room() {
                continue;
            }
            let id = sequence.id;
            while self.starved != Some(id) && !self.acquire(index).await? {
                match self.running.iter().skip(index + 1).rposition(|younger| younger.lease.is_some()) {
                    Some(behind) => self.displace(index + 1 + behind)?,
                    None => self.starved = Some(id),
                }
            }
            if self.starved == Some(id) {
                break;
            }
        }
        Ok(())
    }

    /// Begins a sequence at its longest cached prefix, if there is memory for what it is sure to need beside all others.
    /// At least one token is left to compute, for its logits.
    async fn acquire(&mut self, index: usize) -> Result<bool, ActorProcessingErr> {
        let beside = self.reserved();
        let sequence = &mut self.running[index];
        let at_most = if sequence.share { sequence.tokens.len() - 1 } else { 0 };
        let reserve = beside.map(|beside| Reserve { tokens: sequence.sure_length(), beside });
        let tokens = sequence.tokens.clone();
        let found = ractor::call!(self.arguments.kv, |reply| KvMessage::Acquire { tokens, at_most, reserve, reply })?;
        let Some(Acquired { lease, branch, other }) = found else { return Ok(false) };
        if !sequence.started && !sequence.is_background {
            let tokens = other.zip(sequence.tokens.get(branch).copied());
            let differs = tokens.map(|(cached, asked)| Difference::new(cached, asked, &self.arguments.tokenizer));
            sequence.miss = Miss::new(lease.len(), branch, at_most, differs);
            sequence.cached = lease.len().min(sequence.prompt_len);
            self.figures.reused_tokens += sequence.cached as u64;
        }
        sequence.published = lease.len();
        if sequence.share {
            // Where the next request that begins like this one goes on; one that is the same computes its last token.
            sequence.cuts.add(branch.min(at_most));
        }
        sequence.grown_to = 0;
        let found = lease.len();
        sequence.lease = Some(lease);
        self.running[index].end_if_not_worth();
        self.running[index].shares_with = self.beside(index, found);
        Ok(true)
    }

    /// The first of the other sequences that holds state and begins with the same `found` tokens.
    fn beside(&self, index: usize, found: usize) -> Option<u64> {
        let prefix = self.running[index].tokens.get(..found).filter(|prefix| !prefix.is_empty())?;
        let alike = |s: &&Sequence| s.share && s.lease.is_some() && s.tokens.starts_with(prefix);
        let id = self.running[index].id;
        self.running.iter().filter(|s| s.id != id).find(alike).map(|s| s.id)
    }

    /// Pages of each group that sequences with state are yet to take, as far as is sure; `None` if there are none such.
    fn reserved(&self) -> Option<Vec<usize>> {
        let mut all: Option<Vec<usize>> = None;
        for sequence in &self.running {
            let Some(lease) = &sequence.lease else { continue };
            let pages = lease.wanted(sequence.sure_length()).into_iter().zip(&self.arguments.minimum);
            let all = all.get_or_insert_with(|| vec![0; self.arguments.minimum.len()]);
            // A window moves on: it never holds more than a lone sequence needs.
            all.iter_mut().zip(pages).for_each(|(all, (pages, minimum))| *all += pages.min(*minimum));
        }
        all
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
                // No further than a sequence may become: for so many tokens there are pages.
                let grow_to = end.next_multiple_of(GROW_BY).min(self.arguments.context.max(end));
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
                let why = "no memory for the state of this sequence alone; lower --context";
                self.running[only].tell(TokenEvent::Failed(Failure::Fault(why.into())));
                self.retire(only)
            }
            [.., youngest] => self.displace(youngest),
        }
    }

    /// Takes a sequence's memory; it begins again at what others can find of it.
    fn displace(&mut self, index: usize) -> Result<(), ActorProcessingErr> {
        let sequence = &mut self.running[index];
        tracing::debug!(id = sequence.id, "displaced: others need its pages");
        sequence.in_step = 0;
        self.figures.displaced += 1;
        self.let_go(index)
    }

    /// The sequences of the step. Those that begin with the same pages stand side by side: attention reads these pages once.
    fn step_order(&self) -> Vec<usize> {
        let tables = |index: &usize| self.running[*index].lease.as_ref().map(Lease::tables);
        let mut order: Vec<usize> = (0..self.running.len()).filter(|index| self.running[*index].in_step > 0).collect();
        order.sort_by(|a, b| tables(a).cmp(&tables(b)));
        order
    }

    fn build(&mut self) -> Result<Option<Box<StepJob>>, ActorProcessingErr> {
        let mut job = self.spare.take().unwrap_or_default();
        job.step.tokens.clear();
        job.step.logit_rows.clear();
        job.step.copies.clear();
        job.step.sequences.clear();
        job.wants.clear();
        job.held.clear();
        for index in self.step_order() {
            let sequence = &mut self.running[index];
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
