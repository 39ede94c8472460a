//! The client's end of a running request.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bantam_grammar::Guide;
use tokio::sync::mpsc;

use super::{Event, Failure};

/// Set when nobody waits for a request any more; read between steps, wherever the request is.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Ends the thinking of a running request: at the next token its model begins to answer. Nothing happens where it does not
/// think.
#[derive(Clone, Debug, Default)]
pub struct StopThinking(Arc<AtomicBool>);

impl StopThinking {
    /// Ends it.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn of(guide: &Guide) -> Self {
        StopThinking(guide.stop_thinking())
    }
}

/// A running request. Yields events up to exactly one terminal one; dropping it cancels the request.
pub struct Generation {
    pub(crate) id: u64,
    pub(crate) prompt_tokens: usize,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) cancel: CancelFlag,
    pub(crate) on_drop: Box<dyn Fn(u64) + Send + Sync>,
    pub(crate) ended: bool,
    pub(crate) stop_thinking: StopThinking,
    pub(crate) prompt: Option<Arc<str>>,
}

impl Generation {
    /// Number of the request, unique in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ends the thinking of this request, whoever holds it.
    pub fn stop_thinking(&self) -> StopThinking {
        self.stop_thinking.clone()
    }

    /// The text of the prompt, if the request asked to keep it and it has one.
    pub fn prompt(&self) -> Option<Arc<str>> {
        self.prompt.clone()
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// The next event; `None` after the terminal one.
    pub async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().await.unwrap_or_else(|| {
            Event::Failed(Failure::Fault(
                "a fault of the runtime ended this request before its end; send it again".into(),
            ))
        });
        self.ended = matches!(event, Event::Finished(_) | Event::Failed(_));
        Some(event)
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generation({})", self.id)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.ended {
            self.cancel.set();
            (self.on_drop)(self.id);
        }
    }
}
