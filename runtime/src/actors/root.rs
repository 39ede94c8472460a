//! The root supervisor: starts the registry and gives up in order when the process ends.
//!
//! Messages: none. Stopping it stops everything below.

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::watch;

use super::registry::{Registry, RegistryArguments};
use crate::engine::{EngineConfig, Link};

/// The actor.
pub(crate) struct Root;

/// What it starts the registry with, also after a failure.
pub(crate) struct RootState {
    config: EngineConfig,
    link: watch::Sender<Link>,
    restarts: usize,
}

/// A registry that failed this often will not get better by another start.
const MAX_RESTARTS: usize = 3;

impl Actor for Root {
    type Msg = ();
    type State = RootState;
    type Arguments = (EngineConfig, watch::Sender<Link>);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (config, link): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let state = RootState { config, link, restarts: 0 };
        state.start_registry(&myself).await?;
        Ok(state)
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, why) = event {
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
    async fn start_registry(&self, myself: &ActorRef<()>) -> Result<(), ActorProcessingErr> {
        let arguments = RegistryArguments { config: self.config.clone(), link: self.link.clone() };
        Actor::spawn_linked(None, Registry, arguments, myself.get_cell()).await?;
        Ok(())
    }
}
