//! The handle that clients hold: prepares requests and hands them to the actors.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bantam_backend::Program;
use bantam_grammar::Guide;
use bantam_text::Tokenizer;
use ractor::{Actor, ActorRef};
use tokio::sync::{mpsc, watch};

use super::{
    CacheSize, CancelFlag, ChatPrompt, EngineConfig, EngineError, Event, Generation, MixtureStatus, ModelInfo, Place,
    Readiness, Refusal, Request, Status, StopThinking, gate::Gate, inside::Top, prepare,
};
use crate::{
    actors::{
        job::{Capture, Deadline, Job, Output},
        model::{Model, ModelArguments, ModelMessage},
        root::Root,
        speech::Speech,
    },
    resident::{self, Resident},
    sampling::Sampler,
    snapshot,
    turns::TurnSeed,
};

/// Events that may wait for a client before its slot is blocked.
const EVENT_CHANNEL: usize = 64;

/// How long admitted requests may take to end when the engine shuts down.
const DRAIN: Duration = Duration::from_secs(90);

/// Whether there is a model to talk to, as the registry publishes it.
#[derive(Clone)]
pub(crate) enum Link {
    Loading(f32),
    Ready {
        info: Arc<ModelInfo>,
        model: ActorRef<ModelMessage>,
    },
    Failed(String),
    /// A step does not end: nothing will be served any more.
    Hung(String),
    Draining,
}

/// A running engine. Clones are handles to the same one.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    config: EngineConfig,
    gate: Arc<Gate>,
    next_id: AtomicU64,
    link: watch::Sender<Link>,
    top: Top,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.inner.config.model.display())
    }
}

impl Engine {
    /// Starts the actors and returns at once; the model loads in the background. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// A configuration that cannot be, or no actor can be started.
    pub fn start(config: EngineConfig) -> Result<Engine, EngineError> {
        config.validate()?;
        config.cache_dir.as_deref().map_or(Ok(()), snapshot::prepare).map_err(EngineError::Load)?;
        let (link, _) = watch::channel(Link::Loading(0.0));
        let (root, _) = ractor::ActorRuntime::spawn_instant(None, Root, (config.clone(), link.clone()))
            .map_err(|e| EngineError::Stopped(e.to_string()))?;
        let gate = Gate::new(config.concurrency, config.parallel);
        Ok(Engine { inner: Arc::new(Inner { config, gate, next_id: AtomicU64::new(1), link, top: Top::Root(root) }) })
    }

    /// An engine around a program that does not come from a checkpoint, ready at once. The program must take steps of the
    /// configuration's size, with one logit row per sequence.
    ///
    /// # Errors
    /// A configuration that cannot be, or the state of one sequence does not fit.
    pub async fn around(
        config: EngineConfig,
        tokenizer: Tokenizer,
        program: Box<dyn Program>,
    ) -> Result<Engine, EngineError> {
        config.validate()?;
        let resident = resident::around(&config, tokenizer, program).map_err(EngineError::Load)?;
        Engine::with_resident(config, resident).await
    }

    /// An engine around a program that speaks for the checkpoint of the configuration: with its vocabulary, template and
    /// marks, and whatever the program computes instead of its weights. The same holds for the program as in
    /// [`Engine::around`].
    ///
    /// # Errors
    /// A configuration or checkpoint that cannot be, or the state of one sequence does not fit.
    pub async fn acting(config: EngineConfig, program: Box<dyn Program>) -> Result<Engine, EngineError> {
        config.validate()?;
        let resident = resident::acting(&config, program).map_err(EngineError::Load)?;
        Engine::with_resident(config, resident).await
    }

    /// An engine around a model that is in memory already.
    pub(crate) async fn with_resident(config: EngineConfig, resident: Resident) -> Result<Engine, EngineError> {
        let (link, _) = watch::channel(Link::Loading(1.0));
        let arguments = ModelArguments { config: config.clone(), resident, link: link.clone(), registry: None };
        let (model, _) = Actor::spawn(None, Model, arguments).await.map_err(|e| EngineError::Stopped(e.to_string()))?;
        let gate = Gate::new(config.concurrency, config.parallel);
        let top = Top::Model(model);
        Ok(Engine { inner: Arc::new(Inner { config, gate, next_id: AtomicU64::new(1), link, top }) })
    }

