//! A program with sequences whose page tables the test keeps.

use bantam_backend::{Backend, CompileOptions, KvType, NO_PAGE, NO_SLOT, Program, RecurrentStep, SequenceStep, Step};
use bantam_cpu::{CpuBackend, isa::Isa};

use crate::model::Shape;

/// Choices of a test run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) threads: usize,
    pub(crate) isa: Isa,
    pub(crate) k_type: KvType,
    pub(crate) v_type: KvType,
    /// Distance between the pages of a sequence, so that runs use different ones.
    pub(crate) page_step: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { threads: 2, isa: Isa::detect(), k_type: KvType::F16, v_type: KvType::F16, page_step: 1 }
    }
}

/// A program and its sequences.
pub(crate) struct Session {
    pub(crate) program: Box<dyn Program>,
    setup: Setup,
    /// Tokens of each sequence so far.
    pub(crate) lengths: Vec<usize>,
    /// The sequence of whose pages each sequence has the first ones, and how many these are.
    forked: Vec<(usize, usize)>,
}

/// Most rows and logit rows of a step.
pub(crate) const MAX_ROWS: usize = 256;
/// Most tentative rows of a sequence in a step.
pub(crate) const MAX_TENTATIVE: usize = 6;
const PAGES: usize = 200;
const SLOTS: usize = 20;
const SEQUENCES: usize = 5;

impl Session {
    pub(crate) fn new(shape: &Shape, setup: Setup) -> Session {
        let backend = CpuBackend::with_isa(setup.threads, setup.isa).unwrap();
        let (k_type, v_type) = (setup.k_type, setup.v_type);
        let options = CompileOptions {
            max_rows: MAX_ROWS,
            max_logit_rows: MAX_ROWS,
            max_tentative: MAX_TENTATIVE,
            k_type,
            v_type,
            repack: true,
            ops: None,
        };
        let mut program = backend.compile(&shape.graph(), &shape.weights(), &options, &mut |_, _| {}).unwrap();
        for group in 0..program.groups().len() {
            program.reserve_pages(group, PAGES).unwrap();
        }
        if program.recurrent(0).is_some() {
            program.reserve_slots(0, SLOTS).unwrap();
        }
        Session { program, setup, lengths: vec![0; SEQUENCES], forked: (0..SEQUENCES).map(|s| (s, 0)).collect() }
    }

    /// Lets a sequence begin with the first pages of another, which computed them and has no recurrent state.
    pub(crate) fn fork(&mut self, of: usize, sequence: usize, pages: usize) {
        self.lengths[sequence] = pages * self.program.groups()[0].page_tokens;
        self.forked[sequence] = (of, pages);
    }

    /// The table of a sequence for `tokens` tokens, without the pages that are no longer needed.
    pub(crate) fn table(&self, sequence: usize, group: usize, start: usize, tokens: usize) -> Vec<u32> {
        let group = &self.program.groups()[group];
        let (of, shared) = self.forked[sequence];
        let owner = |i: usize| if i < shared { of } else { sequence };
        let page = |i: usize| ((i * SEQUENCES + owner(i)) * self.setup.page_step + 3) % (PAGES - 1);
        let gone = group.first_needed(start) / group.page_tokens;
        (0..group.pages(tokens)).map(|i| if i < gone { NO_PAGE } else { page(i) as u32 }).collect()
    }

    /// How a step advances the recurrent state of a sequence in its slot, if there is any.
    pub(crate) fn recurrent(&self, sequence: usize, accepted: usize, tentative: usize) -> Option<RecurrentStep> {
        self.program.recurrent(0)?;
        let to = (sequence * self.setup.page_step % SLOTS) as u32;
        let from = if self.lengths[sequence] == 0 { NO_SLOT } else { to };
        Some(RecurrentStep { from, to, accepted, tentative })
    }

    /// The step that appends runs of tokens to sequences; the last `wanted` rows of each run are logit rows.
    pub(crate) fn step(&self, runs: &[(usize, &[u32], usize)]) -> Step {
        let mut step = Step::default();
        for (sequence, tokens, wanted) in runs {
            let (start, first) = (self.lengths[*sequence], step.tokens.len());
            step.tokens.extend(*tokens);
            let groups = 0..self.program.groups().len();
            let tables = groups.map(|g| self.table(*sequence, g, start, start + tokens.len())).collect();
            let recurrent = self.recurrent(*sequence, 0, 0);
            let rows = tokens.len();
            step.sequences.push(SequenceStep { rows, start, tables, recurrent, ..SequenceStep::default() });
            let end = first + tokens.len();
            step.logit_rows.extend((end - wanted..end).map(|r| r as u32));
        }
        step
    }

    /// Such a step, whose tokens are then taken as given.
    pub(crate) fn advance(&mut self, runs: &[(usize, &[u32], usize)]) -> Step {
        let step = self.step(runs);
        for (sequence, tokens, _) in runs {
            self.lengths[*sequence] += tokens.len();
        }
        step
    }

    /// Runs such a step; returns the logit rows.
    pub(crate) fn run(&mut self, runs: &[(usize, &[u32], usize)]) -> Vec<Vec<f32>> {
        let step = self.advance(runs);
        self.program.run(&step).unwrap();
        let vocab = self.program.vocab();
        assert_eq!(self.program.logits().len(), step.logit_rows.len() * vocab);
        self.program.logits().chunks(vocab).map(<[f32]>::to_vec).collect()
    }
}

/// Tokens of a prompt.
pub(crate) fn prompt(len: usize, vocab: usize, seed: usize) -> Vec<u32> {
    (0..len).map(|i| ((i * i * 7 + i * 3 + seed * 13) % vocab) as u32).collect()
}
