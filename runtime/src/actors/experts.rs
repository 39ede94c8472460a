//! The experts actor: owns the statistics of a model's mixtures of experts.
//!
//! Messages: [`ExpertsMessage::Used`] adds what the executor has counted, [`ExpertsMessage::Status`] tells the totals.
//!
//! Which experts are used most decides which are worth fast memory. On the processor they all lie in the same memory, as
//! parts of the program that the executor's one team of threads runs: this actor has no threads of its own.

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::engine::MixtureStatus;

/// What the experts actor is asked.
#[derive(Debug)]
pub(crate) enum ExpertsMessage {
    /// Rows that each expert has computed since the last such message: all experts of the first mixture, then of the next.
    Used(Vec<u64>),
    /// What each mixture has computed so far.
    Status(RpcReplyPort<Vec<MixtureStatus>>),
    /// Fail.
    #[cfg(test)]
    Fail,
}

/// The actor.
pub(crate) struct Experts;

impl Actor for Experts {
    type Msg = ExpertsMessage;
    type State = Vec<MixtureStatus>;
    /// How many experts each mixture has.
    type Arguments = Vec<usize>;

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        mixtures: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(mixtures.into_iter().map(|experts| MixtureStatus { rows: vec![0; experts] }).collect())
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        mixtures: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ExpertsMessage::Used(rows) => {
                let totals = mixtures.iter_mut().flat_map(|mixture| &mut mixture.rows);
                for (total, rows) in totals.zip(rows) {
                    *total = total.saturating_add(rows);
                }
            }
            ExpertsMessage::Status(reply) => {
                reply.send(mixtures.clone()).ok();
            }
            #[cfg(test)]
            ExpertsMessage::Fail => panic!("injected"),
        }
        Ok(())
    }
}
