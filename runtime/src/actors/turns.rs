//! The turns actor: owns what was generated, by the text that clients send back.
//!
//! Messages: [`TurnsMessage::Remember`] when a turn has ended, before its client is told so, and
//! [`TurnsMessage::Recall`] before a prompt is encoded.

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::turns::{Digest, Recalled, Turn, TurnMemory};

/// What the turns actor is told and asked.
#[derive(Debug)]
pub(crate) enum TurnsMessage {
    /// This turn was generated.
    Remember(Turn),
    /// The longest remembered beginning of a prompt; these name what is before each of its special tokens.
    Recall { digests: Vec<Digest>, reply: RpcReplyPort<Option<Recalled>> },
    /// Fail.
    #[cfg(test)]
    Fail,
}

/// The actor.
pub(crate) struct Turns;

impl Actor for Turns {
    type Msg = TurnsMessage;
    type State = TurnMemory;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Self::Msg>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        Ok(TurnMemory::default())
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        memory: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            TurnsMessage::Remember(turn) => memory.remember(&turn),
            TurnsMessage::Recall { digests, reply } => {
                reply.send(memory.recall(&digests)).ok();
            }
            #[cfg(test)]
            TurnsMessage::Fail => panic!("injected"),
        }
        Ok(())
    }
}
