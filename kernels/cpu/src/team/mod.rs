//! The worker team: threads that run one job together, in lock step.
//!
//! The calling thread is member 0; `n − 1` threads are the others. All run the same function, split the work by their
//! index, and meet at [`Member::barrier`]. A waiting thread spins; once it has waited long it yields its core, and then
//! parks: where other programs want the cores too, spinning would only keep the missing member from running. A team whose
//! cores are taken shrinks for a while ([`Size`]). An idle team is parked and uses no CPU.
//!
//! A panic in one member breaks the barrier: the others leave the job at their next barrier and [`Team::run`] returns
//! the message. The team itself stays usable.

mod size;

use std::{
    any::Any,
    cell::UnsafeCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{JoinHandle, Thread},
    time::{Duration, Instant},
};

use self::size::Size;
use crate::os::CoreWaits;

/// How long a worker spins for the next job before it offers its core to others.
const SPIN_BETWEEN_JOBS: Duration = Duration::from_micros(20);
/// How long it then goes on offering it before it parks. Between two steps tokens are chosen and sent, which takes less;
/// waking a parked thread may take as long again.
const OFFER_BETWEEN_JOBS: Duration = Duration::from_micros(500);
/// How long a member spins at a barrier before it offers its core to others.
const SPIN_AT_BARRIER: Duration = Duration::from_micros(50);
/// How often it does so before it parks.
const YIELDS: usize = 20;
/// Checks of the awaited value between two looks at the clock.
const SPINS_PER_LOOK: u32 = 64;

/// A team of threads; one job runs at a time.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a job: programs that share the team take turns.
    turn: Mutex<Size>,
}

/// A member panicked; this is what it said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a worker thread panicked: {0}")]
pub struct Panicked(pub String);

/// The job was given up because another member panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// One thread's place in a running job.
pub struct Member<'t> {
    shared: &'t Shared,
    index: usize,
    /// Members of the job.
    threads: usize,
}

type Job<'j> = dyn Fn(&Member<'_>) -> Result<(), Broken> + Sync + 'j;

/// A value with a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// A job's number and how many members it has, in one value that a worker reads at once.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Call {
    number: u32,
    members: u32,
}

impl Call {
    fn bits(self) -> u64 {
        (u64::from(self.number) << 32) | u64::from(self.members)
    }

    fn of(bits: u64) -> Self {
        Call { number: (bits >> 32) as u32, members: bits as u32 }
    }

    fn is_for(self, index: usize) -> bool {
        index < self.members as usize
    }
}

struct Shared {
    /// Most members of a job.
    threads: usize,
    /// The [`Call`] of the running or last job; a change is the signal to start.
    call: Line<AtomicU64>,
    /// The running job. Written before `call` changes, read after it, valid until all it is for have `finished`.
    job: UnsafeCell<Option<*const Job<'static>>>,
    /// Workers that are done with the job.
    finished: Line<AtomicUsize>,
    /// Members that stand at the barrier.
    arrived: Line<AtomicUsize>,
    /// Counts barriers passed.
    phase: Line<AtomicU32>,
    /// How long the job's workers waited for a core, in nanoseconds, as far as the system tells.
    waited: AtomicU64,
    broken: AtomicBool,
    stop: AtomicBool,
    /// Per member, whether it is parked or about to park.
    parked: Vec<AtomicBool>,
    /// The thread that runs the job, to be woken when it waits.
    caller: UnsafeCell<Option<Thread>>,
    /// The workers' threads.
    workers: OnceLock<Vec<Thread>>,
    message: Mutex<Option<String>>,
}

// SAFETY: `job` and `caller` are written by the thread that holds `turn` while no worker runs a job, and read by those
// workers that a job is for, only between seeing `call` change and counting themselves as finished. All else is atomic or locked.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in `job` points to a `Sync` function.
unsafe impl Send for Shared {}

