//! Finds which tokens grammars allow, on a thread beside the one that computes the step.
//!
//! The samplers that a step needs go there before the step and come back behind it; nothing else is shared.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, Sender, channel},
};

use super::executor::Want;
use crate::sampling::Sampler;

/// A sampler, and the place in the step that it belongs to.
type Lent = (usize, Sampler);

/// The thread. It ends when this is dropped.
pub(crate) struct MaskThread {
    work: Sender<Lent>,
    done: Receiver<Lent>,
}

impl MaskThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub(crate) fn spawn() -> Result<Self, std::io::Error> {
        // Bounded by the rows of a step.
        let (work, received) = channel::<Lent>();
        let (finished, done) = channel();
        std::thread::Builder::new().name("masks".into()).spawn(move || {
            for (row, mut sampler) in received {
                // One that fails here fails again when it is asked for a token, and there its request is told.
                drop(catch_unwind(AssertUnwindSafe(|| sampler.prepare())));
                if finished.send((row, sampler)).is_err() {
                    return;
                }
            }
        })?;
        Ok(MaskThread { work, done })
    }

    /// Hands over the samplers whose next token takes work, and tells how many that are. Others cost nothing.
    #[must_use = "as many are to be taken back"]
    pub(crate) fn lend(&self, wants: &mut [Want]) -> usize {
        let mut away = 0;
        for (row, want) in wants.iter_mut().enumerate() {
            let Some(sampler) = want.sampler.take_if(|sampler| sampler.takes_work()) else { continue };
            match self.work.send((row, sampler)) {
                Ok(()) => away += 1,
                // Without the thread it is done when the token is drawn.
                Err(unsent) => want.sampler = Some(unsent.0.1),
            }
        }
        away
    }

    /// Waits for the samplers that were lent, and puts them where they were.
    pub(crate) fn take_back(&self, away: usize, wants: &mut [Want]) {
        for (row, sampler) in self.done.iter().take(away) {
            if let Some(want) = wants.get_mut(row) {
                want.sampler = Some(sampler);
            }
        }
    }
}
