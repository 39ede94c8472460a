//! A graph of one op, run in every way on every kind of backend that the test program makes (`backends.rs`); and what its
//! naive twin reads.

use std::collections::HashMap;

use bantam_backend::{CompileError, CompileOptions, KvType, NO_PAGE, Program, SequenceStep, Step, StepError};
use bantam_graph::{Graph, GraphBuilder, InputSource};

use crate::{
    backends::{self, Kind},
    custom,
    weights::{self, Random, SplitMix},
};

/// Token ids of all tests are below this.
pub(crate) const VOCAB: usize = 50;
/// Most rows of a step.
const MAX_ROWS: usize = 256;
const PAGES: usize = 96;
const SEQUENCES: usize = 3;

/// A graph to be tested.
pub(crate) struct Bench {
    graph: Graph,
    /// The value over tokens whose rows the graph puts out.
    output: String,
}

/// Collects the nodes of a test's graph.
pub(crate) struct Sketch {
    pub(crate) graph: GraphBuilder,
    pub(crate) ids: String,
    pub(crate) positions: String,
}

impl Sketch {
    /// A row of random numbers for each token.
    pub(crate) fn floats(&mut self, name: &str, width: usize) -> String {
        let table = self.graph.tensor(&format!("{name}_table"), &[VOCAB, width]);
        let ids = self.ids.clone();
        self.graph.embed(name, &ids, &table, 1.0)
    }
}

/// What a naive twin reads: the values that the backend showed, and the weights.
pub(crate) struct Seen<'a> {
    graph: &'a Graph,
    values: HashMap<String, (usize, Vec<f64>)>,
}

impl Seen<'_> {
    /// Rows of a value.
    pub(crate) fn rows(&self, name: &str) -> Vec<Vec<f64>> {
        let (width, values) = &self.values[name];
        values.chunks(*width).map(<[f64]>::to_vec).collect()
    }

    /// Numbers of a weight.
    pub(crate) fn weight(&self, name: &str) -> Vec<f64> {
        weights::numbers(self.graph.weight(name).unwrap())
    }
}

/// How a graph is run.
#[derive(Clone, Copy)]
struct Setup {
    kind: Kind,
    threads: usize,
    /// Where the pages of sequences lie.
    page_step: usize,
    kv: KvType,
}

impl Bench {
    /// A graph that puts out the value that `build` names.
    pub(crate) fn new(build: impl FnOnce(&mut Sketch) -> String) -> Self {
        let mut graph = GraphBuilder::new("op");
        let ids = graph.input("ids", InputSource::TokenIds);
        let positions = graph.input("positions", InputSource::Positions);
        let mut sketch = Sketch { graph, ids, positions };
        let output = build(&mut sketch);
        let rows = sketch.graph.logit_rows("rows", &output);
        Bench { graph: sketch.graph.finish(&rows).unwrap(), output }
    }

