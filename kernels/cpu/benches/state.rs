//! How fast the operations are that read a sequence's state: attention over a cache of keys and values, and recurrences.
//!
//! `cargo bench -p bantam-cpu --bench state`; the environment's `THREADS` says with how many threads, `ONLY` which operations:
//! those whose names contain it. The state's bytes that a step reads in a second stand beside the machine's reading of memory,
//! its operations beside the machine's peak of `f32` arithmetic, both measured right before. All figures are those of the best
//! sample. At the end, sequences that begin with the same pages are set beside sequences of the same lengths that do not.

#![allow(clippy::print_stdout, reason = "its result")]

use std::{
    error::Error,
    time::{Duration, Instant},
};

use bantam_backend::{
    Backend, CompileOptions, KvType, NO_SLOT, PageCopy, Program, RecurrentStep, SequenceStep, SharedBytes, Step,
    WeightData, WeightError, WeightSource,
};
use bantam_cpu::{CpuBackend, isa::Isa, linear::machine};
use bantam_gguf::GgmlType;
use bantam_graph::{
    Attention, DeltaRule, Graph, GraphBuilder, InputSource, ShortConv, Ssm, State, StateKind, StateType, Weight,
};

/// Times that a graph has its operation, each time with a state of its own: no cache holds all states.
const LAYERS: usize = 16;
/// Tokens that the operands are rows of.
const VOCAB: usize = 64;
/// Most rows of a step.
const MAX_ROWS: usize = 512;
/// How long each figure is sampled, and how often at least.
const SAMPLED: (Duration, usize) = (Duration::from_millis(500), 4);

/// An operation with its sizes.
#[derive(Clone, Copy)]
enum Case {
    /// Grouped queries over keys and values of a type.
    Attention { heads: usize, kv_heads: usize, dim: usize, kv: KvType },
    /// A gated delta rule with one decay per head.
    Delta { key_heads: usize, heads: usize, dim: usize },
    /// A state-space scan.
    Scan { heads: usize, dim: usize, groups: usize, size: usize },
    /// A short convolution.
    Convolution { width: usize, taps: usize },
}

/// Rows of a step, and tokens before it.
const ATTENTION_STEPS: [(usize, usize); 4] = [(1, 8191), (8, 8184), (512, 0), (512, 7680)];
/// Sequences with one row each in a step, tokens that they begin with in common, and tokens that each has for itself.
const SHARING_STEPS: [(usize, usize, usize); 3] = [(8, 1024, 200), (8, 4096, 200), (2, 4096, 200)];
/// The same of recurrences, for which it is all one how many tokens came before.
const RECURRENT_STEPS: [(usize, usize); 3] = [(1, 1), (8, 1), (512, 1)];

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::env::var("THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let backend = CpuBackend::new(threads)?;
    println!("{:?}, {} threads", Isa::detect(), backend.threads());
    let only = std::env::var("ONLY").unwrap_or_default();
    let attention = |kv| Case::Attention { heads: 16, kv_heads: 8, dim: 128, kv };
    let attention: Vec<Case> = KvType::ALL.iter().copied().map(attention).collect();
    let recurrent = [
        Case::Delta { key_heads: 16, heads: 32, dim: 128 },
        Case::Scan { heads: 64, dim: 64, groups: 8, size: 128 },
        Case::Convolution { width: 8192, taps: 4 },
    ];
    let small = Case::Attention { heads: 9, kv_heads: 3, dim: 64, kv: KvType::F16 };
    let chosen = |case: &Case| case.name().contains(&only);
    print_alone(&backend, attention.iter().copied().chain(recurrent).filter(chosen))?;
    print_together(&backend, attention.iter().copied().chain([small]).filter(chosen))
}

