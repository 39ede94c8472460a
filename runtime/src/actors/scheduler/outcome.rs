//! What a computed step means for its sequences.

use ractor::ActorProcessingErr;

use super::{SchedulerState, figures::StepFigures};
use crate::{
    actors::{
        executor::{Fault, StepOutcome},
        job::TokenEvent,
        model::ModelMessage,
    },
    engine::{Event, Failure},
    sampling::Sampled,
};

impl SchedulerState {
    pub(super) fn step_done(&mut self, outcome: StepOutcome) -> Result<(), ActorProcessingErr> {
        self.computing = None;
        let StepOutcome { mut job, result, elapsed } = outcome;
        tracing::trace!(?elapsed, rows = job.step.tokens.len(), sequences = job.step.sequences.len(), "step");
        job.held.clear();
        self.figures.step(StepFigures {
            elapsed,
            sequences: job.step.sequences.len(),
            rows: job.step.tokens.len(),
            prompt_rows: self.shape.prompt,
            failed: result.is_err(),
        });
        match result {
            Ok(()) => {
                self.pace.learn(self.shape.decoding, self.shape.prompt, elapsed);
                self.advance()?;
                for want in job.wants.drain(..) {
                    if let Some(sampler) = want.sampler {
                        self.give_back(want.id, sampler);
                    }
                    match want.sampled {
                        Some(Ok(sampled)) => self.drawn(want.id, sampled)?,
                        Some(Err(why)) => self.fail(want.id, &why)?,
                        None => {}
                    }
                }
            }
            Err(Fault { why, is_final, is_short }) => {
                for want in job.wants.drain(..) {
                    if let Some(sampler) = want.sampler {
                        self.give_back(want.id, sampler);
                    }
                }
                if is_short {
                    self.pressure.step_found_none();
                }
                if is_final { self.program_failed(why)? } else { self.step_failed(&why) }
            }
        }
        self.spare = Some(job);
        Ok(())
    }

    fn advance(&mut self) -> Result<(), ActorProcessingErr> {
        for sequence in &mut self.running {
            // Rows behind these were rejected: not counted, they are written again.
            let rows = std::mem::take(&mut sequence.in_step);
            if let (Some(lease), 1..) = (&mut sequence.lease, rows) {
                lease.advance(rows)?;
                sequence.suspect &= sequence.pending() > 0;
            }
        }
        Ok(())
    }

    fn give_back(&mut self, id: u64, sampler: crate::sampling::Sampler) {
        if let Some(sequence) = self.running.iter_mut().find(|s| s.id == id) {
            sequence.sampler = Some(sampler);
        }
    }

    /// A sequence's next token was drawn.
    fn drawn(&mut self, id: u64, sampled: Sampled) -> Result<(), ActorProcessingErr> {
        let Some(index) = self.running.iter().position(|s| s.id == id) else { return Ok(()) };
        let end_tokens = &self.arguments.end_tokens;
        let sequence = &mut self.running[index];
        if !sequence.started {
            self.figures.prompt_tokens += sequence.prompt_len as u64;
        }
        let mut reached = sequence.start();
        if !sequence.ignore_eos && end_tokens.contains(&sampled.token) {
            sequence.tell(TokenEvent::End { end_token: true });
            return self.retire(index);
        }
        self.figures.generated_tokens += 1;
        let cut = sampled.cut;
        reached &= sequence.deliver(sampled);
        let full =
            cut || sequence.generated() >= sequence.max_tokens || sequence.tokens.len() >= self.arguments.context;
        if full {
            sequence.tell(TokenEvent::End { end_token: false });
        }
        if full || !reached { self.retire(index) } else { Ok(()) }
    }

    /// One sequence cannot go on.
    fn fail(&mut self, id: u64, why: &str) -> Result<(), ActorProcessingErr> {
        let Some(index) = self.running.iter().position(|s| s.id == id) else { return Ok(()) };
        self.running[index].tell(TokenEvent::Failed(Failure::Fault(why.into())));
        self.retire(index)
    }

    /// What the step wrote is not known. The sequences in it begin again at what others can find of them, one after the
    /// other, so that one that cannot be computed does not take others along.
    /// Ends all requests, and has the model loaded again.
    fn program_failed(&mut self, why: String) -> Result<(), ActorProcessingErr> {
        tracing::error!(%why, sequences = self.running.len(), queued = self.queue.len(), "the model's program failed");
        self.starved = None;
        for sequence in self.running.drain(..) {
            sequence.tell(TokenEvent::Failed(Failure::Fault(why.clone())));
        }
        for job in self.queue.drain(..) {
            // The first event of this request: there is room, unless its client has gone.
            job.output.events.try_send(Event::Failed(Failure::Fault(why.clone()))).ok();
        }
        Ok(self.arguments.model.cast(ModelMessage::Lost(why))?)
    }

    fn step_failed(&mut self, why: &str) {
        let in_step = self.running.iter().filter(|sequence| sequence.in_step > 0).count();
        tracing::error!(%why, sequences = in_step, "a step failed");
        self.starved = None;
        if in_step == 1 {
            return self.running.retain(|sequence| {
                let failed = sequence.in_step > 0;
                if failed {
                    sequence.tell(TokenEvent::Failed(Failure::Fault(why.into())));
                }
                !failed
            });
        }
        for sequence in self.running.iter_mut().filter(|sequence| sequence.in_step > 0) {
            sequence.in_step = 0;
            sequence.lease = None;
            sequence.suspect = true;
        }
    }
}
