//! What the engine tells of its own parts: the tree of actors, and who holds the memory.

use ractor::{ActorCell, ActorRef};

use super::{ActorState, ActorStatus, Engine, MemoryStatus};
use crate::{
    actors::{
        model::ModelMessage,
        root::RootMessage,
        tree::{Record, TreeQuestion},
    },
    os,
};

/// The actor above all others of an engine; stopping it stops them.
#[derive(Clone)]
pub(crate) enum Top {
    /// Of an engine that loads its model.
    Root(ActorRef<RootMessage>),
    /// Of an engine around a model that is in memory already.
    Model(ActorRef<ModelMessage>),
}

impl Top {
    pub(crate) fn cell(&self) -> ActorCell {
        match self {
            Top::Root(root) => root.get_cell(),
            Top::Model(model) => model.get_cell(),
        }
    }

    fn status(&self) -> ActorStatus {
        let name = match self {
            Top::Root(_) => "root",
            Top::Model(_) => "model",
        };
        Record::default().status(name, Some(&self.cell()))
    }
}

impl Engine {
    /// The actors, from the top down. Those that were stopped with those around them are told too.
    pub async fn actors(&self) -> ActorStatus {
        let top = self.top();
        let status = top.status();
        let gone = ActorStatus { state: ActorState::Stopped, ..status.clone() };
        let told = match top {
            Top::Root(root) => ractor::call!(root, |reply| RootMessage::Tree(TreeQuestion::new(status, reply))).ok(),
            Top::Model(model) => {
                ractor::call!(model, |reply| ModelMessage::Tree(TreeQuestion::new(status, reply))).ok()
            }
        };
        told.unwrap_or(gone)
    }

    /// Who holds how much memory.
    pub async fn memory(&self) -> MemoryStatus {
        let Ok((_, model)) = self.link() else { return MemoryStatus::default() };
        let told = ractor::call!(model, ModelMessage::Memory).unwrap_or_default();
        let available = self.config().available_memory;
        let machine = move || MemoryStatus {
            available: available(),
            machine: os::machine_memory(),
            process: os::process_memory(),
            ..told
        };
        tokio::task::spawn_blocking(machine).await.unwrap_or_default()
    }
}