    /// What the engine was started with.
    pub fn config(&self) -> &EngineConfig {
        &self.inner.config
    }

    /// Whether requests can be served. Never waits.
    pub fn readiness(&self) -> Readiness {
        match &*self.inner.link.borrow() {
            Link::Loading(part) => Readiness::Loading(*part),
            Link::Ready { info, .. } => Readiness::Ready(Arc::clone(info)),
            Link::Failed(why) | Link::Hung(why) => Readiness::Failed(why.clone()),
            Link::Draining => Readiness::Draining,
        }
    }

    /// Waits until the model is loaded.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub async fn ready(&self) -> Result<Arc<ModelInfo>, EngineError> {
        let mut link = self.inner.link.subscribe();
        let link = link
            .wait_for(|l| !matches!(l, Link::Loading(_)))
            .await
            .map_err(|_| EngineError::Stopped("the registry is gone".into()))?;
        match &*link {
            Link::Ready { info, .. } => Ok(Arc::clone(info)),
            Link::Failed(why) | Link::Hung(why) => Err(EngineError::Load(why.clone())),
            Link::Loading(_) | Link::Draining => Err(EngineError::Stopped("shutting down".into())),
        }
    }

    /// Waits until a step does not end, which is when it is best to end the process: nothing will be served any more, and
    /// what a thread computes cannot be broken off. Returns why.
    ///
    /// # Errors
    /// If the engine is gone.
    pub async fn hung(&self) -> Result<String, EngineError> {
        let mut link = self.inner.link.subscribe();
        let link = link.wait_for(|link| matches!(link, Link::Hung(_))).await;
        match link.as_deref() {
            Ok(Link::Hung(why)) => Ok(why.clone()),
            _ => Err(EngineError::Stopped("the model is gone".into())),
        }
    }

    /// Takes a request: renders, tokenizes and checks it, then queues it.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing was computed then.
    pub async fn submit(&self, request: Request) -> Result<Generation, Refusal> {
        let (info, model) = self.link()?;
        let place = self.inner.gate.admit()?;
        let started = Instant::now();
        let remember = self.inner.config.cache != CacheSize::Off;
        let (mut read, info) = blocking(move || prepare::read(&info, request, remember).map(|r| (r, info))).await??;
        let recalled = match read.take_digests() {
            Some(digests) => ractor::call!(model, |reply| ModelMessage::Recall { digests, reply }).unwrap_or_default(),
            None => None,
        };
        let prepared = blocking(move || read.encode(&info, recalled)).await??;
        Ok(self.dispatch(&model, prepared, started, Some(place), None))
    }

    /// Takes exactly these tokens and reports logit rows, for probes.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(crate) fn submit_probe(&self, prepared: Prepared, capture: Capture) -> Result<Generation, Refusal> {
        let (_, model) = self.link()?;
        Ok(self.dispatch(&model, prepared, Instant::now(), None, Some(capture)))
    }

    /// The prompt that a conversation becomes: its text and its tokens.
    ///
    /// # Errors
    /// If there is no model, or the template refuses the conversation.
    pub async fn render(&self, chat: ChatPrompt) -> Result<(String, Vec<u32>), Refusal> {
        let (info, _) = self.link()?;
        blocking(move || prepare::render(&info, &chat)).await?
    }

    /// What is going on. Answers in milliseconds whatever is being computed.
    pub async fn status(&self) -> Status {
        let Ok((_, model)) = self.link() else { return Status::default() };
        ractor::call!(model, ModelMessage::Status).unwrap_or_default()
    }

    /// What the experts of each mixture have computed, in the order in which rows pass the mixtures; a pause after the
    /// last step all is told. Empty for models without such.
    pub async fn mixtures(&self) -> Vec<MixtureStatus> {
        let Ok((_, model)) = self.link() else { return Vec::new() };
        ractor::call!(model, ModelMessage::Mixtures).unwrap_or_default()
    }

    /// Refuses new requests, lets the admitted ones end, saves the cache if it has a directory, then stops the actors.
    pub async fn shutdown(&self) {
        let link = self.inner.link.send_replace(Link::Draining);
        // Every admitted request holds its place until its last event.
        if tokio::time::timeout(DRAIN, self.inner.gate.emptied()).await.is_err() {
            tracing::warn!("requests were still running after {DRAIN:?} and are cut off");
        }
        self.inner.gate.close();
        if let Link::Ready { model, .. } = link {
            // One that has failed since has nothing to save.
            drop(ractor::call!(model, ModelMessage::SaveCache));
        }
        self.stop().await;
    }

    /// Stops the actors at once.
    pub async fn stop(&self) {
        drop(self.inner.top.cell().stop_and_wait(None, None).await);
    }

    pub(super) fn top(&self) -> Top {
        self.inner.top.clone()
    }

    pub(crate) fn link(&self) -> Result<(Arc<ModelInfo>, ActorRef<ModelMessage>), Refusal> {
        match &*self.inner.link.borrow() {
            Link::Ready { info, model } => Ok((Arc::clone(info), model.clone())),
            Link::Loading(_) => Err(Refusal::NotReady("the model is still being loaded".into())),
            Link::Failed(why) | Link::Hung(why) => Err(Refusal::NotReady(why.clone())),
            Link::Draining => Err(Refusal::NotReady("the server is shutting down".into())),
        }
    }

    fn dispatch(
        &self,
        model: &ActorRef<ModelMessage>,
        prepared: Prepared,
        submitted: Instant,
        place: Option<Place>,
        capture: Option<Capture>,
    ) -> Generation {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = mpsc::channel::<Event>(EVENT_CHANNEL);
        let cancel = CancelFlag::default();
        let prompt_tokens = prepared.tokens.len();
        let stop_thinking = prepared.guide.as_ref().map(StopThinking::of).unwrap_or_default();
        let output = Output {
            id,
            prompt_tokens,
            submitted,
            events: sender,
            cancel: cancel.clone(),
            turn: prepared.turn,
            _place: place,
        };
        let job = Job {
            id,
            tokens: prepared.tokens,
            sampler: prepared.sampler.guided(prepared.guide),
            max_tokens: prepared.max_tokens,
            ignore_eos: prepared.ignore_eos,
            share: prepared.share,
            chunk: prepared.chunk,
            priority: prepared.priority,
            deadline: prepared.deadline.and_then(|after| Deadline::new(submitted, after)),
            cancel: cancel.clone(),
            capture,
            speech: prepared.speech,
            output,
        };
        // If the model is gone the job is dropped with its event sender, and the generation says so.
        drop(model.cast(ModelMessage::Submit(Box::new(job))));
        let model = model.clone();
        let on_drop = Box::new(move |id| drop(model.cast(ModelMessage::Cancel(id))));
        Generation { id, prompt_tokens, events, cancel, on_drop, ended: false, stop_thinking, prompt: prepared.text }
    }
}

/// A request that fits.
pub(crate) struct Prepared {
    pub(crate) tokens: Vec<u32>,
    pub(crate) sampler: Sampler,
    pub(crate) max_tokens: usize,
    /// What reads its tokens.
    pub(crate) speech: Speech,
    /// What holds its tokens to what was asked for.
    pub(crate) guide: Option<Guide>,
    pub(crate) ignore_eos: bool,
    /// Whether cached prefixes may be used.
    pub(crate) share: bool,
    /// Most prompt tokens a step; 0: as many as fit.
    pub(crate) chunk: usize,
    /// Lower numbers go first.
    pub(crate) priority: i32,
    /// Time from its submission in which it must end.
    pub(crate) deadline: Option<Duration>,
    /// If the answer is to be remembered.
    pub(crate) turn: Option<TurnSeed>,
    /// The text of the prompt, if it is to be told.
    pub(crate) text: Option<Arc<str>>,
}

/// Runs work that computes away from the threads that serve I/O.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Refusal::Internal(e.to_string()))
}
