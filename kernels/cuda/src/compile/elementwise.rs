//! Ops entry by entry, and views of rows.

use bantam_graph::{Act, Affine, Concat, Glu, GluLimit, Slice};

use super::{Compiling, Fit, Task, ir::ValueId, narrow};
use crate::{
    device::{Address, Kernel, Launch},
    exec::Running,
};

const FILE: &str = "elementwise.cu";

/// Threads of a block: enough to hide latency, few enough for many blocks.
const THREADS: u32 = 256;

/// A launch with a thread for each of so many entries.
pub(super) fn each(entries: usize) -> Launch {
    Launch::new([narrow(entries.div_ceil(THREADS as usize)), 1, 1], THREADS)
}

pub(super) fn act_code(act: Act) -> u32 {
    match act {
        Act::Silu => 0,
        Act::GeluTanh => 1,
        Act::Sigmoid => 2,
        Act::Softplus => 3,
        Act::ReluSquared => 4,
        Act::SignedSqrt => 5,
    }
}

/// The kernel's code of a bound, and the bound.
pub(super) fn limit_code(limit: Option<GluLimit>) -> (u32, f32) {
    match limit {
        None => (0, 0.0),
        Some(GluLimit::BeforeAct(limit)) => (1, limit),
        Some(GluLimit::AfterAct(limit)) => (2, limit),
    }
}