impl Team {
    /// Starts a team of `threads` members, the later callers of [`Team::run`] included; 0 means one per physical core
    /// that this process may use.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let threads = if threads == 0 { crate::os::physical_cores() } else { threads };
        Self::of_size(threads, Size::new(threads))
    }

    fn of_size(threads: usize, size: Size) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            threads,
            call: Line::default(),
            job: UnsafeCell::new(None),
            finished: Line::default(),
            arrived: Line::default(),
            phase: Line::default(),
            waited: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parked: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            caller: UnsafeCell::new(None),
            workers: OnceLock::new(),
            message: Mutex::new(None),
        });
        let mut team = Team { shared, workers: Vec::new(), turn: Mutex::new(size) };
        for index in 1..threads {
            let shared = Arc::clone(&team.shared);
            let worker = std::thread::Builder::new().name(format!("cpu-{index}"));
            team.workers.push(worker.spawn(move || serve(&shared, index))?);
        }
        team.shared.workers.get_or_init(|| team.workers.iter().map(|w| w.thread().clone()).collect());
        Ok(team)
    }

    /// Most members of a job, the caller included.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs `job` on its members, all of the team's unless other programs want the cores, and returns when all are done.
    /// Every member must pass the same barriers.
    ///
    /// # Errors
    /// If a member panicked; the others have left the job then.
    pub fn run(&self, job: impl Fn(&Member<'_>) -> Result<(), Broken> + Sync) -> Result<(), Panicked> {
        let mut size = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (members, begin) = (size.now(), Instant::now());
        self.start(&job, members);
        work(&self.shared, 0, members, &job);
        self.shared.wait(0, || self.shared.finished.0.load(Ordering::SeqCst) == members - 1);
        let waited = Duration::from_nanos(self.shared.waited.load(Ordering::Relaxed));
        let end = Instant::now();
        size.learn(end - begin, waited, end);
        self.end()
    }

    fn start(&self, job: &Job<'_>, members: usize) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. `run` returns only after every worker has finished with the pointer.
        let job = unsafe { std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job) };
        // SAFETY: `turn` is held and all workers wait for `call` to change, so nobody reads these cells now.
        unsafe {
            *shared.job.get() = Some(job);
            *shared.caller.get() = Some(std::thread::current());
        }
        shared.finished.0.store(0, Ordering::Relaxed);
        shared.waited.store(0, Ordering::Relaxed);
        let last = Call::of(shared.call.0.load(Ordering::Relaxed));
        let call = Call { number: last.number.wrapping_add(1), members: u32::try_from(members).unwrap_or(u32::MAX) };
        shared.call.0.store(call.bits(), Ordering::SeqCst);
        shared.wake_workers(0, members);
    }

    fn end(&self) -> Result<(), Panicked> {
        let shared = &*self.shared;
        if !shared.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        shared.arrived.0.store(0, Ordering::Relaxed);
        shared.broken.store(false, Ordering::Relaxed);
        let message = shared.message.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(Panicked(message.unwrap_or_default()))
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches its job's panics, so its own end is never one.
            let _ = worker.join();
        }
    }
}

impl Member<'_> {
    /// Which member this is: `0..threads`.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Members of this job.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Waits until all members are here. What they wrote before is visible after.
    ///
    /// # Errors
    /// If another member panicked: leave the job.
    pub fn barrier(&self) -> Result<(), Broken> {
        let shared = self.shared;
        let phase = shared.phase.0.load(Ordering::Relaxed);
        if shared.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            shared.arrived.0.store(0, Ordering::Relaxed);
            shared.phase.0.store(phase.wrapping_add(1), Ordering::SeqCst);
            shared.wake(self.index, self.threads);
            return Ok(());
        }
        let passed = || shared.phase.0.load(Ordering::SeqCst) != phase;
        shared.wait(self.index, || passed() || shared.broken.load(Ordering::SeqCst));
        if passed() { Ok(()) } else { Err(Broken) }
    }

    /// This member's share of `items`, in whole multiples of `grain`: as even as that allows, in order.
    pub fn share(&self, items: usize, grain: usize) -> std::ops::Range<usize> {
        share(items, grain, self.index, self.threads)
    }
}

impl Shared {
    /// Waits until `done`: spinning first, then giving the core to other threads, then parked. Whoever makes `done` true
    /// must wake the member after.
    fn wait(&self, index: usize, done: impl Fn() -> bool) {
        if spin(SPIN_AT_BARRIER, &done) {
            return;
        }
        for _ in 0..YIELDS {
            std::thread::yield_now();
            if done() {
                return;
            }
        }
        self.park(index, done);
    }

    /// Parks until `done`. Sequential consistency here and in `wake` means that the one who makes `done` true sees that
    /// this member is parked, or this member sees that `done` is true.
    fn park(&self, index: usize, done: impl Fn() -> bool) {
        self.parked[index].store(true, Ordering::SeqCst);
        while !done() {
            std::thread::park();
        }
        self.parked[index].store(false, Ordering::SeqCst);
    }

    /// Wakes all of a job's members but `except`, from within it.
    fn wake(&self, except: usize, members: usize) {
        if except != 0 && self.parked[0].load(Ordering::SeqCst) {
            // SAFETY: a job runs, so the caller has written this and does not change it.
            if let Some(caller) = unsafe { &*self.caller.get() } {
                caller.unpark();
            }
        }
        self.wake_workers(except, members);
    }

    fn wake_workers(&self, except: usize, members: usize) {
        for (i, worker) in (1..members).zip(self.workers.get().into_iter().flatten()) {
            if i != except && self.parked[i].load(Ordering::SeqCst) {
                worker.unpark();
            }
        }
    }
}

/// Part `index` of `0..items` cut into `parts` on multiples of `grain`.
pub(crate) fn share(items: usize, grain: usize, index: usize, parts: usize) -> std::ops::Range<usize> {
    let grains = items.div_ceil(grain);
    let bound = |i: usize| (grains * i / parts * grain).min(items);
    bound(index)..bound(index + 1)
}

