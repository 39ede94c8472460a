//! A program without a model.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Condvar, Mutex},
};

use bantam_backend::{Program, StateGroup, Step, StepError, Trace};
use bantam_graph::StateKind;

pub(super) const VOCAB: usize = 50;
pub(super) const WINDOW: usize = 6;

/// Steps wait while it is closed.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(super) fn close(&self) {
        *self.0.0.lock().unwrap() = true;
    }

    pub(super) fn open(&self) {
        *self.0.0.lock().unwrap() = false;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let closed = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(closed, |closed| *closed).unwrap());
    }
}

/// Each page row holds the token and position that were written to it.
pub(super) struct FakeProgram {
    groups: Vec<StateGroup>,
    rows: HashMap<(usize, u32, usize), (u32, usize)>,
    logits: Vec<f32>,
    gate: Gate,
    /// A step with this token fails; with the one after it, panics.
    poison: u32,
}

/// The token after a sequence.
pub(super) fn next_token(tokens: &[u32]) -> u32 {
    let mut hasher = DefaultHasher::new();
    tokens.hash(&mut hasher);
    let window = &tokens[tokens.len().saturating_sub(WINDOW)..];
    window.hash(&mut hasher);
    // The last tokens of the vocabulary poison steps and are never drawn.
    (hasher.finish() % (VOCAB as u64 - 2)) as u32
}

impl FakeProgram {
    pub(super) fn new(gate: Gate) -> Self {
        let group = |kind, page_tokens| StateGroup { kind, page_tokens, page_bytes: page_tokens, states: vec![0] };
        FakeProgram {
            groups: vec![group(StateKind::PerToken, 4), group(StateKind::Window { len: WINDOW }, 4)],
            rows: HashMap::new(),
            logits: Vec::new(),
            gate,
            poison: VOCAB as u32 - 2,
        }
    }

    fn read(&self, group: usize, table: &[u32], position: usize) -> u32 {
        let page_tokens = self.groups[group].page_tokens;
        let page = table[position / page_tokens];
        let (token, written) = self.rows[&(group, page, position % page_tokens)];
        assert_eq!(written, position, "group {group}, page {page} holds another position");
        token
    }
}

impl Program for FakeProgram {
    fn groups(&self) -> &[StateGroup] {
        &self.groups
    }

    fn vocab(&self) -> usize {
        VOCAB
    }

    fn weight_bytes(&self) -> u64 {
        0
    }

    fn weight_bytes_per_token(&self) -> u64 {
        0
    }

    fn reserve_pages(&mut self, _: usize, _: usize) -> Result<(), StepError> {
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), StepError> {
        self.gate.pass();
        if step.tokens.contains(&self.poison) {
            return Err(StepError::Invalid("poisoned".into()));
        }
        assert!(!step.tokens.contains(&(self.poison + 1)), "poisoned");
        for copy in &step.copies {
            for row in 0..copy.tokens {
                let value = self.rows[&(copy.group, copy.from, row)];
                self.rows.insert((copy.group, copy.to, row), value);
            }
        }
        let mut first = 0;
        for sequence in &step.sequences {
            for (row, &token) in step.tokens[first..first + sequence.rows].iter().enumerate() {
                let position = sequence.start + row;
                for (g, group) in self.groups.iter().enumerate() {
                    let page = sequence.tables[g][position / group.page_tokens];
                    self.rows.insert((g, page, position % group.page_tokens), (token, position));
                }
            }
            first += sequence.rows;
        }
        self.logits.clear();
        let mut first = 0;
        for sequence in &step.sequences {
            for row in (first..first + sequence.rows).filter(|row| step.logit_rows.contains(&(*row as u32))) {
                let position = sequence.start + row - first;
                let tokens: Vec<u32> = (0..=position).map(|p| self.read(0, &sequence.tables[0], p)).collect();
                for (p, &token) in tokens.iter().enumerate().skip((position + 1).saturating_sub(WINDOW)) {
                    assert_eq!(self.read(1, &sequence.tables[1], p), token);
                }
                let best = next_token(&tokens);
                self.logits.extend((0..VOCAB as u32).map(|t| if t == best { 30.0 } else { 0.0 }));
            }
            first += sequence.rows;
        }
        Ok(())
    }

    fn run_traced(&mut self, step: &Step, _: Trace<'_>) -> Result<(), StepError> {
        self.run(step)
    }

    fn logits(&self) -> &[f32] {
        &self.logits
    }

    fn save_page(&self, _: usize, _: u32, _: usize, _: &mut Vec<u8>) -> Result<(), StepError> {
        Ok(())
    }

    fn load_page(&mut self, _: usize, _: u32, _: usize, _: &[u8]) -> Result<(), StepError> {
        Ok(())
    }
}