    /// Holds the output to what `expected` makes of what the backend showed, within `tolerance` times the largest entry;
    /// then the rows to themselves: in chunks, beside others, on other pages, with other threads.
    pub(crate) fn check(&self, tolerance: f64, expected: impl Fn(&Seen<'_>) -> Vec<Vec<f64>>) {
        self.check_with(KvType::F32, tolerance, expected);
    }

    /// As [`Bench::check`], with a cache of this type.
    pub(crate) fn check_with(&self, kv: KvType, tolerance: f64, expected: impl Fn(&Seen<'_>) -> Vec<Vec<f64>>) {
        for kind in backends::kinds() {
            let setup = Setup { kind, threads: 2, page_step: 1, kv };
            let tokens = tokens(backends::TOKENS, 1);
            let seen = self.seen(setup, &tokens);
            near(&seen.rows(&self.output), &expected(&seen), tolerance, kind);
            let rows = Session::new(self, setup).run(&[(0, &tokens, tokens.len())]);
            let shown: Vec<u64> = seen.rows(&self.output).concat().iter().map(|x| x.to_bits()).collect();
            let fast: Vec<u64> = rows.concat().iter().map(|x| f64::from(*x).to_bits()).collect();
            assert_eq!(shown, fast, "{kind:?}: the fused plan gives other bits than the plain one");
            self.check_company(setup, &tokens, &rows);
        }
    }

    /// As [`Bench::check`], where the rows of a step see each other: `expected` is told the first row of a step of the given
    /// lengths, and its rows; and the rows are held to themselves beside others, on other pages, with other threads.
    pub(crate) fn check_blocks(
        &self,
        kv: KvType,
        tolerance: f64,
        steps: &[usize],
        expected: impl Fn(&Seen<'_>, usize, usize) -> Vec<Vec<f64>>,
    ) {
        for kind in backends::kinds() {
            let setup = Setup { kind, threads: 2, page_step: 1, kv };
            let tokens = tokens(steps.iter().sum(), 1);
            // What does not depend on other rows is the same in one step as in several.
            let seen = self.seen(setup, &tokens);
            let (mut session, mut start) = (Session::new(self, setup), 0);
            let mut other = Session::new(self, Setup { threads: 3, page_step: 5, ..setup });
            let before = self::tokens(60, 2);
            for (i, &len) in steps.iter().enumerate() {
                let step = &tokens[start..start + len];
                let found = session.run(&[(0, step, len)]);
                let beside = other.run(&[(1, &before[i * 10..i * 10 + 7], 1), (0, step, len)]);
                assert_eq!(found, beside[1..], "{kind:?}: rows beside others");
                let found: Vec<Vec<f64>> = found.iter().map(|r| r.iter().copied().map(f64::from).collect()).collect();
                near(&found, &expected(&seen, start, len), tolerance, kind);
                start += len;
            }
        }
    }

    /// Compiles the graph and runs nothing.
    pub(crate) fn compile(&self) -> Result<Box<dyn Program>, CompileError> {
        self.compile_for(Setup { kind: backends::usual(), threads: 1, page_step: 1, kv: KvType::F32 })
    }

    fn compile_for(&self, setup: Setup) -> Result<Box<dyn Program>, CompileError> {
        let backend = backends::make(setup.kind, setup.threads);
        let options = CompileOptions {
            max_rows: MAX_ROWS,
            max_logit_rows: MAX_ROWS,
            max_tentative: 0,
            k_type: setup.kv,
            v_type: setup.kv,
            repack: true,
            ops: custom::ops(),
        };
        backend.compile(&self.graph, &Random, &options, &mut |_, _| {})
    }

    /// How many of these tokens the program takes, each in a step of its own; the others fail with what is handed to
    /// `failed`.
    pub(crate) fn run_each(&self, tokens: &[u32], mut failed: impl FnMut(StepError)) -> usize {
        let setup = Setup { kind: backends::usual(), threads: 2, page_step: 1, kv: KvType::F32 };
        let mut session = Session::new(self, setup);
        let run = |token: &&u32| {
            let step = session.step(&[(0, &[**token], 1)]);
            let done = session.program.run(&step).map_err(&mut failed).is_ok();
            assert_ne!(done, session.program.logits().is_empty(), "a step that failed leaves nothing to be read");
            done
        };
        tokens.iter().filter(run).count()
    }

    fn seen(&self, setup: Setup, tokens: &[u32]) -> Seen<'_> {
        let mut session = Session::new(self, setup);
        let step = session.step(&[(0, tokens, tokens.len())]);
        let mut values = HashMap::new();
        let mut note = |name: &str, width: usize, entries: &[f32]| {
            values.insert(name.to_owned(), (width, entries.iter().copied().map(f64::from).collect()));
        };
        session.program.run_traced(&step, &mut note).unwrap();
        Seen { graph: &self.graph, values }
    }

    fn check_company(&self, setup: Setup, tokens: &[u32], expected: &[Vec<f32>]) {
        let same = |what: &str, from: usize, found: &[Vec<f32>]| {
            for (i, (found, expected)) in found.iter().zip(&expected[from..]).enumerate() {
                let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(found), bits(expected), "{:?}, {what}: row {} differs", setup.kind, from + i);
            }
        };
        for (threads, chunk) in [(1, 150), (3, 150), (2, 1), (1, 7), (3, 33)] {
            let mut session = Session::new(self, Setup { threads, page_step: 5, ..setup });
            let rows: Vec<_> = tokens.chunks(chunk).flat_map(|c| session.run(&[(0, c, c.len())])).collect();
            same(&format!("{threads} threads, chunks of {chunk}"), 0, &rows);
        }
        let mut session = Session::new(self, setup);
        let (before, after) = (self::tokens(150, 2), self::tokens(150, 3));
        for (i, chunk) in tokens.chunks(19).enumerate() {
            let others = (&before[i * 3..i * 3 + 3], &after[i * 11..i * 11 + 1 + i]);
            // Few logit rows are wanted, so that what no state needs is computed for these alone.
            let wanted = 1 + i % chunk.len();
            let rows = session.run(&[(1, others.0, 1), (0, chunk, wanted), (2, others.1, i % 2)]);
            same("beside others", i * 19 + chunk.len() - wanted, &rows[1..1 + wanted]);
        }
    }
}

/// Whether rows are as expected, within `tolerance` times the largest entry.
fn near(found: &[Vec<f64>], expected: &[Vec<f64>], tolerance: f64, kind: Kind) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().flatten().fold(0.0f64, |m, x| m.max(x.abs()));
    assert!(largest > 1e-3, "nothing to compare");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len());
        for (j, (f, e)) in found.iter().zip(expected).enumerate() {
            assert!((f - e).abs() <= tolerance * largest, "{kind:?}: row {i}, entry {j}: {f}, expected {e}");
        }
    }
}

