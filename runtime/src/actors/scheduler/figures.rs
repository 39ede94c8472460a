//! What the scheduler counts, and what it tells of itself.

use std::time::{Duration, Instant};

use super::{KvMessage, SchedulerState};
use crate::engine::{QueuedStatus, SlotStatus, Status};

/// Time of computing that speeds are mostly made of.
const RECENT: Duration = Duration::from_secs(10);

/// What was done since the start. Plain numbers: the scheduler alone writes and reads them, once per step.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) reused_tokens: u64,
    pub(super) prompt_tokens: u64,
    pub(super) generated_tokens: u64,
    pub(super) displaced: u64,
    steps: u64,
    steps_failed: u64,
    step_time: Duration,
    last_step: Option<Instant>,
    rows: u64,
    prompt_rows: u64,
    max_step_sequences: usize,
    prefill: Speed,
    decode: Speed,
}

/// A step that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepFigures {
    pub(super) elapsed: Duration,
    pub(super) sequences: usize,
    /// All rows, the rejected ones too.
    pub(super) rows: usize,
    /// Of these, rows of sequences that do not decode.
    pub(super) prompt_rows: usize,
    pub(super) failed: bool,
}

impl Figures {
    pub(super) fn step(&mut self, step: StepFigures) {
        self.steps += 1;
        self.step_time += step.elapsed;
        self.last_step = Some(Instant::now());
        self.max_step_sequences = self.max_step_sequences.max(step.sequences);
        if step.failed {
            // What of it was computed is not known.
            self.steps_failed += 1;
            return;
        }
        self.rows += step.rows as u64;
        self.prompt_rows += step.prompt_rows as u64;
        self.prefill.step(step.prompt_rows, step.elapsed);
        self.decode.step(step.rows.saturating_sub(step.prompt_rows), step.elapsed);
    }
}

/// Rows a second of those steps that had any; older steps count less the more was computed since.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    rows: f64,
    seconds: f64,
}

impl Speed {
    fn step(&mut self, rows: usize, elapsed: Duration) {
        if rows == 0 {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        let kept = (-seconds / RECENT.as_secs_f64()).exp();
        self.rows = self.rows * kept + rows as f64;
        self.seconds = self.seconds * kept + seconds;
    }

    fn per_second(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.rows / self.seconds)
    }
}

impl SchedulerState {
    pub(super) async fn status(&self) -> Status {
        let state = ractor::call!(self.arguments.kv, KvMessage::Usage).unwrap_or_default();
        let running = |id| self.running.iter().find(|s| s.slot == id).map(super::sequence::Sequence::status);
        let slots = (0..self.slots.len()).map(|id| running(id).unwrap_or_else(|| SlotStatus::idle(id)));
        let queue = self.queue.iter().map(|job| QueuedStatus {
            request: job.id,
            prompt_tokens: job.tokens.len(),
            waiting: job.output.submitted.elapsed(),
        });
        let Figures { reused_tokens, prompt_tokens, generated_tokens, displaced, .. } = self.figures;
        let Figures { steps, steps_failed, step_time, rows, prompt_rows, max_step_sequences, .. } = self.figures;
        Status {
            slots: slots.collect(),
            queued: self.queue.len(),
            queue: queue.collect(),
            steps,
            steps_failed,
            step_time,
            step_running: self.computing.map(|since| since.elapsed()),
            last_step: self.figures.last_step.map(|ended| ended.elapsed()),
            rows,
            prompt_rows,
            prefill_speed: self.figures.prefill.per_second(),
            decode_speed: self.figures.decode.per_second(),
            max_step_sequences,
            reused_tokens,
            prompt_tokens,
            generated_tokens,
            displaced,
            state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: StepFigures =
        StepFigures { elapsed: Duration::from_millis(100), sequences: 3, rows: 40, prompt_rows: 38, failed: false };

    #[test]
    fn rows_are_those_of_steps_that_succeed() {
        let mut figures = Figures::default();
        figures.step(STEP);
        figures.step(StepFigures { failed: true, sequences: 9, ..STEP });
        assert_eq!((figures.steps, figures.steps_failed, figures.rows, figures.prompt_rows), (2, 1, 40, 38));
        assert_eq!((figures.max_step_sequences, figures.step_time), (9, 2 * STEP.elapsed));
        assert!(figures.last_step.is_some());
    }

    #[test]
    fn speeds_are_of_steps_that_had_such_rows_and_forget() {
        let mut figures = Figures::default();
        assert_eq!(figures.prefill.per_second(), None);
        figures.step(StepFigures { prompt_rows: 40, ..STEP });
        assert_eq!((figures.prefill.per_second(), figures.decode.per_second()), (Some(400.0), None));
        (0..1000).for_each(|_| figures.step(StepFigures { rows: 2, prompt_rows: 0, ..STEP }));
        assert_eq!(figures.prefill.per_second(), Some(400.0), "no later step computed prompts");
        assert!((figures.decode.per_second().unwrap() - 20.0).abs() < 1e-6);
        (0..1000).for_each(|_| figures.step(StepFigures { rows: 1, prompt_rows: 0, ..STEP }));
        assert!((figures.decode.per_second().unwrap() - 10.0).abs() < 1e-3, "100 seconds later");
    }
}
