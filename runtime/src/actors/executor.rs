//! The executor: owns the backend program and the thread that runs it, one step at a time.
//!
//! Messages: [`ExecutorMessage::Run`] computes one step and samples from its logits (what grammars allow is found meanwhile, by
//! [`MaskThread`]); the answer is
//! [`SchedulerMessage::StepDone`]. [`ExecutorMessage::Transfer`] saves or restores the state of a
//! sequence, [`ExecutorMessage::Copy`] copies a little of the cache. What each expert computed goes to
//! the experts actor once every few steps. The work is done on a thread of its own; this actor only hands it over, so it answers
//! at once whatever the step takes.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use bantam_backend::{Program, Step, StepError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use super::{
    experts::ExpertsMessage,
    job::{Capture, CapturedRow},
    masks::MaskThread,
    scheduler::SchedulerMessage,
    transfer::{CopyJob, TransferJob},
};
use crate::{
    cache::{Page, PendingCopy},
    sampling::{Sampled, Sampler},
};

/// What the executor is asked.
#[derive(Debug)]
pub(crate) enum ExecutorMessage {
    /// Computes a step; the scheduler gets the outcome.
    Run(Box<StepJob>, ActorRef<SchedulerMessage>),
    /// Moves state; the scheduler gets the job back.
    Transfer(Box<TransferJob>, ActorRef<SchedulerMessage>),
    /// Copies state; the scheduler gets the job back.
    Copy(Box<CopyJob>, ActorRef<SchedulerMessage>),
    /// Gives the memory of pages back to the system; the scheduler is told.
    Release(Vec<(usize, Page)>, ActorRef<SchedulerMessage>),
    /// Fail.
    #[cfg(test)]
    Fail,
}

/// What the thread does next.
enum Work {
    Step(Box<StepJob>),
    Transfer(Box<TransferJob>),
    Copy(Box<CopyJob>),
    Release(Vec<(usize, Page)>),
}

/// A step and what is to be done with its logit rows.
#[derive(Debug, Default)]
pub(crate) struct StepJob {
    pub(crate) step: Step,
    /// One per logit row, in their order.
    pub(crate) wants: Vec<Want>,
    /// Keeps pages that are copied from until the copy is made.
    pub(crate) held: Vec<PendingCopy>,
}

/// What is wanted of one logit row.
#[derive(Debug)]
pub(crate) struct Want {
    /// The sequence's request number.
    pub(crate) id: u64,
    /// Index of the row's token in its sequence.
    pub(crate) index: usize,
    pub(crate) slot: usize,
    /// Tokens behind it in the step that will be taken back.
    pub(crate) rejected: usize,
    /// Draws the next token, if one is wanted.
    pub(crate) sampler: Option<Sampler>,
    /// Takes the row itself.
    pub(crate) capture: Option<Capture>,
    /// The token drawn, or why none can be.
    pub(crate) sampled: Option<Result<Sampled, String>>,
}

/// A step that was run: the job comes back with its samplers and what they drew.
#[derive(Debug)]
pub(crate) struct StepOutcome {
    pub(crate) job: Box<StepJob>,
    pub(crate) result: Result<(), Fault>,
    pub(crate) elapsed: Duration,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: String,
    /// Whether the program can compute nothing any more.
    pub(crate) is_final: bool,
    /// Whether there was no memory for state that the step was to write.
    pub(crate) is_short: bool,
}

impl Fault {
    fn of(error: &StepError) -> Self {
        Fault {
            why: error.to_string(),
            is_final: matches!(error, StepError::Failed(_)),
            is_short: matches!(error, StepError::Memory { .. }),
        }
    }

    fn panic(panic: &(dyn std::any::Any + Send)) -> Self {
        Fault { why: format!("the step panicked: {}", panic_text(panic)), is_final: false, is_short: false }
    }
}

/// The thread that owns the program. Dropping it lets the thread end once its step is done.
pub(crate) struct ExecutorThread {
    work: Sender<Order>,
}

/// What is to be done, and who is told of it.
struct Order {
    work: Work,
    scheduler: ActorRef<SchedulerMessage>,
    experts: ActorRef<ExpertsMessage>,
}

/// What experts computed and the experts actor has not been told.
struct Untold {
    /// One per expert of each mixture.
    rows: Vec<u64>,
    steps: usize,
}

impl Untold {
    /// Steps after which the actor is told, unless there is a pause before.
    const STEPS: usize = 32;
    /// A pause.
    const PAUSE: Duration = Duration::from_millis(50);

    fn tell(&mut self, program: &mut dyn Program, experts: &ActorRef<ExpertsMessage>) {
        program.take_expert_rows(&mut self.rows);
        if experts.cast(ExpertsMessage::Used(self.rows.clone())).is_err() {
            tracing::debug!("a step ended after its experts actor");
        }
        self.rows.fill(0);
        self.steps = 0;
    }
}

impl ExecutorThread {
    /// Starts the thread. The receiver is told (its sender is dropped) when the thread has ended and the program is gone.
    ///
    /// # Errors
    /// If the system gives none.
    pub(crate) fn spawn(program: Box<dyn Program>) -> Result<(Self, oneshot::Receiver<()>), std::io::Error> {
        // Bounded by its senders: a scheduler waits for what it has sent, and one that was started anew comes behind what the
        // one before it left here.
        let (work, received) = channel();
        let masks = MaskThread::spawn()?;
        let (ends, ended) = oneshot::channel();
        std::thread::Builder::new().name("executor".into()).spawn(move || {
            run_all(program, &masks, &received);
            drop(ends);
        })?;
        Ok((ExecutorThread { work }, ended))
    }
}

