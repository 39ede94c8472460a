//! The model supervisor: one per resident model. Starts experts, executor, kv, scheduler and slots, and restarts them together
//! when one fails: their states refer to each other, so a fresh set is the one known-good state. Weights stay where they
//! are, in the executor's thread.
//!
//! Messages: all are passed on, [`ModelMessage::Mixtures`] to the current experts actor and the others to the current
//! scheduler, so that callers need not know of restarts.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};

use super::{
    executor::{Executor, ExecutorThread},
    experts::{Experts, ExpertsMessage},
    job::Job,
    kv::{Kv, KvArguments},
    scheduler::{Scheduler, SchedulerArguments, SchedulerMessage, Transfer},
    slot::{Slot, SlotContext},
};
use crate::{
    engine::{EngineConfig, MixtureStatus, ModelInfo, Status},
    memory::Ledger,
    resident::Resident,
};

/// What the model is asked.
#[derive(Debug)]
pub(crate) enum ModelMessage {
    /// Serve this request.
    Submit(Box<Job>),
    /// Nobody waits for this request any more.
    Cancel(u64),
    /// Save or restore state.
    Transfer(Transfer),
    /// What is going on.
    Status(RpcReplyPort<Status>),
    /// What the experts of each mixture have computed.
    Mixtures(RpcReplyPort<Vec<MixtureStatus>>),
}

/// What the model is started with.
pub(crate) struct ModelArguments {
    pub(crate) config: EngineConfig,
    pub(crate) resident: Resident,
}

/// What the model owns.
pub(crate) struct ModelState {
    config: EngineConfig,
    info: Arc<ModelInfo>,
    cache: KvArguments,
    history: usize,
    max_logit_rows: usize,
    thread: Arc<ExecutorThread>,
    /// Experts of each mixture.
    mixtures: Vec<usize>,
    children: Children,
    restarts: VecDeque<Instant>,
    /// Accounts for the model's memory for as long as it is resident.
    _ledger: Ledger,
}

/// More restarts than this within [`RESTART_WINDOW`] mean that restarting does not help.
const MAX_RESTARTS: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_secs(60);

/// The actor.
pub(crate) struct Model;

impl Actor for Model {
    type Msg = ModelMessage;
    type State = ModelState;
    type Arguments = ModelArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let ModelArguments { config, resident } = arguments;
        let Resident { program, info, cache, history, max_logit_rows, ledger } = resident;
        let mixtures = program.mixtures().to_vec();
        let thread = Arc::new(ExecutorThread::spawn(program)?);
        let parts = Parts {
            config: &config,
            info: &info,
            cache: &cache,
            history,
            max_logit_rows,
            thread: &thread,
            mixtures: &mixtures,
        };
        let children = parts.start(&myself).await?;
        Ok(ModelState {
            config,
            info,
            cache,
            history,
            max_logit_rows,
            thread,
            mixtures,
            children,
            restarts: VecDeque::new(),
            _ledger: ledger,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        // A message to an actor that has just failed is lost with its reply port, which its sender notices.
        drop(state.children.scheduler.cast(match message {
            ModelMessage::Submit(job) => SchedulerMessage::Submit(job),
            ModelMessage::Cancel(id) => SchedulerMessage::Cancel(id),
            ModelMessage::Transfer(transfer) => SchedulerMessage::Transfer(transfer),
            ModelMessage::Status(reply) => SchedulerMessage::Status(reply),
            ModelMessage::Mixtures(reply) => {
                drop(state.children.experts.cast(ExpertsMessage::Status(reply)));
                return Ok(());
            }
        }));
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(who, why) if state.is_current(&who) => {
                tracing::error!(actor = ?who.get_name(), %why, "an actor failed; the model's actors are started again");
                state.restart(&myself).await
            }
            _ => Ok(()),
        }
    }
}

impl ModelState {
    fn is_current(&self, who: &ActorCell) -> bool {
        self.children.all.iter().any(|c| c.get_id() == who.get_id())
    }

    async fn restart(&mut self, myself: &ActorRef<ModelMessage>) -> Result<(), ActorProcessingErr> {
        let now = Instant::now();
        self.restarts.push_back(now);
        while self.restarts.front().is_some_and(|t| now.duration_since(*t) > RESTART_WINDOW) {
            self.restarts.pop_front();
        }
        if self.restarts.len() > MAX_RESTARTS {
            return Err(format!("{MAX_RESTARTS} restarts within {RESTART_WINDOW:?}").into());
        }
        for child in std::mem::take(&mut self.children.all) {
            child.stop(Some("a sibling failed".into()));
        }
        let parts = Parts {
            config: &self.config,
            info: &self.info,
            cache: &self.cache,
            history: self.history,
            max_logit_rows: self.max_logit_rows,
            thread: &self.thread,
            mixtures: &self.mixtures,
        };
        self.children = parts.start(myself).await?;
        Ok(())
    }
}

/// A set of actors that know each other.
struct Children {
    all: Vec<ActorCell>,
    scheduler: ActorRef<SchedulerMessage>,
    experts: ActorRef<ExpertsMessage>,
}

/// All that a set of children is made from.
struct Parts<'a> {
    config: &'a EngineConfig,
    info: &'a Arc<ModelInfo>,
    cache: &'a KvArguments,
    history: usize,
    max_logit_rows: usize,
    thread: &'a Arc<ExecutorThread>,
    mixtures: &'a [usize],
}

impl Parts<'_> {
    async fn start(&self, myself: &ActorRef<ModelMessage>) -> Result<Children, ActorProcessingErr> {
        let above = myself.get_cell();
        let (experts, _) = Actor::spawn_linked(None, Experts, self.mixtures.to_vec(), above.clone()).await?;
        let arguments = (Arc::clone(self.thread), experts.clone());
        let (executor, _) = Actor::spawn_linked(None, Executor, arguments, above.clone()).await?;
        let (kv, _) = Actor::spawn_linked(None, Kv, self.cache.clone(), above.clone()).await?;
        let mut all = vec![experts.get_cell(), executor.get_cell(), kv.get_cell()];
        let arguments = SchedulerArguments {
            executor,
            kv,
            batch: self.config.batch,
            max_logit_rows: self.max_logit_rows,
            context: self.info.context,
            end_tokens: self.info.end_tokens.clone(),
            resumes_anywhere: self.cache.resumes_anywhere(),
            history: self.history,
            minimum: self.cache.minimum.clone(),
            prefill_share: self.config.prefill_share,
            has_mixtures: !self.mixtures.is_empty(),
        };
        let (scheduler, _) = Actor::spawn_linked(None, Scheduler, arguments, above.clone()).await?;
        all.push(scheduler.get_cell());
        let mut slots = Vec::new();
        for id in 0..self.config.parallel {
            let context = SlotContext { id, scheduler: scheduler.clone(), tokenizer: self.info.tokenizer.clone() };
            let (slot, _) = Actor::spawn_linked(None, Slot, context, above.clone()).await?;
            all.push(slot.get_cell());
            slots.push(slot);
        }
        scheduler.cast(SchedulerMessage::Slots(slots))?;
        Ok(Children { all, scheduler, experts })
    }
}
