//! The model supervisor: one per resident model. Starts experts, executor, kv, scheduler and slots. A slot that fails is
//! started again by itself. When another fails all are, together: their states refer to each other, so a fresh set is the one
//! known-good state. Where that does not help it is tried less and less often, and requests are refused meanwhile. Weights stay
//! where they are, in the executor's thread.
//!
//! Messages: most are passed on, [`ModelMessage::Mixtures`] to the current experts actor, [`ModelMessage::Recall`] to the
//! current turns actor, [`ModelMessage::SaveCache`] to the archive and the others to the current scheduler, so that callers need
//! not know of restarts. [`ModelMessage::Memory`] and [`ModelMessage::Tree`] it answers itself. [`ModelMessage::Restart`] comes
//! after a pause. [`ModelMessage::Lost`] ends it, so that the registry loads the model again. [`ModelMessage::Hung`] ends it all:
//! what a thread computes cannot be broken off.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::{oneshot, watch};

use super::{
    archive::{Archive, ArchiveArguments, ArchiveMessage},
    executor::{Executor, ExecutorMessage, ExecutorThread},
    experts::{Experts, ExpertsMessage},
    job::Job,
    kv::{Kv, KvArguments, KvMessage},
    registry::RegistryMessage,
    scheduler::{Scheduler, SchedulerArguments, SchedulerMessage, Transfer},
    slot::{Slot, SlotContext, SlotMessage},
    tree::{Record, TreeQuestion},
    turns::{Turns, TurnsArguments, TurnsMessage},
};
use crate::{
    cache::StateCache,
    engine::{ActorStatus, DeviceStatus, EngineConfig, Link, MemoryStatus, MixtureStatus, ModelInfo, Status},
    memory::Ledger,
    resident::Resident,
    snapshot::CacheDirectory,
    turns::{Digest, Recalled},
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
    /// Save the cache, if it has a directory.
    SaveCache(RpcReplyPort<()>),
    /// What is going on.
    Status(RpcReplyPort<Status>),
    /// What the experts of each mixture have computed.
    Mixtures(RpcReplyPort<Vec<MixtureStatus>>),
    /// What memory the model was given.
    Memory(RpcReplyPort<MemoryStatus>),
    /// How the actors fare.
    Tree(TreeQuestion),
    /// The longest remembered beginning of a prompt.
    Recall { digests: Vec<Digest>, reply: RpcReplyPort<Option<Recalled>> },
    /// Start the actors again, after a pause.
    Restart,
    /// A step does not end.
    Hung(String),
    /// The program can compute nothing any more: it was lost with its device, or broke down.
    Lost(String),
    /// Compute a prefix when there is nothing else to do.
    #[cfg(test)]
    Prepare(super::scheduler::Preparation),
    /// Let an actor fail.
    #[cfg(test)]
    Fail(super::tests::faults::Who),
}

/// What the model is started with.
pub(crate) struct ModelArguments {
    pub(crate) config: EngineConfig,
    pub(crate) resident: Resident,
    /// Where it is told whether the model can be served.
    pub(crate) link: watch::Sender<Link>,
    /// Who loads it again if its program is lost; nobody where it does not come from a checkpoint.
    pub(crate) registry: Option<ActorRef<RegistryMessage>>,
}

/// What the model owns.
pub(crate) struct ModelState {
    config: EngineConfig,
    info: Arc<ModelInfo>,
    cache: KvArguments,
    /// Where the cache is saved.
    directory: Option<Arc<CacheDirectory>>,
    history: usize,
    max_logit_rows: usize,
    /// None where the program was lost.
    thread: Option<Arc<ExecutorThread>>,
    /// Told when the thread has ended and the program is gone.
    ended: oneshot::Receiver<()>,
    registry: Option<ActorRef<RegistryMessage>>,
    /// Experts of each mixture.
    mixtures: Vec<usize>,
    link: watch::Sender<Link>,
    /// None while it waits to start them again, and after a step that does not end.
    children: Option<Children>,
    restarts: VecDeque<Instant>,
    /// How each of them has fared, by name, in the order in which they were started first.
    records: Vec<(String, Record)>,
    /// Accounts for the model's memory for as long as it is resident.
    ledger: Ledger,
    /// The device that it lies on.
    device: Option<DeviceStatus>,
}

