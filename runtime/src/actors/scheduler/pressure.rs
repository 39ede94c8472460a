//! Giving memory back where the machine runs out of it: other programs, or the control group's limit, must not end the process
//! while prefixes are kept that no sequence uses.

use std::time::Instant;

use ractor::ActorProcessingErr;

use super::SchedulerState;
use crate::actors::{executor::ExecutorMessage, kv::KvMessage};

/// Memory that is to stay free for the machine.
const MARGIN: u64 = 256 << 20;

/// Ticks between two looks.
const TICKS: u32 = 8;

/// Watches the machine's memory.
#[derive(Debug)]
pub(super) struct Pressure {
    /// Tells what can be taken without pushing others out, in bytes, where that is known.
    available: fn() -> Option<u64>,
    ticks: u32,
    /// Bytes to be given back before the next step.
    wanted: Option<u64>,
}

impl Pressure {
    pub(super) fn new(available: fn() -> Option<u64>) -> Self {
        Pressure { available, ticks: 0, wanted: None }
    }

    /// Asks for everything: a step has found no memory for its state.
    pub(super) fn step_found_none(&mut self) {
        self.wanted = Some(u64::MAX);
    }

    /// Looks at the machine from time to time.
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS) {
            let missing = (self.available)().and_then(|available| MARGIN.checked_sub(available));
            // Twice as much as is missing: the next look is a while away.
            let missing = missing.map(|missing| missing.saturating_mul(2)).filter(|bytes| *bytes > 0);
            self.wanted = self.wanted.max(missing);
        }
    }
}

impl SchedulerState {
    /// Has the executor give memory back, if that is wanted and there is any; true if so.
    pub(super) async fn relieve(&mut self) -> Result<bool, ActorProcessingErr> {
        let Some(bytes) = self.pressure.wanted.take() else { return Ok(false) };
        let pages = ractor::call!(self.arguments.kv, |reply| KvMessage::GiveUp { bytes, reply })?;
        if pages.is_empty() {
            return Ok(false);
        }
        tracing::warn!(pages = pages.len(), "memory is short: cached prefixes are given up");
        self.computing = Some(Instant::now());
        self.arguments.executor.cast(ExecutorMessage::Release(pages, self.myself.clone()))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_from_time_to_time() {
        let mut short = Pressure::new(|| Some(MARGIN - 5));
        (1..TICKS).for_each(|_| short.tick());
        assert_eq!(short.wanted, None);
        short.tick();
        assert_eq!(short.wanted, Some(10));
        for enough in [|| Some(MARGIN), || None] {
            let mut pressure = Pressure::new(enough);
            (0..TICKS).for_each(|_| pressure.tick());
            assert_eq!(pressure.wanted, None);
        }
        short.step_found_none();
        assert_eq!(short.wanted, Some(u64::MAX));
    }
}