/// A worker's life: wait for a job, do it, say so.
fn serve(shared: &Shared, index: usize) {
    let mut seen = Call { number: 0, members: 0 };
    let mut waits = CoreWaits::of_this_thread();
    while let Some(call) = next_job(shared, index, seen) {
        seen = call;
        // SAFETY: `call` has changed and is for this worker, so the job was written before and stays valid until this
        // worker counts itself as finished.
        if let Some(job) = unsafe { *shared.job.get() } {
            // SAFETY: as above.
            work(shared, index, call.members as usize, unsafe { &*job });
        }
        // SAFETY: the caller waits for this worker to finish, so its handle does not change.
        let caller = unsafe { (*shared.caller.get()).clone() };
        shared.waited.fetch_add(waits.since_last(), Ordering::Relaxed);
        shared.finished.0.fetch_add(1, Ordering::SeqCst);
        if shared.parked[0].load(Ordering::SeqCst)
            && let Some(caller) = caller
        {
            caller.unpark();
        }
    }
}

/// Waits for the next job after `seen` that is for this worker; `None` when the team ends.
fn next_job(shared: &Shared, index: usize, seen: Call) -> Option<Call> {
    let called =
        || Some(Call::of(shared.call.0.load(Ordering::SeqCst))).filter(|call| *call != seen && call.is_for(index));
    let ready = || called().is_some() || shared.stop.load(Ordering::SeqCst);
    if !spin(SPIN_BETWEEN_JOBS, ready) && !offer(OFFER_BETWEEN_JOBS, ready) {
        shared.park(index, ready);
    }
    called()
}

/// One member's part of a job. A panic ends the job for all.
fn work(shared: &Shared, index: usize, members: usize, job: &Job<'_>) {
    let member = Member { shared, index, threads: members };
    // The job's own data may be left half-written: whoever ran it is told, and must not use it again.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&member))) {
        let mut message = shared.message.lock().unwrap_or_else(PoisonError::into_inner);
        message.get_or_insert_with(|| describe(&*panic));
        shared.broken.store(true, Ordering::SeqCst);
        shared.wake(index, members);
    }
}

fn describe(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Spins until `done`, for at most `limit`; says whether it is.
fn spin(limit: Duration, done: impl Fn() -> bool) -> bool {
    let mut begin = None;
    loop {
        for _ in 0..SPINS_PER_LOOK {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if begin.get_or_insert_with(Instant::now).elapsed() > limit {
            return false;
        }
    }
}

/// Lets other threads have the core until `done`, for at most `limit`; says whether it is.
fn offer(limit: Duration, done: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        std::thread::yield_now();
        if done() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A team that never shrinks: whether other tests run beside these must not matter.
    fn rigid(threads: usize) -> Team {
        Team::of_size(threads, Size::fixed(threads)).unwrap()
    }

    fn counts(team: &Team, rounds: usize) -> Vec<usize> {
        let cells: Vec<AtomicUsize> = (0..rounds).map(|_| AtomicUsize::new(0)).collect();
        let threads = team.threads();
        team.run(|m| {
            for (i, cell) in cells.iter().enumerate() {
                cell.fetch_add(1, Ordering::Relaxed);
                m.barrier()?;
                assert_eq!(cell.load(Ordering::Relaxed), threads, "round {i}: somebody passed the barrier early");
            }
            Ok(())
        })
        .unwrap();
        cells.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn members_meet_at_barriers_even_with_more_threads_than_cores() {
        for threads in [1, 2, 3, 8] {
            let team = rigid(threads);
            assert_eq!(counts(&team, 200), vec![threads; 200]);
        }
    }

    #[test]
    fn jobs_start_after_the_team_has_parked() {
        let team = rigid(2);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(counts(&team, 1), [2]);
        }
    }

    #[test]
    fn a_panic_in_any_member_ends_the_job_and_the_team_lives_on() {
        let team = rigid(3);
        for culprit in 0..3 {
            let error = team.run(|m| {
                m.barrier()?;
                assert_ne!(m.index(), culprit, "by member {culprit}");
                m.barrier()?;
                m.barrier()
            });
            assert!(error.unwrap_err().0.contains(&format!("by member {culprit}")));
            assert_eq!(counts(&team, 10), [3; 10]);
        }
    }

    #[test]
    fn an_idle_team_parks() {
        let team = rigid(2);
        counts(&team, 1);
        std::thread::sleep(Duration::from_millis(20));
        assert!(team.shared.parked[1..].iter().all(|p| p.load(Ordering::SeqCst)));
    }

    #[test]
    fn shares_cover_everything_once() {
        for (items, grain, parts) in [(0, 1, 3), (1, 16, 2), (100, 16, 3), (7, 1, 8), (64, 64, 2), (1000, 7, 5)] {
            let mut next = 0;
            for i in 0..parts {
                let part = share(items, grain, i, parts);
                assert_eq!(part.start, next.min(items));
                assert!(part.start.is_multiple_of(grain) || part.is_empty());
                next = part.end;
            }
            assert_eq!(next, items);
        }
    }
}
