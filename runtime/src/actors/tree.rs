//! What supervisors tell of the tree: each knows how those that it starts have fared, and passes the question on to them.
//!
//! It is answered from what supervisors know, so also while actors below are being started again.

use ractor::{ActorCell, ActorStatus as CellStatus, RpcReplyPort};

use crate::engine::{ActorState, ActorStatus};

/// How an actor has fared, as its supervisor remembers it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    starts: u64,
    failures: u64,
    last_failure: Option<String>,
}

impl Record {
    /// It was started.
    pub(crate) fn started(&mut self) {
        self.starts += 1;
    }

    /// It failed.
    pub(crate) fn failed(&mut self, why: &dyn std::fmt::Display) {
        self.failures += 1;
        self.last_failure = Some(why.to_string());
    }

    /// The same in words for others; `cell` is the actor, if there is one at present.
    pub(crate) fn status(&self, name: &str, cell: Option<&ActorCell>) -> ActorStatus {
        // An actor that supervises starts what is below it, and so may serve before it has started itself.
        let alive = [CellStatus::Starting, CellStatus::Running, CellStatus::Upgrading];
        let runs = cell.is_some_and(|cell| alive.contains(&cell.get_status()));
        ActorStatus {
            name: name.into(),
            state: if runs { ActorState::Running } else { ActorState::Stopped },
            restarts: self.starts.saturating_sub(1),
            failures: self.failures,
            last_failure: self.last_failure.clone(),
            children: Vec::new(),
        }
    }
}

/// A question for the tree on its way down.
#[derive(Debug)]
pub(crate) struct TreeQuestion {
    /// From the top down to whoever has the question now, as their supervisors tell of them.
    path: Vec<ActorStatus>,
    reply: RpcReplyPort<ActorStatus>,
}

impl TreeQuestion {
    /// A question for the actor at the top.
    pub(crate) fn new(top: ActorStatus, reply: RpcReplyPort<ActorStatus>) -> Self {
        TreeQuestion { path: vec![top], reply }
    }

    /// The question for the one child of whoever has it.
    pub(crate) fn below(mut self, child: ActorStatus) -> Self {
        self.path.push(child);
        self
    }

    /// Answers it, where whoever has it knows all that is below.
    pub(crate) fn answer(self, children: Vec<ActorStatus>) {
        let nest = |below: Vec<ActorStatus>, above: ActorStatus| vec![ActorStatus { children: below, ..above }];
        let whole = self.path.into_iter().rev().fold(children, nest).pop();
        if let Some(whole) = whole {
            // Whoever asked may have gone.
            self.reply.send(whole).ok();
        }
    }
}