impl Compiling<'_> {
    /// A task with a thread for each entry of the result.
    fn entrywise(
        &self,
        kernel: &str,
        out: ValueId,
        arguments: impl Fn(&Running<'_>, Launch, u64) -> Launch + Send + Sync + 'static,
    ) -> Fit<Task> {
        let (kernel, width) = (self.kernel(FILE, kernel)?, self.width(out));
        Ok(Box::new(move |run| {
            let entries = run.rows(out) * width;
            run.launch(kernel, &arguments(run, each(entries), entries as u64))
        }))
    }

    pub(super) fn activate(&self, x: &str, act: Act, out: ValueId) -> Fit<Task> {
        let x = self.id(x)?;
        self.entrywise("activate", out, move |run, launch, entries| {
            launch.arg(run.at(x)).arg(run.at(out)).arg(entries).arg(act_code(act))
        })
    }

    pub(super) fn glu(&self, o: &Glu, out: ValueId) -> Fit<Task> {
        let (gate, up, width, act) = (self.id(&o.gate)?, self.id(&o.up)?, narrow(self.width(out)), act_code(o.act));
        let (limit, bound) = limit_code(o.limit);
        self.entrywise("glu", out, move |run, launch, entries| {
            let launch = launch.arg(run.at(gate)).arg(run.at(up)).arg(run.at(out)).arg(entries);
            launch.arg(width).arg(width).arg(act).arg(limit).arg(bound)
        })
    }

    pub(super) fn add(&self, a: &str, b: &str, out: ValueId) -> Fit<Task> {
        let (a, b) = (self.id(a)?, self.id(b)?);
        self.entrywise("add", out, move |run, launch, entries| {
            launch.arg(run.at(a)).arg(run.at(b)).arg(run.at(out)).arg(entries)
        })
    }

    pub(super) fn mul(&self, a: &str, b: &str, out: ValueId) -> Fit<Task> {
        let (a, b) = (self.id(a)?, self.id(b)?);
        let (width, few) = (narrow(self.width(a)), narrow(self.width(b)));
        self.entrywise("mul", out, move |run, launch, entries| {
            launch.arg(run.at(a)).arg(run.at(b)).arg(run.at(out)).arg(entries).arg(width).arg(few)
        })
    }

    pub(super) fn scale(&self, x: &str, factor: f32, offset: f32, out: ValueId) -> Fit<Task> {
        let x = self.id(x)?;
        self.entrywise("scale", out, move |run, launch, entries| {
            launch.arg(run.at(x)).arg(run.at(out)).arg(entries).arg(factor).arg(offset)
        })
    }

    pub(super) fn softcap(&self, x: &str, cap: f32, out: ValueId) -> Fit<Task> {
        let x = self.id(x)?;
        self.entrywise("softcap", out, move |run, launch, entries| {
            launch.arg(run.at(x)).arg(run.at(out)).arg(entries).arg(cap)
        })
    }

    pub(super) fn affine(&self, o: &Affine, out: ValueId) -> Fit<Task> {
        let (x, width) = (self.id(&o.x)?, narrow(self.width(out)));
        let [(scale, scales), (bias, biases)] = [self.optional_vector(&o.scale)?, self.optional_vector(&o.bias)?]
            .map(|v| v.map_or((0, 1), |v| (v.0, narrow(v.1))));
        self.entrywise("affine", out, move |run, launch, entries| {
            let launch = launch.arg(run.at(x)).arg(run.at(out)).arg(entries).arg(width);
            launch.arg(scale).arg(scales).arg(bias).arg(biases)
        })
    }

    pub(super) fn dot(&self, a: &str, b: &str, groups: usize, out: ValueId) -> Fit<Task> {
        let (a, b, kernel) = (self.id(a)?, self.id(b)?, self.kernel(FILE, "dot")?);
        let run_len = narrow(self.width(a) / groups);
        Ok(Box::new(move |run| {
            let runs = run.rows(out) * groups;
            let launch = each(runs * 32).arg(run.at(a)).arg(run.at(b)).arg(run.at(out));
            run.launch(kernel, &launch.arg(runs as u64).arg(run_len))
        }))
    }

    pub(super) fn slice(&self, o: &Slice, out: ValueId) -> Fit<Task> {
        let (x, kernel) = (self.id(&o.x)?, self.kernel(FILE, "copy_runs")?);
        let runs = Runs { len: o.len, from: (o.start, self.width(x) / o.groups), to: (0, o.len), groups: o.groups };
        Ok(Box::new(move |run| runs.copy(run, kernel, run.at(x), out)))
    }

    pub(super) fn concat(&self, o: &Concat, out: ValueId) -> Fit<Task> {
        let kernel = self.kernel(FILE, "copy_runs")?;
        let step = self.width(out) / o.groups;
        let (mut parts, mut start) = (Vec::new(), 0);
        for part in &o.parts {
            let x = self.id(part)?;
            let len = self.width(x) / o.groups;
            parts.push((x, Runs { len, from: (0, len), to: (start, step), groups: o.groups }));
            start += len;
        }
        Ok(Box::new(move |run| parts.iter().try_for_each(|(x, runs)| runs.copy(run, kernel, run.at(*x), out))))
    }

    /// The rows that the result's space holds.
    pub(super) fn select(&mut self, x: &str, out: ValueId) -> Fit<Task> {
        let (x, width, kernel) = (self.id(x)?, self.width(out), self.kernel(FILE, "gather_rows")?);
        if let Some(origin) = self.origins.get(&x).copied() {
            self.origins.insert(out, origin);
        }
        Ok(Box::new(move |run| {
            let words = run.rows(out) * width;
            let launch = each(words).arg(run.at(x)).arg(run.at(out)).arg(run.logit_rows());
            run.launch(kernel, &launch.arg(words as u64).arg(narrow(width)))
        }))
    }
}

/// Equal runs of words that are copied: `(start, step)` of where they are and of where they go, in words.
struct Runs {
    len: usize,
    from: (usize, usize),
    to: (usize, usize),
    groups: usize,
}

impl Runs {
    fn copy(&self, run: &Running<'_>, kernel: Kernel, from: Address, out: ValueId) -> Result<(), crate::DeviceError> {
        let words = run.rows(out) * self.groups * self.len;
        let launch = each(words).arg(from).arg(run.at(out)).arg(words as u64).arg(narrow(self.len));
        let launch = launch.arg(narrow(self.from.0)).arg(narrow(self.from.1));
        run.launch(kernel, &launch.arg(narrow(self.to.0)).arg(narrow(self.to.1)))
    }
}
