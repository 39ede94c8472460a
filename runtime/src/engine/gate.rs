//! The admission gate: bounds the requests that are here at once, and tells the others when to come back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Refusal;

/// When to come back while no request has left yet.
const UNKNOWN: Duration = Duration::from_secs(2);
/// Seconds that may be told.
const SOONEST_S: u64 = 1;
const LATEST_S: u64 = 60;
/// The last stay's part of the mean: one in so many.
const STAYS: i64 = 8;

/// The one admission gate: everything behind it may assume that it was admitted.
#[derive(Debug)]
pub(crate) struct Gate {
    places: Arc<Semaphore>,
    limit: usize,
    /// Requests that are computed at once; the others are in the queue.
    parallel: usize,
    /// Mean time that requests stayed lately, in microseconds; 0: none has left yet.
    stay: AtomicU64,
}

/// A request's place behind the gate, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    since: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Gate {
    pub(super) fn new(limit: usize, parallel: usize) -> Arc<Self> {
        Arc::new(Gate { places: Arc::new(Semaphore::new(limit)), limit, parallel, stay: AtomicU64::new(0) })
    }

    /// Takes a place if there is one.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Place, Refusal> {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => Ok(Place { gate: Arc::clone(self), since: Instant::now(), _permit: permit }),
            Err(_) => Err(Refusal::Busy { limit: self.limit, retry_after_s: self.retry_after_s() }),
        }
    }

    /// Waits until nobody is behind it; nobody comes in meanwhile.
    pub(super) async fn emptied(&self) {
        let all = u32::try_from(self.limit).unwrap_or(u32::MAX);
        // It is closed only after this.
        drop(self.places.acquire_many(all).await);
    }

    /// Lets nobody in any more.
    pub(super) fn close(&self) {
        self.places.close();
    }

    /// How long a request is in the queue when the gate is full. Requests stay for a mean time, and of all places those of
    /// the queue are a part: so is the time in the queue of the whole stay. Without a queue it is the time until one leaves.
    fn retry_after_s(&self) -> u64 {
        let stay = match self.stay.load(Ordering::Relaxed) {
            0 => return UNKNOWN.as_secs(),
            micros => Duration::from_micros(micros).as_secs_f64(),
        };
        let queued = self.limit.saturating_sub(self.parallel).max(1);
        let wait = stay * queued as f64 / self.limit.max(1) as f64;
        (wait.ceil() as u64).clamp(SOONEST_S, LATEST_S)
    }

    fn left(&self, stay: Duration) {
        let last = i64::try_from(stay.as_micros()).unwrap_or(i64::MAX).max(1);
        let mean = |before: u64| match i64::try_from(before).unwrap_or(i64::MAX) {
            0 => Some(last.unsigned_abs()),
            mean => Some((mean + (last - mean) / STAYS).max(1).unsigned_abs()),
        };
        // The closure always has a value, so this does not fail.
        let _ = self.stay.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mean);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.left(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(gate: &Arc<Gate>) -> u64 {
        let all: Vec<_> = std::iter::from_fn(|| gate.admit().ok()).collect();
        let Err(Refusal::Busy { limit, retry_after_s }) = gate.admit() else { panic!("it is full") };
        assert_eq!(limit, all.len());
        // What is measured here must not count.
        let stay = gate.stay.load(Ordering::Relaxed);
        drop(all);
        gate.stay.store(stay, Ordering::Relaxed);
        retry_after_s
    }

    #[test]
    fn who_is_refused_is_told_how_long_the_queue_takes() {
        let gate = Gate::new(8, 2);
        assert_eq!(told(&gate), 2, "nothing is known yet");
        gate.left(Duration::from_secs(16));
        assert_eq!(told(&gate), 12, "of the stay, six places of eight are in the queue");
        (0..60).for_each(|_| gate.left(Duration::from_millis(1)));
        assert_eq!(told(&gate), 1, "what was long ago does not count");
        (0..60).for_each(|_| gate.left(Duration::from_secs(3600)));
        assert_eq!(told(&gate), 60);
    }

    #[test]
    fn without_a_queue_the_next_to_leave_makes_room() {
        let gate = Gate::new(4, 4);
        gate.left(Duration::from_secs(20));
        assert_eq!(told(&gate), 5);
        let wide = Gate::new(4, 100);
        wide.left(Duration::from_secs(20));
        assert_eq!(told(&wide), 5);
    }

    #[test]
    fn a_place_is_free_again_when_its_holder_is_gone() {
        let gate = Gate::new(1, 1);
        let place = gate.admit().unwrap();
        assert!(gate.admit().is_err());
        drop(place);
        assert!(gate.admit().is_ok());
    }

    #[tokio::test]
    async fn it_is_empty_when_the_last_has_left() {
        let gate = Gate::new(3, 1);
        let place = gate.admit().unwrap();
        let emptied = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.emptied().await }
        });
        tokio::task::yield_now().await;
        assert!(!emptied.is_finished());
        drop(place);
        emptied.await.unwrap();
        gate.close();
        assert!(gate.admit().is_err());
    }
}
