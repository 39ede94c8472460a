//! Where the time of steps goes, for who asks in the environment: `BANTAM_PROFILE=1` prints a table when a program ends,
//! `BANTAM_TRACE=FILE` writes every region of every member as events that trace viewers of browsers read.
//!
//! Measured are regions, not ops: between two barriers members run freely. Bytes are those of weights, operations those of
//! matrix products; of experts at most those that the rows can have chosen.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter, Write as _},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use crate::{
    compile::{Plan, ir::Op},
    exec::frame::Frame,
    team::Member,
};

/// Rows of the table, at most.
const TABLE_ROWS: usize = 24;

/// What the environment asks for.
#[derive(Clone)]
pub(crate) struct Profiling {
    prints: bool,
    trace: Option<Arc<Mutex<BufWriter<File>>>>,
}

impl Profiling {
    /// `None` if nothing is asked for.
    ///
    /// # Errors
    /// A trace file that cannot be made.
    pub(crate) fn from_env() -> io::Result<Option<Self>> {
        let is_on = |value: &std::ffi::OsString| !value.is_empty() && value != "0";
        let prints = env::var_os("BANTAM_PROFILE").as_ref().is_some_and(is_on);
        let trace = match env::var_os("BANTAM_TRACE").filter(|file| !file.is_empty()).map(PathBuf::from) {
            Some(path) => {
                let named = |e| io::Error::other(format!("BANTAM_TRACE: {}: {e}", path.display()));
                let mut file = BufWriter::new(File::create(&path).map_err(named)?);
                file.write_all(b"[\n")?;
                Some(Arc::new(Mutex::new(file)))
            }
            None => None,
        };
        Ok((prints || trace.is_some()).then_some(Profiling { prints, trace }))
    }
}

/// When each member began and ended each region of the running step.
pub(crate) struct Marks {
    base: Instant,
    /// Nanoseconds since `base`: `[member][region][begin, end]`.
    times: Vec<[AtomicU64; 2]>,
    regions: usize,
    members: AtomicUsize,
}

impl Marks {
    fn new(members: usize, regions: usize) -> Self {
        let times = (0..members * regions).map(|_| Default::default()).collect();
        Marks { base: Instant::now(), times, regions, members: AtomicUsize::new(members) }
    }

    pub(crate) fn begin(&self, member: &Member<'_>, region: usize) {
        self.members.store(member.threads(), Ordering::Relaxed);
        self.mark(member, region, 0);
    }

    pub(crate) fn end(&self, member: &Member<'_>, region: usize) {
        self.mark(member, region, 1);
    }