/// Prints what rows of one sequence take.
fn print_alone(backend: &CpuBackend, cases: impl Iterator<Item = Case>) -> Result<(), Box<dyn Error>> {
    println!(
        "{:<38}{:>6}{:>8}{:>11}{:>8}{:>8}{:>9}{:>8}",
        "operation", "rows", "depth", "us/row", "GB/s", "share", "GOP/s", "share"
    );
    let deepest = ATTENTION_STEPS.iter().map(|(rows, depth)| rows + depth).max().unwrap_or(0);
    for case in cases {
        let read = machine::read_bandwidth(Isa::detect(), backend.threads()).unwrap_or_default().best;
        let peak = machine::float_peak(Isa::detect(), backend.threads());
        let mut session = Session::new(backend, case, deepest)?;
        let steps: &[_] = if matches!(case, Case::Attention { .. }) { &ATTENTION_STEPS } else { &RECURRENT_STEPS };
        for &(rows, depth) in steps {
            let seconds = session.sample(rows, depth)? / LAYERS as f64;
            let (bytes, operations) = case.work(rows, depth);
            println!(
                "{:<38}{rows:>6}{depth:>8}{:>11.2}{:>8.1}{:>7.0}%{:>9.1}{:>7.0}%",
                case.name(),
                seconds / rows as f64 * 1e6,
                bytes / seconds / 1e9,
                100.0 * bytes / seconds / read,
                operations / seconds / 1e9,
                100.0 * operations / seconds / peak,
            );
        }
    }
    Ok(())
}

/// Prints what rows of several sequences take.
fn print_together(backend: &CpuBackend, cases: impl Iterator<Item = Case>) -> Result<(), Box<dyn Error>> {
    println!(
        "\n{:<38}{:>6}{:>8}{:>8}{:>16}{:>16}{:>8}",
        "operation", "rows", "shared", "own", "us/row, apart", "us/row, shared", "ratio"
    );
    for case in cases {
        for step in SHARING_STEPS {
            let [apart, shared] = sharing(backend, case, step)?;
            let (sequences, prefix, own) = step;
            println!(
                "{:<38}{sequences:>6}{prefix:>8}{own:>8}{:>16.2}{:>16.2}{:>8.2}",
                case.name(),
                apart * 1e6,
                shared * 1e6,
                apart / shared,
            );
        }
    }
    Ok(())
}

/// Seconds for a row of one layer in a step of sequences that share nothing, and in one of sequences that share a prefix.
fn sharing(
    backend: &CpuBackend,
    case: Case,
    (sequences, prefix, own): (usize, usize, usize),
) -> Result<[f64; 2], Box<dyn Error>> {
    let mut session = Session::new(backend, case, MAX_ROWS)?;
    let group = session.program.groups().first().ok_or("no state")?;
    let (pages, shared, filled) = (group.pages(prefix + own), group.pages(prefix), group.pages(MAX_ROWS));
    let tables = |shared: usize| -> Vec<Vec<u32>> {
        let own = |sequence: usize, page: usize| if page < shared { page } else { sequence * pages + page };
        (0..sequences).map(|s| (0..pages).map(|page| own(s, page) as u32).collect()).collect()
    };
    session.program.reserve_pages(0, sequences * pages)?;
    let tokens = session.program.groups().first().map_or(0, |group| group.page_tokens);
    let copy = |to: usize| PageCopy { group: 0, from: (to % filled) as u32, to: to as u32, tokens };
    let copies = (filled..sequences * pages).map(copy).collect();
    let step = |tables: Vec<Vec<u32>>, copies: Vec<PageCopy>| Step {
        tokens: (0..sequences).map(|i| (i % VOCAB) as u32).collect(),
        sequences: tables
            .into_iter()
            .map(|table| SequenceStep {
                rows: 1,
                start: prefix + own - 1,
                tables: vec![table],
                ..SequenceStep::default()
            })
            .collect(),
        logit_rows: (0..sequences as u32).collect(),
        copies,
        ..Step::default()
    };
    session.program.run(&step(tables(0), copies))?;
    let steps = [step(tables(0), Vec::new()), step(tables(shared), Vec::new())];
    let (start, mut best, mut samples) = (Instant::now(), [f64::INFINITY; 2], 0);
    while start.elapsed() < 2 * SAMPLED.0 || samples < SAMPLED.1 {
        for (step, best) in steps.iter().zip(&mut best) {
            let sample = Instant::now();
            session.program.run(step)?;
            *best = best.min(sample.elapsed().as_secs_f64());
        }
        samples += 1;
    }
    Ok(best.map(|best| best / (sequences * LAYERS) as f64))
}

