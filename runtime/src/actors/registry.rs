//! The registry: opens the model, keeps the memory ledger, and says whether requests can be served.
//!
//! Messages: [`RegistryMessage::Loaded`] ends the loading that was begun at the start, [`RegistryMessage::Tree`] asks how the
//! actors fare. Loading runs on a thread of its
//! own; the registry stays responsive. Its state is published through a watch channel, so reading it asks nobody.

use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr, SupervisionEvent};
use tokio::sync::watch;

use super::{
    model::{Model, ModelArguments, ModelMessage},
    tree::{Record, TreeQuestion},
};
use crate::{
    engine::{EngineConfig, Link},
    memory::Ledger,
    resident::{self, Resident},
};

/// What the registry is told.
pub(crate) enum RegistryMessage {
    /// The model is in memory, or why not.
    Loaded(Result<Box<Resident>, String>),
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
}

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
        link.send_replace(Link::Loading(0.0));
        start_loading(myself, config.clone(), link.clone())?;
        Ok(RegistryState { config, link, model: None, record: Record::default() })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RegistryMessage::Loaded(Ok(resident)) => state.serve(&myself, *resident).await?,
            RegistryMessage::Loaded(Err(why)) => drop(state.link.send_replace(Link::Failed(why))),
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
            state.link.send_replace(Link::Failed(format!("the model cannot be served any more: {why}")));
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
        let arguments = ModelArguments { config: self.config.clone(), resident, link: self.link.clone() };
        let (model, _) = Actor::spawn_linked(None, Model, arguments, myself.get_cell()).await?;
        self.record.started();
        self.model = Some(model);
        Ok(())
    }

    fn pass_on(&self, question: TreeQuestion) {
        let Some(model) = &self.model else { return question.answer(Vec::new()) };
        let question = question.below(self.record.status("model", Some(&model.get_cell())));
        if let Err(MessagingErr::SendErr(ModelMessage::Tree(question))) = model.cast(ModelMessage::Tree(question)) {
            question.answer(Vec::new());
        }
    }
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
                link.send_replace(Link::Loading(part.min(1.0)));
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
