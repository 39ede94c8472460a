//! How many members a team sends into its next job.
//!
//! Members work in lock step, so one that waits for a core holds up all others, and at every barrier anew: where other
//! programs want the cores too, fewer members are faster. Results do not depend on their number, so it may change from
//! job to job.

use std::time::{Duration, Instant};

/// Work that must be done before the cores are judged.
const WINDOW: Duration = Duration::from_millis(5);
/// Members that wait for a core for more than this share of their time hold up the others more than they help, even in a
/// team of two.
const TOLERATED: f64 = 0.25;
/// How long a smaller team stays as it is before a larger one is tried, the first time and at most.
const HOLD: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The size of a team that shrinks while its cores are taken.
pub(super) struct Size {
    /// Most members.
    full: usize,
    /// Members of the next job.
    now: usize,
    /// Share of their time that members may wait for a core.
    tolerated: f64,
    /// What the members of the running window did and waited, together.
    worked: Duration,
    waited: Duration,
    /// How long the next smaller team is kept, doubled each time that it is found right again.
    hold: Duration,
    /// When a larger team may be tried.
    next_try: Option<Instant>,
}

impl Size {
    pub(super) fn new(full: usize) -> Self {
        Size {
            full,
            now: full,
            tolerated: TOLERATED,
            worked: Duration::ZERO,
            waited: Duration::ZERO,
            hold: HOLD.0,
            next_try: None,
        }
    }

    /// One that never changes.
    #[cfg(test)]
    pub(super) fn fixed(full: usize) -> Self {
        let mut size = Self::new(full);
        size.tolerated = f64::INFINITY;
        size
    }

    /// Members of the next job.
    pub(super) fn now(&self) -> usize {
        self.now
    }

    /// Learns that a job took `worked`, and how long the members other than its caller waited for a core, together.
    pub(super) fn learn(&mut self, worked: Duration, waited: Duration, now: Instant) {
        let others = u32::try_from(self.now - 1).unwrap_or(u32::MAX);
        self.worked += worked;
        self.waited += waited.checked_div(others).unwrap_or_default();
        if self.worked < WINDOW {
            return;
        }
        let crowded = self.waited.as_secs_f64() > self.tolerated * self.worked.as_secs_f64();
        (self.worked, self.waited) = (Duration::ZERO, Duration::ZERO);
        let step = (self.now / 4).max(1);
        if crowded {
            self.now = self.now.saturating_sub(step).max(1);
            self.next_try = Some(now + self.hold);
            self.hold = (2 * self.hold).min(HOLD.1);
        } else if self.now == self.full {
            self.hold = HOLD.0;
        } else if self.next_try.is_none_or(|at| now >= at) {
            self.now = (self.now + step).min(self.full);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Duration = Duration::from_millis(10);

    /// Runs jobs from `start` on for a while on cores of which `taken` say how many others use; returns all sizes.
    fn sizes(size: &mut Size, clock: &mut Instant, jobs: usize, taken: usize) -> Vec<usize> {
        let cores = size.full;
        (0..jobs)
            .map(|_| {
                let now = size.now();
                let crowding = now.saturating_sub(cores - taken).min(now - 1) as u32;
                *clock += JOB;
                size.learn(JOB, crowding * JOB / 2, *clock);
                now
            })
            .collect()
    }

    #[test]
    fn a_team_keeps_its_size_while_the_cores_are_free() {
        for full in [1, 2, 7] {
            let mut size = Size::new(full);
            assert_eq!(sizes(&mut size, &mut Instant::now(), 100, 0), vec![full; 100]);
        }
    }

    #[test]
    fn it_leaves_cores_that_are_taken_and_takes_them_back() {
        for (full, taken) in [(2, 1), (8, 4), (16, 12)] {
            let (mut size, mut clock) = (Size::new(full), Instant::now());
            let crowded = sizes(&mut size, &mut clock, 2000, taken);
            let rarely_large = crowded[1000..].iter().filter(|&&now| now > full - taken / 2).count();
            assert!(rarely_large <= 20, "{full} {taken}: {rarely_large} of 1000");
            assert!(crowded.iter().all(|&now| now >= 1));
            let free = sizes(&mut size, &mut clock, 1000, 0);
            assert!(free[500..].iter().all(|&now| now == full), "{full} {taken}: {free:?}");
        }
    }

    #[test]
    fn short_jobs_are_judged_together() {
        let (mut size, clock) = (Size::new(2), Instant::now());
        for _ in 0..49 {
            size.learn(Duration::from_micros(100), Duration::from_micros(100), clock);
            assert_eq!(size.now(), 2);
        }
        size.learn(Duration::from_micros(100), Duration::from_micros(100), clock);
        assert_eq!(size.now(), 1);
    }
}