impl Case {
    fn name(self) -> String {
        match self {
            Case::Attention { heads, kv_heads, dim, kv } => {
                format!("attention {heads}/{kv_heads} x {dim}, {}", kv.name())
            }
            Case::Delta { key_heads, heads, dim } => format!("delta rule {heads}/{key_heads} x {dim} x {dim}"),
            Case::Scan { heads, dim, size, .. } => format!("scan {heads} x {dim} x {size}"),
            Case::Convolution { width, taps } => format!("convolution {width} x {taps}"),
        }
    }

    /// Bytes of state that a step must read, and multiplications and additions that it must do.
    fn work(self, rows: usize, depth: usize) -> (f64, f64) {
        let tokens = rows as f64;
        let (bytes, operations) = match self {
            Case::Attention { heads, kv_heads, dim, kv } => {
                let seen = tokens * depth as f64 + tokens * (tokens + 1.0) / 2.0;
                (2 * kv_heads * kv.head_bytes(dim) * (depth + rows), 4.0 * seen * (heads * dim) as f64)
            }
            // Decay, prediction, correction and result touch each entry.
            Case::Delta { heads, dim, .. } => (4 * heads * dim * dim, tokens * (7 * heads * dim * dim) as f64),
            Case::Scan { heads, dim, size, .. } => (4 * heads * dim * size, tokens * (5 * heads * dim * size) as f64),
            Case::Convolution { width, taps } => (4 * width * (taps - 1), tokens * (2 * width * taps) as f64),
        };
        (bytes as f64, operations)
    }

    fn kv(self) -> KvType {
        if let Case::Attention { kv, .. } = self { kv } else { KvType::F16 }
    }

    /// A graph with the operation in every layer, each on the result of the one before.
    fn graph(self) -> Result<Graph, Box<dyn Error>> {
        let mut g = GraphBuilder::new("operation");
        let ids = g.input("ids", InputSource::TokenIds);
        let floats = |g: &mut GraphBuilder, name: &str, width: usize| {
            let table = g.tensor(name, &[VOCAB, width]);
            g.embed(&format!("{name}_rows"), &ids, &table, 1.0)
        };
        let mut x = match self {
            Case::Attention { heads, dim, .. } | Case::Delta { heads, dim, .. } | Case::Scan { heads, dim, .. } => {
                floats(&mut g, "x", heads * dim)
            }
            Case::Convolution { width, .. } => floats(&mut g, "x", width),
        };
        match self {
            Case::Attention { heads, kv_heads, dim, .. } => {
                let [k, v] = ["k", "v"].map(|name| floats(&mut g, name, kv_heads * dim));
                for layer in 0..LAYERS {
                    g.layer(Some(layer));
                    let [k_state, v_state] = ["k_state", "v_state"].map(|name| {
                        let (kind, dtype) = (StateKind::PerToken, StateType::Kv);
                        g.state(State { name: name.into(), heads: kv_heads, dim, kind, dtype, alias: None })
                    });
                    let (k, v, v_state) = (Some(k.clone()), Some(v.clone()), Some(v_state));
                    let scale = 1.0 / (dim as f32).sqrt();
                    let attention = Attention { q: x, k, v, k_state, v_state, heads, scale, ..Attention::default() };
                    x = g.attention("attention", attention);
                }
            }
            Case::Delta { key_heads, heads, dim } => {
                let [q, k] = ["q", "k"].map(|name| floats(&mut g, name, key_heads * dim));
                let [decay, beta] = ["below_zero", "beta"].map(|name| floats(&mut g, name, heads));
                for layer in 0..LAYERS {
                    g.layer(Some(layer));
                    let state = g.recurrent("rule_state", &[heads, dim, dim]);
                    let (q, k, decay, beta) = (q.clone(), k.clone(), decay.clone(), beta.clone());
                    x = g.delta_rule("rule", DeltaRule { q, k, v: x, decay, beta, state, scale: 0.1 });
                }
            }
            Case::Scan { heads, dim, groups, size } => {
                let [b, c] = ["b", "c"].map(|name| floats(&mut g, name, groups * size));
                let dt = floats(&mut g, "above_zero", heads);
                for layer in 0..LAYERS {
                    g.layer(Some(layer));
                    let state = g.recurrent("scan_state", &[heads, dim, size]);
                    let a = g.tensor("below_zero_a", &[heads]);
                    let (b, c, dt) = (b.clone(), c.clone(), dt.clone());
                    x = g.ssm("scan", Ssm { x, b, c, dt, a, d: None, state });
                }
            }
            Case::Convolution { width, taps } => {
                let weight = g.tensor("taps", &[width, taps]);
                for layer in 0..LAYERS {
                    g.layer(Some(layer));
                    let state = g.recurrent("conv_state", &[taps - 1, width]);
                    let (weight, bias) = (weight.clone(), None);
                    x = g.short_conv("conv", ShortConv { x, weight, bias, dilation: 1, state });
                }
            }
        }
        let rows = g.logit_rows("rows", &x);
        Ok(g.finish(&rows)?)
    }
}

