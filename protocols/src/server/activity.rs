//! What a connection is doing, so that one that rests can be closed where another needs its place.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;

/// A request is under way.
const BUSY: u64 = u64::MAX;
/// The connection is to end; nothing more is served on it.
const LET_GO: u64 = u64::MAX - 1;

/// What one connection is doing. Any other value of `state` is when it began to rest, in milliseconds after `opened`.
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    state: AtomicU64,
    told: Notify,
}

impl Activity {
    /// Of a connection on which nothing has come yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Activity { opened: Instant::now(), state: AtomicU64::new(0), told: Notify::new() })
    }

    /// Notes that a request begins, which it may not on a connection that was let go.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Busy> {
        let begun = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |s| (s != LET_GO).then_some(BUSY));
        begun.ok().map(|_| Busy(Arc::clone(self)))
    }

    /// How long it has rested; `None` where it does not.
    pub(super) fn resting(&self) -> Option<Duration> {
        let since = self.state.load(Ordering::Acquire);
        let since = (since < LET_GO).then(|| Duration::from_millis(since))?;
        Some(self.opened.elapsed().saturating_sub(since))
    }

    /// Lets it go, unless a request has come in the meantime.
    pub(super) fn let_go(&self) -> bool {
        let rests = |since| (since < LET_GO).then_some(LET_GO);
        let gone = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, rests).is_ok();
        if gone {
            self.told.notify_one();
        }
        gone
    }

    /// Waits until it is let go.
    pub(super) async fn told_to_go(&self) {
        self.told.notified().await;
    }
}

/// A request under way: dropping it lets the connection rest.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(LET_GO);
        self.0.state.store(now.min(LET_GO - 1), Ordering::Release);
    }
}

/// An answer's body, which keeps its connection busy until all of it is sent.
pub(super) struct Told {
    body: Body,
    _busy: Busy,
}

impl Told {
    pub(super) fn new(body: Body, busy: Busy) -> Self {
        Told { body, _busy: busy }
    }
}

impl HttpBody for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_that_rests_is_let_go() {
        let activity = Activity::new();
        assert!(activity.resting().is_some());
        let busy = activity.begin().unwrap();
        assert_eq!(activity.resting(), None);
        assert!(!activity.let_go());
        drop(busy);
        assert!(activity.resting().is_some_and(|rested| rested < Duration::from_secs(5)));
        assert!(activity.let_go());
        assert!(activity.begin().is_none(), "nothing begins on a connection that was let go");
        assert!(!activity.let_go() && activity.resting().is_none());
    }

    #[tokio::test]
    async fn the_word_to_go_is_kept_until_it_is_heard() {
        let activity = Activity::new();
        assert!(activity.let_go());
        activity.told_to_go().await;
    }
}
