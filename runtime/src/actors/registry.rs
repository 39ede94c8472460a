//! The registry: opens the model, keeps the memory ledger, and says whether requests can be served.
//!
//! Messages: [`RegistryMessage::Loaded`] ends the loading that was begun at the start, [`RegistryMessage::Lost`] begins it anew,
//! [`RegistryMessage::Tree`] asks how the actors fare. Loading runs on a thread of its own; the registry stays responsive. Its state is published through a watch channel, so reading it asks nobody.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr, SupervisionEvent};
use tokio::sync::watch;

use super::{
    model::{Model, ModelArguments, ModelMessage},
    tree::{Record, TreeQuestion},
};
use crate::{
    engine::{EngineConfig, Link},
    hardware::Hardware,
    memory::Ledger,
    placement::{BackendChoice, PlacementChoices},
    resident::{self, Resident},
};

/// What the registry is told.
pub(crate) enum RegistryMessage {
    /// The model is in memory, or why not.
    Loaded(Result<Box<Resident>, String>),
    /// The model's program can compute nothing any more, and is gone.
    Lost(String),
    /// How the actors fare.
    Tree(TreeQuestion),
}

/// What the registry is started with.
pub(crate) struct RegistryArguments {
    pub(crate) config: EngineConfig,
    pub(crate) link: watch::Sender<Link>,
}

/// What the registry owns.
pub(crate) struct RegistryState {
    config: EngineConfig,
    link: watch::Sender<Link>,
    /// None while it is loaded.
    model: Option<ActorRef<ModelMessage>>,
    record: Record,
    /// When its program was lost of late.
    losses: VecDeque<Instant>,
}

/// A program that is lost this often within [`LOSS_WINDOW`] is not tried again where it was.
const MOST_LOSSES: usize = 3;
const LOSS_WINDOW: Duration = Duration::from_secs(300);

/// The actor.
pub(crate) struct Registry;

impl Actor for Registry {
    type Msg = RegistryMessage;
    type State = RegistryState;
    type Arguments = RegistryArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let RegistryArguments { config, link } = arguments;
        tell(&link, Link::Loading(0.0));
        start_loading(myself, config.clone(), link.clone())?;
        Ok(RegistryState { config, link, model: None, record: Record::default(), losses: VecDeque::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RegistryMessage::Loaded(Ok(resident)) => state.serve(&myself, *resident).await?,
            RegistryMessage::Loaded(Err(why)) => state.not_loaded(myself, why)?,
            RegistryMessage::Lost(why) => state.load_again(myself, &why).await?,
            RegistryMessage::Tree(question) => state.pass_on(question),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, why) = event {
            tracing::error!(%why, "the model cannot be served any more");
            state.record.failed(&why);
            tell(&state.link, Link::Failed(format!("the model cannot be served any more: {why}")));
        }
        Ok(())
    }
}

impl RegistryState {
    async fn serve(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        resident: Resident,
    ) -> Result<(), ActorProcessingErr> {
        let arguments = ModelArguments {
            config: self.config.clone(),
            resident,
            link: self.link.clone(),
            registry: Some(myself.clone()),
        };
        let (model, _) = Actor::spawn_linked(None, Model, arguments, myself.get_cell()).await?;
        self.record.started();
        self.model = Some(model);
        Ok(())
    }

    /// Loads the model again; on the CPU if it was lost too often on a device that was not insisted on.
    async fn load_again(&mut self, myself: ActorRef<RegistryMessage>, why: &str) -> Result<(), ActorProcessingErr> {
        self.record.failed(&why);
        if let Some(model) = self.model.take() {
            drop(model.stop_and_wait(None, None).await);
        }
        let now = Instant::now();
        self.losses.push_back(now);
        self.losses.retain(|loss| now.duration_since(*loss) <= LOSS_WINDOW);
        if self.losses.len() >= MOST_LOSSES {
            if !self.can_leave_the_device() {
                let times = self.losses.len();
                tracing::error!(%why, times, "the model's program keeps failing and is not loaded again");
                tell(&self.link, Link::Failed(format!("the model's program failed {times} times of late: {why}")));
                return Ok(());
            }
            self.leave_the_device(why);
        } else {
            tracing::warn!(%why, "the model is loaded again");
        }
        self.start(myself)
    }

    /// Says so; on the CPU it may yet be loaded, if it was on a device before that is lost now.
    fn not_loaded(&mut self, myself: ActorRef<RegistryMessage>, why: String) -> Result<(), ActorProcessingErr> {
        if self.losses.is_empty() || !self.can_leave_the_device() {
            tell(&self.link, Link::Failed(why));
            return Ok(());
        }
        self.leave_the_device(&why);
        self.start(myself)
    }

    fn can_leave_the_device(&self) -> bool {
        let is_device = matches!(self.config.hardware, Hardware::Devices(_));
        is_device && self.config.placement.backend != BackendChoice::Cuda
    }

    fn leave_the_device(&mut self, why: &str) {
        tracing::error!(%why, "the device stays lost; the CPU computes from now on");
        self.config.hardware = Hardware::Cpu;
        self.config.placement = PlacementChoices { backend: BackendChoice::Cpu, ..PlacementChoices::default() };
        self.losses.clear();
    }

    fn start(&self, myself: ActorRef<RegistryMessage>) -> Result<(), ActorProcessingErr> {
        tell(&self.link, Link::Loading(0.0));
        Ok(start_loading(myself, self.config.clone(), self.link.clone())?)
    }

    fn pass_on(&self, question: TreeQuestion) {
        let Some(model) = &self.model else { return question.answer(Vec::new()) };
        let question = question.below(self.record.status("model", Some(&model.get_cell())));
        if let Err(MessagingErr::SendErr(ModelMessage::Tree(question))) = model.cast(ModelMessage::Tree(question)) {
            question.answer(Vec::new());
        }
    }
}

/// Says whether the model can be served, unless someone is shutting down.
fn tell(link: &watch::Sender<Link>, news: Link) {
    link.send_modify(|link| {
        if !matches!(link, Link::Draining) {
            *link = news;
        }
    });
}

fn start_loading(
    registry: ActorRef<RegistryMessage>,
    config: EngineConfig,
    link: watch::Sender<Link>,
) -> Result<(), std::io::Error> {
    std::thread::Builder::new().name("loader".into()).spawn(move || {
        let mut shown = 0.0;
        let mut progress = |done: u64, of: u64| {
            let part = done as f32 / of.max(1) as f32;
            if part - shown >= 0.005 {
                shown = part;
                tell(&link, Link::Loading(part.min(1.0)));
            }
        };
        let ledger = Ledger::of_this_machine();
        let load = std::panic::AssertUnwindSafe(|| resident::load(&config, ledger, &mut progress));
        let result = std::panic::catch_unwind(load)
            .unwrap_or_else(|panic| Err(format!("loading panicked: {}", super::executor::panic_text(panic.as_ref()))))
            .map(Box::new);
        if registry.cast(RegistryMessage::Loaded(result)).is_err() {
            tracing::debug!("a model was loaded for a registry that has stopped");
        }
    })?;
    Ok(())
}