/// Tokens of a test.
pub(crate) fn tokens(len: usize, seed: usize) -> Vec<u32> {
    let mut rng = SplitMix::new(&format!("tokens {seed}"));
    (0..len).map(|_| (rng.next() % VOCAB as u64) as u32).collect()
}

struct Session {
    program: Box<dyn Program>,
    page_step: usize,
    lengths: Vec<usize>,
    history: Vec<Vec<u32>>,
}

impl Session {
    fn new(bench: &Bench, setup: Setup) -> Session {
        let mut program = bench.compile_for(setup).unwrap();
        for group in 0..program.groups().len() {
            program.reserve_pages(group, PAGES).unwrap();
        }
        Session {
            program,
            page_step: setup.page_step,
            lengths: vec![0; SEQUENCES],
            history: vec![Vec::new(); SEQUENCES],
        }
    }

    fn table(&self, sequence: usize, group: usize, start: usize, end: usize) -> Vec<u32> {
        let group = &self.program.groups()[group];
        let page = |i: usize| ((i * SEQUENCES + sequence) * self.page_step + 3) % (PAGES - 1);
        let gone = group.first_needed(start) / group.page_tokens;
        (0..group.pages(end)).map(|i| if i < gone { NO_PAGE } else { page(i) as u32 }).collect()
    }

    /// The step that appends runs of tokens to sequences; the last rows of each run are logit rows.
    fn step(&self, runs: &[(usize, &[u32], usize)]) -> Step {
        let mut step = Step::default();
        for &(sequence, tokens, wanted) in runs {
            let (start, first) = (self.lengths[sequence], step.tokens.len());
            step.tokens.extend(tokens);
            let groups = 0..self.program.groups().len();
            let tables = groups.map(|g| self.table(sequence, g, start, start + tokens.len())).collect();
            let known = &self.history[sequence];
            let history = known[known.len().saturating_sub(self.program.history(0))..].to_vec();
            step.sequences.push(SequenceStep { rows: tokens.len(), start, tables, history, recurrent: None });
            let end = first + tokens.len();
            step.logit_rows.extend((end - wanted..end).map(|r| r as u32));
        }
        step
    }

    /// Runs such a step; returns the logit rows.
    fn run(&mut self, runs: &[(usize, &[u32], usize)]) -> Vec<Vec<f32>> {
        let step = self.step(runs);
        self.program.run(&step).unwrap();
        for &(sequence, tokens, _) in runs {
            self.lengths[sequence] += tokens.len();
            self.history[sequence].extend(tokens);
        }
        let width = self.program.vocab();
        assert_eq!(self.program.logits().len(), step.logit_rows.len() * width);
        self.program.logits().chunks(width).map(<[f32]>::to_vec).collect()
    }
}
