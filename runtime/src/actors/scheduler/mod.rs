//! The scheduler: decides, once per step, which sequences run.
//!
//! Messages: [`SchedulerMessage`]. Requests wait for a slot, and sequences in slots for memory, by priority and then in order
//! of arrival; those that have both take part in steps as [`batch`] and [`pace`] plan them. One step is computed at a time, by
//! the executor; while it runs the scheduler only collects messages. A sequence that finds no pages gives way to those before
//! it and starts again later from what is cached.
//!
//! Invariants: a request ends in exactly one terminal event, sent by its slot; nothing here waits for a client.

mod background;
mod batch;
mod cuts;
mod figures;
mod form;
mod outcome;
mod pace;
mod pressure;
mod sequence;
mod transfer;

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use bantam_text::Tokenizer;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::mpsc;

use self::{
    background::Background, cuts::Cuts, figures::Figures, pace::Pace, pressure::Pressure, sequence::Sequence,
    transfer::Transfers,
};
pub(crate) use self::{background::Preparation, transfer::Transfer};
use super::{
    executor::{ExecutorMessage, StepJob, StepOutcome},
    job::{Job, TokenEvent},
    kv::KvMessage,
    model::ModelMessage,
    slot::{Assignment, SlotMessage, TOKEN_CHANNEL},
    transfer::{CopyJob, TransferJob},
};
use crate::engine::{Event, Status};

/// What the scheduler is told and asked.
#[derive(Debug)]
pub(crate) enum SchedulerMessage {
    /// The slots there are; sent once, at the start.
    Slots(Vec<ActorRef<SlotMessage>>),
    /// A request to be queued.
    Submit(Box<Job>),
    /// A prefix is to be computed when there is nothing else to do.
    Prepare(Preparation),
    /// Nobody waits for this request any more, or it has hit a stop text.
    Cancel(u64),
    /// State is to be saved or restored between two steps.
    Transfer(Transfer),
    /// It was.
    TransferDone(Box<TransferJob>),
    /// A part of the cache was copied.
    CopyDone(Box<CopyJob>),
    /// Memory was given back.
    Released,
    /// A step was computed.
    StepDone(Box<StepOutcome>),
    /// A slot has sent its last event.
    SlotFree(usize),
    /// A slot failed and was started again.
    SlotReplaced(usize, ActorRef<SlotMessage>),
    /// A slot that was full has room again.
    Unblocked,
    /// Time has passed: sent every [`TICK`].
    Tick,
    /// What is going on.
    Status(RpcReplyPort<Status>),
    /// Fail.
    #[cfg(test)]
    Fail,
}

/// What the scheduler is started with.
pub(crate) struct SchedulerArguments {
    pub(crate) model: ActorRef<ModelMessage>,
    pub(crate) executor: ActorRef<ExecutorMessage>,
    pub(crate) kv: ActorRef<KvMessage>,
    /// Most rows of a step.
    pub(crate) batch: usize,
    /// Most logit rows of a step.
    pub(crate) max_logit_rows: usize,
    /// Longest sequence.
    pub(crate) context: usize,
    pub(crate) end_tokens: Vec<u32>,
    /// To name tokens.
    pub(crate) tokenizer: Tokenizer,
    /// Whether a sequence can be resumed at any token, not only where its state was kept.
    pub(crate) resumes_anywhere: bool,
    /// Tokens before its rows that a sequence's step names.
    pub(crate) history: usize,
    /// Pages of each group that a lone sequence needs at most.
    pub(crate) minimum: Vec<usize>,
    /// Part of the time that prompts get beside decoding sequences, in percent.
    pub(crate) prefill_share: usize,
    /// Whether a few rows more can cost as much as many: each brings experts of its own into the step.
    pub(crate) has_mixtures: bool,
    /// Tokens between two points within a prompt that others may go on from.
    pub(crate) checkpoint_interval: usize,
    /// A step that takes longer will not end; zero: none is taken for such.
    pub(crate) step_timeout: Duration,
    /// Tells how many bytes of the machine's memory are free, where that is known.
    pub(crate) available_memory: fn() -> Option<u64>,
}

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(250);

/// Fewest prompt rows that are worth a step beside decoding sequences: far into a long prompt, one takes as long as decoding.
const FEWEST_PROMPT_ROWS: usize = 1;
/// The same for mixtures of experts.
const FEWEST_PROMPT_ROWS_OF_MIXTURES: usize = 256;

