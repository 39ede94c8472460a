//! A program with sequences to run it on.

use bantam_backend::{NO_SLOT, PageTable, Program, RecurrentStep, SequenceStep, Step, StepError};

/// The graph that is measured: the one that generates text.
const TRUNK: usize = 0;

/// A program and the state of several sequences, all of them as long as they will ever be.
///
/// Tokens are random, always the same: speed does not depend on them.
pub(super) struct Session {
    program: Box<dyn Program>,
    /// Per sequence, one table per state group.
    tables: Vec<Vec<PageTable>>,
    tokens: TokenSource,
    step_tokens: usize,
}

/// Recurrent slots that a step reads and writes. Each sequence has two: what [`Session::fill`] left, and one to go on in.
#[derive(Clone, Copy)]
struct Slots {
    from: usize,
    to: usize,
}

impl Session {
    /// Takes memory for `sequences` sequences of `length` tokens; a step has at most `step_tokens` rows of a prompt.
    pub(super) fn new(
        mut program: Box<dyn Program>,
        sequences: usize,
        length: usize,
        step_tokens: usize,
    ) -> Result<Self, StepError> {
        let mut tables = vec![Vec::new(); sequences];
        for group in 0..program.groups().len() {
            let pages = program.groups().get(group).map_or(0, |group| group.pages(length));
            program.reserve_pages(group, pages * sequences)?;
            for (sequence, tables) in tables.iter_mut().enumerate() {
                tables.push((sequence * pages..(sequence + 1) * pages).map(id).collect());
            }
        }
        if program.recurrent(TRUNK).is_some() {
            program.reserve_slots(TRUNK, 2 * sequences)?;
        }
        let tokens = TokenSource { state: 1, vocab: program.vocab().max(1) as u64 };
        Ok(Session { program, tables, tokens, step_tokens })
    }

    /// The program.
    pub(super) fn program(&self) -> &dyn Program {
        self.program.as_ref()
    }

    /// Reads a prompt in the first sequence, with the logits of its last token.
    pub(super) fn prefill(&mut self, tokens: usize) -> Result<(), StepError> {
        self.read(0, tokens, self.working_slot(0), true)
    }

    /// Puts `tokens` tokens into every sequence, without logits.
    pub(super) fn fill(&mut self, tokens: usize) -> Result<(), StepError> {
        (0..self.tables.len()).try_for_each(|sequence| self.read(sequence, tokens, sequence, false))
    }

    /// Decodes `tokens` tokens of every sequence, the first of them at index `depth`, which is how far they are filled.
    pub(super) fn decode(&mut self, depth: usize, tokens: usize) -> Result<(), StepError> {
        let sequences = self.tables.len();
        for start in depth..depth + tokens {
            let slots = |sequence| {
                let to = self.working_slot(sequence);
                Slots { from: if start == depth { sequence } else { to }, to }
            };
            let steps =
                (0..sequences).map(|sequence| self.sequence_step(sequence, 1, start, slots(sequence))).collect();
            self.run(sequences, steps, (0..sequences).map(id).collect())?;
        }
        Ok(())
    }

    fn working_slot(&self, sequence: usize) -> usize {
        self.tables.len() + sequence
    }

    fn read(&mut self, sequence: usize, tokens: usize, slot: usize, logits: bool) -> Result<(), StepError> {
        for start in (0..tokens).step_by(self.step_tokens) {
            let rows = self.step_tokens.min(tokens - start);
            let last = logits && start + rows == tokens;
            let step = self.sequence_step(sequence, rows, start, Slots { from: slot, to: slot });
            self.run(rows, vec![step], if last { vec![id(rows - 1)] } else { vec![] })?;
        }
        Ok(())
    }

    fn run(&mut self, rows: usize, sequences: Vec<SequenceStep>, logit_rows: Vec<u32>) -> Result<(), StepError> {
        let tokens = self.tokens.take(rows);
        self.program.run(&Step { graph: TRUNK, tokens, sequences, logit_rows, ..Step::default() })
    }

    fn sequence_step(&self, sequence: usize, rows: usize, start: usize, slots: Slots) -> SequenceStep {
        let from = if start == 0 { NO_SLOT } else { id(slots.from) };
        let step = RecurrentStep { from, to: id(slots.to), accepted: 0, tentative: 0 };
        SequenceStep {
            rows,
            start,
            tables: self.tables.get(sequence).cloned().unwrap_or_default(),
            history: vec![0; self.program.history(TRUNK).min(start)],
            recurrent: self.program.recurrent(TRUNK).map(|_| step),
        }
    }
}

/// A page, slot or row by number; counts are bounded by the arguments' ranges.
fn id(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Tokens at random, always the same.
struct TokenSource {
    state: u64,
    vocab: u64,
}

impl TokenSource {
    fn take(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Knuth's linear congruential generator; its high bits are the random ones.
    fn next(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.state >> 32) % self.vocab) as u32
    }
}