/// Restarts within [`RESTART_WINDOW`] that are made at once. Before each further one there is a pause, twice as long each time.
const QUICK_RESTARTS: usize = 3;
const RESTART_WINDOW: Duration = Duration::from_secs(300);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long the actors of a set that is given up may take to end what they are at.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long to wait before the restart that is the `count`th of late.
fn pause(count: usize) -> Option<Duration> {
    let doublings = u32::try_from(count.checked_sub(QUICK_RESTARTS + 1)?).unwrap_or(u32::MAX);
    Some(FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE))
}

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
        let ModelArguments { config, resident, link, registry } = arguments;
        let Resident { program, info, cache, history, max_logit_rows, ledger, device, directory, restored } = resident;
        let mixtures = program.mixtures().to_vec();
        let (thread, ended) = ExecutorThread::spawn(program)?;
        let mut state = ModelState {
            config,
            info,
            cache,
            directory,
            history,
            max_logit_rows,
            thread: Some(Arc::new(thread)),
            ended,
            registry,
            mixtures,
            link,
            children: None,
            restarts: VecDeque::new(),
            records: Vec::new(),
            ledger,
            device,
        };
        state.start(&myself, restored).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let message = match message {
            ModelMessage::Restart => return state.start(&myself, None).await,
            ModelMessage::Hung(why) => {
                state.give_up(why).await;
                return Ok(());
            }
            ModelMessage::Lost(why) => return state.lose(why).await,
            ModelMessage::Memory(reply) => {
                let cache_file = state.directory.as_ref().and_then(|directory| directory.bytes());
                let device = state.device.clone();
                reply.send(MemoryStatus { cache_file, device, ..state.ledger.status() }).ok();
                return Ok(());
            }
            ModelMessage::Tree(question) => {
                question.answer(state.fare());
                return Ok(());
            }
            message => message,
        };
        // A message that cannot be passed on is lost with its reply port or its job, which its sender notices.
        let Some(children) = &state.children else { return Ok(()) };
        drop(match message {
            ModelMessage::Submit(job) => children.scheduler.cast(SchedulerMessage::Submit(job)),
            ModelMessage::Cancel(id) => children.scheduler.cast(SchedulerMessage::Cancel(id)),
            ModelMessage::Transfer(transfer) => children.scheduler.cast(SchedulerMessage::Transfer(transfer)),
            ModelMessage::Status(reply) => children.scheduler.cast(SchedulerMessage::Status(reply)),
            ModelMessage::SaveCache(reply) => {
                match &children.archive {
                    Some(archive) => drop(archive.cast(ArchiveMessage::Save(reply))),
                    // Whoever asked may have gone.
                    None => drop(reply.send(())),
                }
                return Ok(());
            }
            ModelMessage::Mixtures(reply) => {
                drop(children.experts.cast(ExpertsMessage::Status(reply)));
                return Ok(());
            }
            ModelMessage::Recall { digests, reply } => {
                drop(children.turns.cast(TurnsMessage::Recall { digests, reply }));
                return Ok(());
            }
            ModelMessage::Restart
            | ModelMessage::Hung(_)
            | ModelMessage::Lost(_)
            | ModelMessage::Memory(_)
            | ModelMessage::Tree(_) => return Ok(()),
            #[cfg(test)]
            ModelMessage::Prepare(preparation) => children.scheduler.cast(SchedulerMessage::Prepare(preparation)),
            #[cfg(test)]
            ModelMessage::Fail(who) => return children.fail(who),
        });
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let SupervisionEvent::ActorFailed(who, why) = event else { return Ok(()) };
        let Some(children) = &mut state.children else { return Ok(()) };
        let slot = children.slots.iter().position(|slot| slot.get_id() == who.get_id());
        let Some((name, _)) = children.all().into_iter().find(|(_, child)| child.get_id() == who.get_id()) else {
            return Ok(());
        };
        state.record(&name).failed(&why);
        match slot {
            Some(slot) => {
                tracing::error!(slot, %why, "a slot failed and is started again");
                state.replace_slot(&myself, slot).await
            }
            None => state.restart(&myself, &why.to_string()).await,
        }
    }
}

impl ModelState {
    /// Starts the actors with this cache, or an empty one, and says that the model can be served.
    async fn start(
        &mut self,
        myself: &ActorRef<ModelMessage>,
        cache: Option<StateCache>,
    ) -> Result<(), ActorProcessingErr> {
        let cache = cache.map_or_else(|| self.cache.cache(), Ok)?;
        let children = self.children(myself, cache).await?;
        for (name, _) in children.all() {
            self.record(&name).started();
        }
        self.children = Some(children);
        self.link.send_modify(|link| {
            // Someone may be shutting down by now.
            if !matches!(link, Link::Draining) {
                *link = Link::Ready { info: Arc::clone(&self.info), model: myself.clone() };
            }
        });
        Ok(())
    }