    fn mark(&self, member: &Member<'_>, region: usize, side: usize) {
        if let Some(times) = self.times.get(member.index() * self.regions + region) {
            times[side].store(self.base.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Begin and end of a region, member by member.
    fn of(&self, region: usize) -> impl Iterator<Item = (u64, u64)> {
        let members = self.members.load(Ordering::Relaxed);
        let times = (0..members).filter_map(move |member| self.times.get(member * self.regions + region));
        times.map(|[begin, end]| (begin.load(Ordering::Relaxed), end.load(Ordering::Relaxed)))
    }
}

/// What a kind of region has taken.
#[derive(Default)]
struct Total {
    nanoseconds: u64,
    /// Of all members, waiting for the last one.
    waited: f64,
    bytes: u64,
    operations: u64,
}

/// Steps of one kind.
#[derive(Default)]
struct Phase {
    steps: u64,
    rows: u64,
    nanoseconds: u64,
    regions: BTreeMap<String, Total>,
}

/// The measurements of a program.
pub(crate) struct Profile {
    asked: Profiling,
    marks: Marks,
    /// Per graph and region.
    labels: Vec<Vec<String>>,
    decode: Phase,
    prefill: Phase,
}

impl Profile {
    pub(crate) fn new<'p>(asked: Profiling, members: usize, plans: impl Iterator<Item = &'p Plan>) -> Self {
        let labels: Vec<Vec<String>> = plans.map(labels).collect();
        let regions = labels.iter().map(Vec::len).max().unwrap_or(0);
        let (decode, prefill) = (Phase::default(), Phase::default());
        Profile { asked, marks: Marks::new(members, regions), labels, decode, prefill }
    }

    /// Where the members of the next step leave their times.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Counts the step that has run; `work` says bytes and operations of each region, see [`work`].
    pub(crate) fn add(&mut self, graph: usize, rows: usize, sequences: usize, work: &[(u64, u64)]) {
        let Profile { asked, marks, labels, decode, prefill } = self;
        let Some(labels) = labels.get(graph) else { return };
        let phase = if rows == sequences { decode } else { prefill };
        let (mut first, mut last) = (u64::MAX, 0);
        for (region, (label, (bytes, operations))) in labels.iter().zip(work).enumerate() {
            let begin = marks.of(region).map(|(begin, _)| begin).min().unwrap_or(0);
            let end = marks.of(region).map(|(_, end)| end).max().unwrap_or(0);
            let members = marks.of(region).count().max(1) as f64;
            let waited: u64 = marks.of(region).map(|(_, done)| end - done).sum();
            let total = phase.regions.entry(label.clone()).or_default();
            total.nanoseconds += end.saturating_sub(begin);
            total.waited += waited as f64 / members;
            total.bytes += bytes;
            total.operations += operations;
            (first, last) = (first.min(begin), last.max(end));
        }
        phase.steps += 1;
        phase.rows += rows as u64;
        phase.nanoseconds += last.saturating_sub(first);
        if let Some(trace) = &asked.trace {
            let mut file = trace.lock().unwrap_or_else(PoisonError::into_inner);
            // A trace that cannot be written any more is no reason to stop computing.
            let _ = write_trace(&mut file, marks, labels);
        }
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        if self.asked.prints {
            let _ = io::stderr().write_all((self.decode.table("decode") + &self.prefill.table("prefill")).as_bytes());
        }
    }
}

fn write_trace(file: &mut BufWriter<File>, marks: &Marks, labels: &[String]) -> io::Result<()> {
    for (region, label) in labels.iter().enumerate() {
        for (member, (begin, end)) in marks.of(region).enumerate() {
            let (at, duration) = (begin as f64 / 1e3, end.saturating_sub(begin) as f64 / 1e3);
            writeln!(
                file,
                r#"{{"name":"{label}","ph":"X","pid":1,"tid":{member},"ts":{at:.3},"dur":{duration:.3}}},"#
            )?;
        }
    }
    file.flush()
}

impl Phase {
    fn table(&self, name: &str) -> String {
        let mut out = String::new();
        if self.steps == 0 {
            return out;
        }
        let per_step = |nanoseconds: f64| nanoseconds / 1e6 / self.steps as f64;
        let mut regions: Vec<_> = self.regions.iter().collect();
        regions.sort_by_key(|(_, total)| std::cmp::Reverse(total.nanoseconds));
        let inside: u64 = self.regions.values().map(|total| total.nanoseconds).sum();
        let between = self.nanoseconds.saturating_sub(inside);
        let (steps, rows, ms) = (self.steps, self.rows as f64 / self.steps as f64, per_step(self.nanoseconds as f64));
        let _ = writeln!(out, "\n{name}: {steps} steps of {rows:.0} rows, {ms:.3} ms each");
        let _ = writeln!(out, "{:>7} {:>9} {:>7} {:>8} {:>8}  region", "share", "ms/step", "waits", "GB/s", "GOP/s");
        let share = |nanoseconds: u64| 100.0 * nanoseconds as f64 / self.nanoseconds.max(1) as f64;
        for (label, total) in regions.iter().take(TABLE_ROWS) {
            let rate = |amount: u64| match amount {
                0 => "--".to_owned(),
                _ => format!("{:.1}", amount as f64 / total.nanoseconds.max(1) as f64),
            };
            let (time, waits) =
                (per_step(total.nanoseconds as f64), 100.0 * total.waited / total.nanoseconds.max(1) as f64);
            let (bytes, operations) = (rate(total.bytes), rate(total.operations));
            let share = share(total.nanoseconds);
            let _ = writeln!(out, "{share:>6.1}% {time:>9.3} {waits:>6.1}% {bytes:>8} {operations:>8}  {label}");
        }
        let _ = writeln!(out, "{:>6.1}% {:>9.3} {:>33}", share(between), per_step(between as f64), "between regions");
        out
    }
}

/// What the regions of a plan compute, the same for the same part of every layer.
fn labels(plan: &Plan) -> Vec<String> {
    let nodes = &plan.schedule.nodes;
    let label = |node: usize| {
        let debug = format!("{:?}", nodes[node].op);
        let kind = debug.split([' ', '(', '{']).next().unwrap_or_default().to_lowercase();
        let name = nodes[node].results.first().map_or("", |value| plan.values[*value].name.as_str());
        let part = name.split('.').filter(|part| *part != "blk" && part.parse::<usize>().is_err());
        format!("{kind} {}", part.collect::<Vec<_>>().join(".")).trim_end().to_owned()
    };
    plan.schedule.regions.iter().map(|region| region.clone().map(label).collect::<Vec<_>>().join(", ")).collect()
}

/// Bytes of weights and operations of matrix products of each region of a step.
pub(crate) fn work(frame: &Frame<'_>) -> Vec<(u64, u64)> {
    let node = |index: usize| {
        let node = &frame.plan.schedule.nodes[index];
        let Some(result) = node.results.first() else { return (0, 0) };
        let entries = frame.rows(*result) * frame.width(*result);
        match node.op {
            Op::Linear { matrix, .. } if entries > 0 => {
                let matrix = &frame.weights.matrices[matrix];
                (matrix.bytes() as u64, 2 * (entries * matrix.cols()) as u64)
            }
            Op::Experts { matrix, .. } => {
                let matrix = &frame.weights.matrices[matrix];
                let chosen = frame.rows(*result).min(matrix.matrices());
                let bytes = matrix.bytes() / matrix.matrices().max(1) * chosen;
                (bytes as u64, 2 * (entries * matrix.cols()) as u64)
            }
            _ => (0, 0),
        }
    };
    let sum = |(a, b): (u64, u64), (c, d): (u64, u64)| (a + c, b + d);
    frame.plan.schedule.regions.iter().map(|region| region.clone().map(node).fold((0, 0), sum)).collect()
}