/// What the scheduler owns.
pub(crate) struct SchedulerState {
    arguments: SchedulerArguments,
    myself: ActorRef<SchedulerMessage>,
    /// By priority, then in order of arrival.
    queue: VecDeque<Box<Job>>,
    transfers: Transfers,
    /// By priority, then in order of arrival.
    running: Vec<Sequence>,
    slots: Vec<SlotEntry>,
    background: Background,
    /// Since when a step or a transfer is being computed.
    computing: Option<Instant>,
    shape: Shape,
    is_hung: bool,
    /// A sequence that has found too little memory, if nothing has been given back since.
    starved: Option<u64>,
    pace: Pace,
    pressure: Pressure,
    /// Buffers of the last step, used again.
    spare: Option<Box<StepJob>>,
    figures: Figures,
}

/// What the step that is being computed consists of.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    /// Sequences that decode.
    decoding: usize,
    /// Prompt rows.
    prompt: usize,
}

impl Shape {
    fn of(running: &[Sequence]) -> Self {
        running.iter().filter(|sequence| sequence.in_step > 0).fold(Shape::default(), |shape, sequence| match sequence
            .is_decoding()
        {
            true => Shape { decoding: shape.decoding + 1, ..shape },
            false => Shape { prompt: shape.prompt + sequence.in_step, ..shape },
        })
    }
}

struct SlotEntry {
    actor: ActorRef<SlotMessage>,
    busy: bool,
}

/// The actor.
pub(crate) struct Scheduler;

impl Actor for Scheduler {
    type Msg = SchedulerMessage;
    type State = SchedulerState;
    type Arguments = SchedulerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        myself.send_interval(TICK, || SchedulerMessage::Tick);
        let fewest = match arguments.has_mixtures {
            true => FEWEST_PROMPT_ROWS_OF_MIXTURES,
            false => FEWEST_PROMPT_ROWS,
        };
        Ok(SchedulerState {
            pressure: Pressure::new(arguments.available_memory),
            pace: Pace::new(arguments.prefill_share, fewest),
            arguments,
            myself,
            queue: VecDeque::new(),
            transfers: Transfers::new(),
            running: Vec::new(),
            slots: Vec::new(),
            background: Background::default(),
            computing: None,
            shape: Shape::default(),
            is_hung: false,
            starved: None,
            spare: None,
            figures: Figures::default(),
        })
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SchedulerMessage::Slots(actors) => {
                state.slots = actors.into_iter().map(|actor| SlotEntry { actor, busy: false }).collect();
            }
            SchedulerMessage::Submit(job) => state.enqueue(job),
            SchedulerMessage::Prepare(preparation) => state.background.add(preparation),
            SchedulerMessage::Cancel(id) => state.cancel(id),
            SchedulerMessage::Transfer(transfer) => state.transfers.push_back(transfer),
            SchedulerMessage::TransferDone(job) => state.transfer_done(*job)?,
            SchedulerMessage::CopyDone(job) => state.copy_done(*job),
            SchedulerMessage::Released => state.computing = None,
            SchedulerMessage::StepDone(outcome) => state.step_done(*outcome)?,
            SchedulerMessage::SlotFree(slot) => {
                if let Some(entry) = state.slots.get_mut(slot) {
                    entry.busy = false;
                }
            }
            SchedulerMessage::Unblocked => {}
            SchedulerMessage::SlotReplaced(slot, actor) => {
                if let Some(entry) = state.slots.get_mut(slot) {
                    entry.actor = actor;
                }
            }
            SchedulerMessage::Tick => {
                state.end_overdue(Instant::now());
                state.watch()?;
                state.pressure.tick();
            }
            #[cfg(test)]
            SchedulerMessage::Fail => panic!("injected"),
            SchedulerMessage::Status(reply) => {
                let status = state.status().await;
                // Whoever asked may have gone.
                reply.send(status).ok();
                return Ok(());
            }
        }
        if state.computing.is_some() { Ok(()) } else { state.next_step().await }
    }
}

impl SchedulerState {
    fn enqueue(&mut self, job: Box<Job>) {
        let at = self.queue.partition_point(|queued| queued.priority <= job.priority);
        self.queue.insert(at, job);
    }

