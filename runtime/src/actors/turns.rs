//! The turns actor: owns what was generated, by the text that clients send back.
//!
//! Messages: [`TurnsMessage::Remember`] when a turn has ended, before its client is told so, and
//! [`TurnsMessage::Recall`] before a prompt is encoded. Where the chat template renders a past turn otherwise than it was
//! generated, a task of the actor renders what the next request will begin with, and gives it to the scheduler to be computed
//! when there is nothing else to do.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::spawn_blocking;

use super::scheduler::{Preparation, SchedulerMessage};
use crate::{
    engine::{
        ModelInfo,
        sequel::{self, MESSAGES, Sequel},
    },
    turns::{Digest, Recalled, Turn, TurnMemory},
};

/// What the turns actor is told and asked.
#[derive(Debug)]
pub(crate) enum TurnsMessage {
    /// This turn was generated. With it: the conversation, if the template will render the turn otherwise.
    Remember(Turn, Option<Box<Sequel>>),
    /// The longest remembered beginning of a prompt; these name what is before each of its special tokens.
    Recall { digests: Vec<Digest>, reply: RpcReplyPort<Option<Recalled>> },
    /// Fail.
    #[cfg(test)]
    Fail,
}

/// What the actor is started with.
#[derive(Clone)]
pub(crate) struct TurnsArguments {
    pub(crate) info: Arc<ModelInfo>,
    pub(crate) scheduler: ActorRef<SchedulerMessage>,
}

/// What it owns.
pub(crate) struct TurnsState {
    memory: TurnMemory,
    arguments: TurnsArguments,
}

/// The actor.
pub(crate) struct Turns;

impl Actor for Turns {
    type Msg = TurnsMessage;
    type State = TurnsState;
    type Arguments = TurnsArguments;

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(TurnsState { memory: TurnMemory::default(), arguments })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            TurnsMessage::Remember(turn, sequel) => {
                state.memory.remember(&turn);
                if let Some(sequel) = sequel {
                    tokio::spawn(prepare(state.arguments.clone(), myself, Arc::new(*sequel)));
                }
            }
            TurnsMessage::Recall { digests, reply } => {
                reply.send(state.memory.recall(&digests)).ok();
            }
            #[cfg(test)]
            TurnsMessage::Fail => panic!("injected"),
        }
        Ok(())
    }
}

/// Has the scheduler prepare what the next request will begin with. What cannot be rendered is left to that request.
async fn prepare(arguments: TurnsArguments, turns: ActorRef<TurnsMessage>, sequel: Arc<Sequel>) {
    let TurnsArguments { info, scheduler } = arguments;
    let mut prompts = Vec::new();
    for message in MESSAGES {
        let (of, with) = (Arc::clone(&sequel), Arc::clone(&info));
        let Ok(Ok((prompt, digests))) = spawn_blocking(move || of.prompt(&with, message)).await else { return };
        let recalled = ractor::call!(turns, |reply| TurnsMessage::Recall { digests, reply }).unwrap_or_default();
        let with = Arc::clone(&info);
        let Ok(Ok(tokens)) = spawn_blocking(move || sequel::encode(&with, &prompt, recalled)).await else { return };
        prompts.push(tokens);
    }
    let Ok([mut prefix, other]) = <[Vec<u32>; 2]>::try_from(prompts) else { return };
    let shared = prefix.iter().zip(&other).take_while(|(one, other)| one == other).count();
    prefix.truncate(shared + 1);
    match prefix.pop() {
        Some(next) if !prefix.is_empty() && prefix.len() < info.context => {
            drop(scheduler.cast(SchedulerMessage::Prepare(Preparation { prefix, next })));
        }
        _ => {}
    }
}