/// Numbers between -0.1 and 0.1, or on the side of zero that the weight's name says.
struct Numbers;

impl WeightSource for Numbers {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let len: usize = weight.shape.iter().product();
        let number = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 5045.0 - 0.1;
        let numbers = (0..len).map(number).map(|x| match weight.name.split_once("_zero").map(|(side, _)| side) {
            Some("below") => -x.abs() - 0.01,
            Some("above") => x.abs() + 0.01,
            _ => x,
        });
        let bytes = SharedBytes::owned(numbers.flat_map(f32::to_le_bytes).collect());
        Ok(WeightData { ty: GgmlType::F32, shape: weight.shape.clone(), bytes })
    }

    fn release(&self, _weight: &Weight) {}
}

/// One sequence of a graph.
struct Session {
    program: Box<dyn Program>,
    /// Tokens that the recurrent state stands after.
    tokens: usize,
}

impl Session {
    /// With a cache that is filled with `deepest` tokens.
    fn new(backend: &CpuBackend, case: Case, deepest: usize) -> Result<Self, Box<dyn Error>> {
        let (k_type, v_type) = (case.kv(), case.kv());
        let options = CompileOptions {
            max_rows: MAX_ROWS,
            max_logit_rows: MAX_ROWS,
            max_tentative: 0,
            k_type,
            v_type,
            repack: true,
            ops: None,
        };
        let mut program = backend.compile(&case.graph()?, &Numbers, &options, &mut |_, _| {})?;
        for group in 0..program.groups().len() {
            let pages = program.groups()[group].pages(deepest);
            program.reserve_pages(group, pages)?;
        }
        if program.recurrent(0).is_some() {
            program.reserve_slots(0, 1)?;
        }
        let mut session = Session { program, tokens: 0 };
        for start in (0..deepest).step_by(MAX_ROWS) {
            session.run(MAX_ROWS.min(deepest - start), start)?;
        }
        Ok(session)
    }

    /// The shortest time in seconds that a step of `rows` tokens behind `depth` others took.
    fn sample(&mut self, rows: usize, depth: usize) -> Result<f64, Box<dyn Error>> {
        let (start, mut best, mut samples) = (Instant::now(), f64::INFINITY, 0);
        while start.elapsed() < SAMPLED.0 || samples < SAMPLED.1 {
            let sample = Instant::now();
            self.run(rows, depth)?;
            best = best.min(sample.elapsed().as_secs_f64());
            samples += 1;
        }
        Ok(best)
    }

    /// Runs a step of `rows` tokens behind `depth` others. All its rows are wanted, so that all of them are computed.
    fn run(&mut self, rows: usize, depth: usize) -> Result<(), Box<dyn Error>> {
        let recurrent = self.program.recurrent(0).map(|_| {
            let from = if self.tokens == 0 { NO_SLOT } else { 0 };
            RecurrentStep { from, to: 0, accepted: 0, tentative: 0 }
        });
        let start = if recurrent.is_some() { self.tokens } else { depth };
        let tables =
            self.program.groups().iter().map(|group| (0..group.pages(start + rows) as u32).collect()).collect();
        let step = Step {
            tokens: (0..rows).map(|i| ((start + i) % VOCAB) as u32).collect(),
            sequences: vec![SequenceStep { rows, start, tables, history: Vec::new(), recurrent }],
            logit_rows: (0..rows as u32).collect(),
            ..Step::default()
        };
        self.tokens += rows;
        Ok(self.program.run(&step)?)
    }
}