    async fn replace_slot(&mut self, myself: &ActorRef<ModelMessage>, id: usize) -> Result<(), ActorProcessingErr> {
        let Some(children) = &self.children else { return Ok(()) };
        let (scheduler, turns) = (children.scheduler.clone(), children.turns.clone());
        let slot = self.slot(id, &scheduler, &turns, myself).await?;
        self.record(&slot_name(id)).started();
        if let Some(place) = self.children.as_mut().and_then(|children| children.slots.get_mut(id)) {
            *place = slot.clone();
        }
        Ok(scheduler.cast(SchedulerMessage::SlotReplaced(id, slot))?)
    }

    async fn restart(&mut self, myself: &ActorRef<ModelMessage>, why: &str) -> Result<(), ActorProcessingErr> {
        let now = Instant::now();
        self.restarts.push_back(now);
        while self.restarts.front().is_some_and(|t| now.duration_since(*t) > RESTART_WINDOW) {
            self.restarts.pop_front();
        }
        self.stop_children().await;
        let Some(pause) = pause(self.restarts.len()) else {
            tracing::error!(%why, "an actor failed; the model's actors are started again");
            return self.start(myself, None).await;
        };
        tracing::error!(%why, ?pause, "the model's actors keep failing; they are started again after a pause");
        self.refuse(Link::Failed(format!("the model's actors keep failing ({why}); trying again in {pause:?}")));
        myself.send_after(pause, || ModelMessage::Restart);
        Ok(())
    }

    /// Ends all requests, and those that come.
    async fn give_up(&mut self, why: String) {
        tracing::error!(%why, "the model cannot be served any more");
        self.refuse(Link::Hung(why));
        self.stop_children().await;
    }

    /// Gives the program up, with all that it holds, and asks for another one.
    async fn lose(&mut self, why: String) -> Result<(), ActorProcessingErr> {
        // A scheduler may have said it twice.
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.refuse(match &self.registry {
            Some(_) => Link::Loading(0.0),
            None => Link::Failed(format!("the model cannot be served any more: {why}")),
        });
        self.stop_children().await;
        drop(thread);
        // A device that was lost can be opened again only when nothing holds it any more.
        if tokio::time::timeout(LAST_WORDS, &mut self.ended).await.is_err() {
            tracing::warn!("the program that failed does not end; its memory is not free");
        }
        match &self.registry {
            Some(registry) => Ok(registry.cast(RegistryMessage::Lost(why))?),
            None => Ok(()),
        }
    }

    fn refuse(&self, why: Link) {
        self.link.send_modify(|link| {
            if !matches!(link, Link::Draining) {
                *link = why;
            }
        });
    }