    /// Says so if the executor does not come back.
    fn watch(&mut self) -> Result<(), ActorProcessingErr> {
        let limit = self.arguments.step_timeout;
        let since = self.computing.map(|since| since.elapsed()).filter(|since| !limit.is_zero() && *since > limit);
        if let Some(since) = since.filter(|_| !std::mem::replace(&mut self.is_hung, true)) {
            let why = format!("a step has not ended after {} s (--step-timeout-seconds)", since.as_secs());
            self.arguments.model.cast(ModelMessage::Hung(why))?;
        }
        Ok(())
    }

    /// Ends requests whose deadline has passed.
    fn end_overdue(&mut self, now: Instant) {
        self.queue.retain(|job| {
            let failure = job.deadline.and_then(|deadline| deadline.passed(now));
            if let Some(failure) = &failure {
                // The first event of this request: there is room, unless its client has gone.
                job.output.events.try_send(Event::Failed(failure.clone())).ok();
            }
            failure.is_none()
        });
        for sequence in self.running.iter().filter(|sequence| !sequence.cancel.is_set()) {
            if let Some(failure) = sequence.deadline.and_then(|deadline| deadline.passed(now)) {
                sequence.tell(TokenEvent::Failed(failure));
                // A sequence in a step is taken out when the step ends.
                sequence.cancel.set();
            }
        }
    }

    fn cancel(&mut self, id: u64) {
        self.queue.retain(|job| job.id != id);
        if let Some(sequence) = self.running.iter().find(|s| s.id == id) {
            // A sequence in a step is taken out when the step ends.
            sequence.cancel.set();
        }
    }

    /// Gives free slots to the requests that wait longest.
    fn assign_slots(&mut self) -> Result<(), ActorProcessingErr> {
        while let Some(slot) = self.slots.iter().position(|s| !s.busy) {
            let Some(job) = self.queue.pop_front() else { break };
            if !job.cancel.is_set() {
                self.begin(slot, *job)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, slot: usize, job: Job) -> Result<(), ActorProcessingErr> {
        let (events, tokens) = mpsc::channel::<TokenEvent>(TOKEN_CHANNEL);
        let blocked = Arc::new(AtomicBool::new(false));
        let assignment = Assignment { output: job.output, speech: job.speech, tokens, blocked: Arc::clone(&blocked) };
        let Some(entry) = self.slots.get_mut(slot) else { return Ok(()) };
        entry.actor.cast(SlotMessage::Begin(Box::new(assignment)))?;
        entry.busy = true;
        let points = match job.share && !self.arguments.resumes_anywhere {
            true => cuts::checkpoints(&job.tokens, &self.arguments.end_tokens, self.arguments.checkpoint_interval),
            false => Cuts::default(),
        };
        let at = self.running.partition_point(|running| running.priority <= job.priority);
        let sequence = Sequence {
            id: job.id,
            slot,
            is_background: false,
            prompt_len: job.tokens.len(),
            tokens: job.tokens,
            cached: 0,
            miss: None,
            lease: None,
            cuts: points,
            waits: None,
            shares_with: None,
            grown_to: 0,
            published: 0,
            sampler: Some(job.sampler),
            in_step: 0,
            max_tokens: job.max_tokens,
            ignore_eos: job.ignore_eos,
            share: job.share,
            chunk: job.chunk,
            priority: job.priority,
            deadline: job.deadline,
            suspect: false,
            capture: job.capture,
            cancel: job.cancel,
            events,
            blocked,
            started: false,
            began: Instant::now(),
            decoding_since: None,
        };
        self.running.insert(at, sequence);
        Ok(())
    }

    /// Takes a sequence out; its computed tokens stay findable.
    fn retire(&mut self, index: usize) -> Result<(), ActorProcessingErr> {
        self.let_go(index)?;
        self.running.remove(index);
        Ok(())
    }

    /// Takes a sequence's state; if it is shared, others can still find it.
    fn let_go(&mut self, index: usize) -> Result<(), ActorProcessingErr> {
        self.starved = None;
        let sequence = &mut self.running[index];
        let Some(lease) = sequence.lease.take().filter(|_| sequence.share) else { return Ok(()) };
        let tokens = sequence.tokens.iter().take(lease.len()).copied().collect();
        Ok(self.arguments.kv.cast(KvMessage::Retire { lease, tokens })?)
    }

    fn retire_cancelled(&mut self) -> Result<(), ActorProcessingErr> {
        while let Some(index) = self.running.iter().position(|s| s.cancel.is_set()) {
            self.retire(index)?;
        }
        Ok(())
    }
}