fn run_all(mut program: Box<dyn Program>, masks: &MaskThread, received: &Receiver<Order>) {
    let mut untold = Untold { rows: vec![0; program.mixtures().iter().sum()], steps: 0 };
    let mut told: Option<ActorRef<ExpertsMessage>> = None;
    loop {
        let next = match &told {
            Some(experts) if untold.steps > 0 => match received.recv_timeout(Untold::PAUSE) {
                Err(RecvTimeoutError::Timeout) => {
                    untold.tell(program.as_mut(), experts);
                    continue;
                }
                next => next.ok(),
            },
            _ => received.recv().ok(),
        };
        let Some(Order { work, scheduler, experts }) = next else { return };
        let done = match work {
            Work::Step(job) => step_done(program.as_mut(), masks, job),
            Work::Transfer(job) => transfer_done(program.as_mut(), job),
            Work::Copy(job) => copy_done(program.as_ref(), job),
            Work::Release(pages) => {
                pages.iter().for_each(|(group, page)| program.release_pages(*group, &[page.id()]));
                SchedulerMessage::Released
            }
        };
        if scheduler.cast(done).is_err() {
            tracing::debug!("a step ended after its scheduler");
        }
        if !untold.rows.is_empty() {
            untold.steps += 1;
            if untold.steps == Untold::STEPS {
                untold.tell(program.as_mut(), &experts);
            }
            told = Some(experts);
        }
    }
}

fn step_done(program: &mut dyn Program, masks: &MaskThread, mut job: Box<StepJob>) -> SchedulerMessage {
    let start = Instant::now();
    let away = masks.lend(&mut job.wants);
    let computed = catch_unwind(AssertUnwindSafe(|| program.run(&job.step).map_err(|e| Fault::of(&e))));
    masks.take_back(away, &mut job.wants);
    let result = computed
        .and_then(|computed| catch_unwind(AssertUnwindSafe(|| computed.map(|()| draw_all(program, &mut job)))))
        .unwrap_or_else(|panic| Err(Fault::panic(panic.as_ref())));
    SchedulerMessage::StepDone(Box::new(StepOutcome { job, result, elapsed: start.elapsed() }))
}

fn transfer_done(program: &mut dyn Program, mut job: Box<TransferJob>) -> SchedulerMessage {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.run(program))) {
        job.end(Err(format!("moving state panicked: {}", panic_text(panic.as_ref()))));
    }
    SchedulerMessage::TransferDone(job)
}

fn copy_done(program: &dyn Program, mut job: Box<CopyJob>) -> SchedulerMessage {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.run(program))) {
        job.copies = Err(format!("copying state panicked: {}", panic_text(panic.as_ref())));
    }
    SchedulerMessage::CopyDone(job)
}

/// Does what is wanted of each logit row.
fn draw_all(program: &dyn Program, job: &mut StepJob) {
    let vocab = program.vocab();
    let sequences = job.step.sequences.len();
    for (row, want) in program.logits().chunks_exact(vocab).zip(&mut job.wants) {
        if let Some(capture) = &want.capture {
            // The probe that wanted the row may have gone.
            drop(capture.rows.send(CapturedRow {
                index: want.index,
                logits: row.to_vec(),
                sequences,
                slot: want.slot,
                rolled_back: want.rejected,
            }));
        }
        if let Some(sampler) = &mut want.sampler {
            // A fault in drawing one sequence's token is that sequence's alone.
            let drawn = catch_unwind(AssertUnwindSafe(|| draw(sampler, row)));
            want.sampled =
                Some(drawn.unwrap_or_else(|panic| Err(format!("sampling panicked: {}", panic_text(panic.as_ref())))));
        }
    }
}

/// Draws a token and takes note of it. A row without a number in it, as damaged weights give, has none to draw.
fn draw(sampler: &mut Sampler, row: &[f32]) -> Result<Sampled, String> {
    if row.iter().any(|logit| logit.is_nan()) {
        return Err("the model's logits are not numbers (NaN): its file is damaged, or its weights overflow".into());
    }
    sampler.draw_next(row).map_err(|e| e.to_string())
}

/// The message of a panic, if it has one.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

/// The actor.
pub(crate) struct Executor;

impl Actor for Executor {
    type Msg = ExecutorMessage;
    type State = (Arc<ExecutorThread>, ActorRef<ExpertsMessage>);
    type Arguments = (Arc<ExecutorThread>, ActorRef<ExpertsMessage>);

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(arguments)
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        (thread, experts): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let (work, scheduler) = match message {
            ExecutorMessage::Run(job, scheduler) => (Work::Step(job), scheduler),
            ExecutorMessage::Transfer(job, scheduler) => (Work::Transfer(job), scheduler),
            ExecutorMessage::Copy(job, scheduler) => (Work::Copy(job), scheduler),
            ExecutorMessage::Release(pages, scheduler) => (Work::Release(pages), scheduler),
            #[cfg(test)]
            ExecutorMessage::Fail => panic!("injected"),
        };
        let work = Order { work, scheduler, experts: experts.clone() };
        thread.work.send(work).map_err(|e| format!("the executor thread takes no step: {e}").into())
    }
}