    fn record(&mut self, name: &str) -> &mut Record {
        let known = self.records.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            self.records.push((name.into(), Record::default()));
            self.records.len() - 1
        });
        &mut self.records[at].1
    }

    /// How all that were ever started fare.
    fn fare(&self) -> Vec<ActorStatus> {
        let running = self.children.as_ref().map(Children::all).unwrap_or_default();
        let cell = |name: &str| running.iter().find(|(running, _)| running == name).map(|(_, cell)| cell);
        self.records.iter().map(|(name, record)| record.status(name, cell(name))).collect()
    }

    /// None of them sends the executor's thread anything any more once this returns.
    async fn stop_children(&mut self) {
        let Some(children) = self.children.take() else { return };
        for (_, child) in children.all() {
            // One that has failed is gone already.
            drop(child.stop_and_wait(Some("a sibling failed".into()), Some(LAST_WORDS)).await);
        }
    }

    async fn children(
        &self,
        myself: &ActorRef<ModelMessage>,
        cache: StateCache,
    ) -> Result<Children, ActorProcessingErr> {
        let above = myself.get_cell();
        let (experts, _) = Actor::spawn_linked(None, Experts, self.mixtures.clone(), above.clone()).await?;
        let thread = self.thread.clone().ok_or("the program was lost")?;
        let arguments = (thread, experts.clone());
        let (executor, _) = Actor::spawn_linked(None, Executor, arguments, above.clone()).await?;
        let (kv, _) = Actor::spawn_linked(None, Kv, cache, above.clone()).await?;
        let arguments = SchedulerArguments {
            model: myself.clone(),
            executor: executor.clone(),
            kv: kv.clone(),
            batch: self.config.batch,
            max_logit_rows: self.max_logit_rows,
            context: self.info.context,
            end_tokens: self.info.end_tokens.clone(),
            tokenizer: self.info.tokenizer.clone(),
            resumes_anywhere: self.cache.resumes_anywhere(),
            history: self.history,
            minimum: self.cache.minimum.clone(),
            prefill_share: self.config.prefill_share,
            has_mixtures: !self.mixtures.is_empty(),
            checkpoint_interval: self.config.checkpoint_interval,
            step_timeout: self.config.step_timeout,
            // Pages on a device take none of the host's memory.
            available_memory: if self.device.is_some() { || None } else { self.config.available_memory },
        };
        let (scheduler, _) = Actor::spawn_linked(None, Scheduler, arguments, above.clone()).await?;
        let arguments = TurnsArguments { info: Arc::clone(&self.info), scheduler: scheduler.clone() };
        let (turns, _) = Actor::spawn_linked(None, Turns, arguments, above.clone()).await?;
        let mut slots = Vec::new();
        for id in 0..self.config.parallel {
            slots.push(self.slot(id, &scheduler, &turns, myself).await?);
        }
        scheduler.cast(SchedulerMessage::Slots(slots.clone()))?;
        let archive = self.archive(above, &kv, &scheduler).await?;
        Ok(Children { experts, executor, kv, scheduler, turns, slots, archive })
    }

    async fn archive(
        &self,
        above: ActorCell,
        kv: &ActorRef<KvMessage>,
        scheduler: &ActorRef<SchedulerMessage>,
    ) -> Result<Option<ActorRef<ArchiveMessage>>, ActorProcessingErr> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let arguments = ArchiveArguments {
            directory: Arc::clone(directory),
            kv: kv.clone(),
            scheduler: scheduler.clone(),
            every: self.config.cache_save_every,
            page_bytes: self.cache.groups.iter().map(|group| group.page_bytes).collect(),
        };
        Ok(Some(Actor::spawn_linked(None, Archive, arguments, above).await?.0))
    }

    async fn slot(
        &self,
        id: usize,
        scheduler: &ActorRef<SchedulerMessage>,
        turns: &ActorRef<TurnsMessage>,
        myself: &ActorRef<ModelMessage>,
    ) -> Result<ActorRef<SlotMessage>, ActorProcessingErr> {
        let context = SlotContext {
            id,
            scheduler: scheduler.clone(),
            turns: turns.clone(),
            tokenizer: self.info.tokenizer.clone(),
            end_tokens: self.info.end_tokens.as_slice().into(),
        };
        Ok(Actor::spawn_linked(None, Slot, context, myself.get_cell()).await?.0)
    }
}

fn slot_name(id: usize) -> String {
    format!("slot {id}")
}

/// A set of actors that know each other.
struct Children {
    experts: ActorRef<ExpertsMessage>,
    executor: ActorRef<ExecutorMessage>,
    kv: ActorRef<KvMessage>,
    scheduler: ActorRef<SchedulerMessage>,
    turns: ActorRef<TurnsMessage>,
    slots: Vec<ActorRef<SlotMessage>>,
    /// If the cache has a directory.
    archive: Option<ActorRef<ArchiveMessage>>,
}

impl Children {
    /// All of them by their names, who decides first.
    fn all(&self) -> Vec<(String, ActorCell)> {
        let single = [
            ("scheduler", self.scheduler.get_cell()),
            ("kv", self.kv.get_cell()),
            ("executor", self.executor.get_cell()),
            ("experts", self.experts.get_cell()),
            ("turns", self.turns.get_cell()),
        ];
        let archive = self.archive.iter().map(|archive| ("archive", archive.get_cell()));
        let slots = self.slots.iter().enumerate().map(|(id, slot)| (slot_name(id), slot.get_cell()));
        let single = single.into_iter().chain(archive).map(|(name, cell)| (name.to_owned(), cell));
        single.chain(slots).collect()
    }

    #[cfg(test)]
    fn fail(&self, who: super::tests::faults::Who) -> Result<(), ActorProcessingErr> {
        use super::tests::faults::Who;
        match who {
            Who::Experts => self.experts.cast(ExpertsMessage::Fail)?,
            Who::Executor => self.executor.cast(ExecutorMessage::Fail)?,
            Who::Kv => self.kv.cast(KvMessage::Fail)?,
            Who::Scheduler => self.scheduler.cast(SchedulerMessage::Fail)?,
            Who::Turns => self.turns.cast(TurnsMessage::Fail)?,
            Who::Slot(slot) => self.slots[slot].cast(SlotMessage::Fail)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_become_longer_up_to_a_minute() {
        let pauses: Vec<_> = (1..=12).filter_map(pause).map(|pause| pause.as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
