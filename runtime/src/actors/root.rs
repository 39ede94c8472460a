//! The root supervisor: starts the registry and gives up in order when the process ends.
//!
//! Messages: [`RootMessage::Tree`] asks how the actors fare. Stopping it stops everything below.

use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr, SupervisionEvent};
use tokio::sync::watch;

use super::{
    registry::{Registry, RegistryArguments, RegistryMessage},
    tree::{Record, TreeQuestion},
};
use crate::engine::{EngineConfig, Link};

/// What the root is asked.
#[derive(Debug)]
pub(crate) enum RootMessage {
    /// How the actors fare.
    Tree(TreeQuestion),
}

/// The actor.
pub(crate) struct Root;

/// What it starts the registry with, also after a failure.
pub(crate) struct RootState {
    config: EngineConfig,
    link: watch::Sender<Link>,
    registry: Option<ActorRef<RegistryMessage>>,
    record: Record,
    restarts: usize,
}

/// A registry that failed this often will not get better by another start.
const MAX_RESTARTS: usize = 3;

impl Actor for Root {
    type Msg = RootMessage;
    type State = RootState;
    type Arguments = (EngineConfig, watch::Sender<Link>);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (config, link): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let mut state = RootState { config, link, registry: None, record: Record::default(), restarts: 0 };
        state.start_registry(&myself).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        RootMessage::Tree(question): Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.pass_on(question);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, why) = event {
            state.record.failed(&why);
            state.restarts += 1;
            if state.restarts > MAX_RESTARTS {
                state.link.send_replace(Link::Failed(format!("the registry keeps failing: {why}")));
            } else {
                tracing::error!(%why, "the registry failed and is started again");
                state.start_registry(&myself).await?;
            }
        }
        Ok(())
    }
}

impl RootState {
    async fn start_registry(&mut self, myself: &ActorRef<RootMessage>) -> Result<(), ActorProcessingErr> {
        let arguments = RegistryArguments { config: self.config.clone(), link: self.link.clone() };
        let (registry, _) = Actor::spawn_linked(None, Registry, arguments, myself.get_cell()).await?;
        self.record.started();
        self.registry = Some(registry);
        Ok(())
    }

    fn pass_on(&self, question: TreeQuestion) {
        let cell = self.registry.as_ref().map(ActorRef::get_cell);
        let question = question.below(self.record.status("registry", cell.as_ref()));
        let Some(registry) = &self.registry else { return question.answer(Vec::new()) };
        if let Err(MessagingErr::SendErr(RegistryMessage::Tree(question))) =
            registry.cast(RegistryMessage::Tree(question))
        {
            question.answer(Vec::new());
        }
    }
}
