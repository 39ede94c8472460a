//! The events of a response, kept beside it: whoever has lost its stream goes on from the last event that came.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use serde_json::json;
use tokio::sync::watch;

use crate::answer::Frame;

/// What one event takes beside its text.
const OVERHEAD: usize = size_of::<Frame>();

/// The events that a response has told so far, each at the place of its `sequence_number`.
#[derive(Debug)]
pub(super) struct Events {
    told: Mutex<Vec<Frame>>,
    /// Whether nothing more comes; touched with each event.
    ended: watch::Sender<bool>,
}

impl Default for Events {
    fn default() -> Self {
        Events { told: Mutex::default(), ended: watch::Sender::new(false) }
    }
}

impl Events {
    /// Adds the next one.
    pub(super) fn push(&self, event: Frame) {
        self.lock().push(event);
        self.ended.send_modify(|_| {});
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Nothing more comes, although the response has not ended: who asked for it has gone.
    pub(super) fn break_off(&self) {
        if *self.ended.borrow() {
            return;
        }
        let number = self.lock().len();
        let about = json!({
            "type": "error", "sequence_number": number, "code": "server_error", "param": null,
            "message": "The response was broken off by the client that asked for it",
        });
        self.push(Frame::Event("error", about.to_string()));
        self.end();
    }

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        let size = |frame: &Frame| match frame {
            Frame::Data(data) | Frame::Event(_, data) => OVERHEAD + data.len(),
            Frame::Comment(_) => OVERHEAD,
        };
        self.lock().iter().map(size).sum()
    }

    /// The events from number `next` on, as they come. While nothing happens something goes out every `keepalive`.
    pub(super) fn follow(events: Arc<Self>, mut next: usize, keepalive: Duration) -> impl Stream<Item = Frame> + Send {
        async_stream::stream! {
            let mut changed = events.ended.subscribe();
            loop {
                // Seen before what has been told, so that nothing is told behind the end.
                let ended = *changed.borrow_and_update();
                let more = events.lock().get(next..).unwrap_or_default().to_vec();
                next += more.len();
                for frame in more {
                    yield frame;
                }
                if ended {
                    return;
                }
                if tokio::time::timeout(keepalive, changed.changed()).await.is_err() {
                    yield Frame::Comment("ping");
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Frame>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::StreamExt;

    use super::*;

    fn event(data: &str) -> Frame {
        Frame::Event("x", data.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn who_follows_gets_all_from_where_it_begins_and_signs_of_life() {
        let events = Arc::new(Events::default());
        events.push(event("0"));
        events.push(event("1"));
        let mut followed = pin!(Events::follow(Arc::clone(&events), 1, Duration::from_secs(5)));
        assert_eq!(followed.next().await, Some(event("1")));
        assert_eq!(followed.next().await, Some(Frame::Comment("ping")));
        events.push(event("2"));
        events.end();
        assert_eq!(followed.next().await, Some(event("2")));
        assert_eq!(followed.next().await, None);
        assert_eq!(Events::follow(Arc::clone(&events), 9, Duration::from_secs(5)).count().await, 0);
        assert_eq!(events.bytes(), 3 * (OVERHEAD + 1));
    }

    #[tokio::test]
    async fn one_that_is_broken_off_ends_with_an_error() {
        let events = Arc::new(Events::default());
        events.push(event("0"));
        events.break_off();
        events.break_off();
        let told: Vec<Frame> = Events::follow(events, 0, Duration::from_secs(5)).collect().await;
        let [_, Frame::Event("error", data)] = told.as_slice() else { panic!("{told:?}") };
        assert!(data.contains("\"sequence_number\":1"), "{data}");
    }
}
