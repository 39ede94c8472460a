//! A program without a model: its state is what it was shown, so that a step which leads to wrong state is caught.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Condvar, Mutex},
};

use bantam_backend::{
    NO_SLOT, Program, RecurrentGroup, RecurrentStep, SequenceStep, StateGroup, Step, StepError, Trace,
};
use bantam_graph::StateKind;

pub(super) const VOCAB: usize = 50;
pub(super) const WINDOW: usize = 6;
const STRIDE: usize = 4;
const HISTORY: usize = 3;
const MAX_TENTATIVE: usize = 4;
/// Bytes of a slot, as the caches are told.
pub(super) const SLOT_BYTES: usize = 10;

const PER_TOKEN: usize = 0;
const WINDOWED: usize = 1;
const STRIDED: usize = 2;

/// Steps wait while it is closed: then as many may pass as were let.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<(Mutex<Option<usize>>, Condvar)>);

impl Gate {
    pub(super) fn close(&self) {
        *self.0.0.lock().unwrap() = Some(0);
    }

    /// Lets one step pass the closed gate.
    pub(super) fn let_one(&self) {
        *self.0.0.lock().unwrap().as_mut().unwrap() += 1;
        self.0.1.notify_all();
    }

    pub(super) fn open(&self) {
        *self.0.0.lock().unwrap() = None;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let closed = self.0.0.lock().unwrap();
        if let Some(may_pass) = self.0.1.wait_while(closed, |closed| *closed == Some(0)).unwrap().as_mut() {
            *may_pass -= 1;
        }
    }
}

/// The kinds of state that a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Rows of tokens, all and in a window.
    Paged,
    /// All kinds: strided rows, a recurrent value and the ids of earlier tokens too.
    Hybrid,
}

/// A recurrent value: the tokens taken in, and those that are tentative.
#[derive(Clone, Debug, Default)]
struct Slot {
    taken: Vec<u32>,
    tentative: Vec<u32>,
}

/// Each page row holds the token and position that were written to it; a strided one, a mark of its tokens and the position
/// of the last.
pub(super) struct FakeProgram {
    layout: Layout,
    groups: Vec<StateGroup>,
    recurrent: RecurrentGroup,
    rows: HashMap<(usize, u32, usize), (u32, usize)>,
    slots: HashMap<u32, Slot>,
    logits: Vec<f32>,
    gate: Gate,
    /// A step with this token fails; with the one after it, panics.
    poison: u32,
}

fn hash(values: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.hash(&mut hasher);
    hasher.finish()
}

/// The token after a sequence. The last tokens of the vocabulary poison steps and are never drawn.
pub(super) fn next_token(tokens: &[u32]) -> u32 {
    (hash(tokens) % (VOCAB as u64 - 2)) as u32
}

/// What a strided row holds of its tokens.
fn mark(tokens: &[u32]) -> u32 {
    hash((STRIDE, tokens)) as u32
}

/// Rows that a page has of its first tokens.
fn rows_of(group: usize, tokens: usize) -> usize {
    if group == STRIDED { tokens / STRIDE } else { tokens }
}

impl FakeProgram {
    pub(super) fn new(layout: Layout, gate: Gate) -> Self {
        let group = |kind, page_tokens| StateGroup { kind, page_tokens, page_bytes: 4, states: vec![0] };
        let mut groups = vec![group(StateKind::PerToken, 4), group(StateKind::Window { len: WINDOW }, 4)];
        if layout == Layout::Hybrid {
            groups.push(group(StateKind::Strided { stride: STRIDE }, 2 * STRIDE));
        }
        FakeProgram {
            layout,
            groups,
            recurrent: RecurrentGroup { slot_bytes: SLOT_BYTES, states: vec![0] },
            rows: HashMap::new(),
            slots: HashMap::new(),
            logits: Vec::new(),
            gate,
            poison: VOCAB as u32 - 2,
        }
    }

    /// The row that holds a token's state, or that of the stride it closes.
    fn key(&self, group: usize, table: &[u32], position: usize) -> (usize, u32, usize) {
        let page_tokens = self.groups[group].page_tokens;
        (group, table[position / page_tokens], rows_of(group, position % page_tokens))
    }

    fn read(&self, group: usize, table: &[u32], position: usize) -> u32 {
        let key = self.key(group, table, position);
        let (value, written) = self.rows[&key];
        assert_eq!(written, position, "row {key:?} holds another position");
        value
    }

    fn copy(&mut self, step: &Step) {
        let written: HashSet<_> = step.copies.iter().map(|copy| (copy.group, copy.to)).collect();
        assert_eq!(written.len(), step.copies.len(), "a page is copied to once");
        for copy in &step.copies {
            assert!(!written.contains(&(copy.group, copy.from)), "copies do not depend on each other");
            for row in 0..rows_of(copy.group, copy.tokens) {
                let value = self.rows[&(copy.group, copy.from, row)];
                self.rows.insert((copy.group, copy.to, row), value);
            }
        }
    }

    /// Writes a sequence's rows, and returns all its tokens as the rows before and these tell them.
    fn write(&mut self, sequence: &SequenceStep, tokens: &[u32]) -> Vec<u32> {
        let mut all: Vec<u32> =
            (0..sequence.start).map(|p| self.read(PER_TOKEN, &sequence.tables[PER_TOKEN], p)).collect();
        all.extend(tokens);
        for (position, &token) in all.iter().enumerate().skip(sequence.start) {
            for group in [PER_TOKEN, WINDOWED] {
                let key = self.key(group, &sequence.tables[group], position);
                self.rows.insert(key, (token, position));
            }
            if self.layout == Layout::Hybrid && (position + 1).is_multiple_of(STRIDE) {
                let block = position + 1 - STRIDE..=position;
                let block: Vec<u32> = block.map(|p| self.read(WINDOWED, &sequence.tables[WINDOWED], p)).collect();
                let key = self.key(STRIDED, &sequence.tables[STRIDED], position);
                self.rows.insert(key, (mark(&block), position));
            }
        }
        all
    }

    fn check_history(&self, sequence: &SequenceStep, all: &[u32]) {
        let wanted = self.history(0).min(sequence.start);
        assert_eq!(sequence.history, all[sequence.start - wanted..sequence.start], "ids before the step's first");
    }

    /// Advances the recurrent value over a sequence's rows.
    fn advance(&mut self, step: RecurrentStep, start: usize, all: &[u32]) {
        let slot = match step.from {
            NO_SLOT => Slot::default(),
            from => self.slots[&from].clone(),
        };
        let mut taken = slot.taken;
        taken.extend(&slot.tentative[..step.accepted]);
        assert_eq!(taken, all[..start], "the recurrent value is that of the sequence");
        assert!(step.tentative <= MAX_TENTATIVE.min(all.len() - start));
        let certain = all.len() - step.tentative;
        let slot = Slot { taken: all[..certain].to_vec(), tentative: all[certain..].to_vec() };
        self.slots.insert(step.to, slot);
    }

    /// Checks that all that a row's token reads is what it should be.
    fn check_reads(&self, sequence: &SequenceStep, tokens: &[u32]) {
        for (p, &token) in tokens.iter().enumerate().skip(tokens.len().saturating_sub(WINDOW)) {
            assert_eq!(self.read(WINDOWED, &sequence.tables[WINDOWED], p), token);
        }
        if self.layout == Layout::Hybrid {
            for (i, block) in tokens.chunks_exact(STRIDE).enumerate() {
                assert_eq!(self.read(STRIDED, &sequence.tables[STRIDED], (i + 1) * STRIDE - 1), mark(block));
            }
        }
    }

    /// No slot is written twice, or read by one sequence and written by another.
    fn check_slots(&self, step: &Step) {
        let steps: Vec<RecurrentStep> = step.sequences.iter().filter_map(|s| s.recurrent).collect();
        let expected = if self.layout == Layout::Hybrid { step.sequences.len() } else { 0 };
        assert_eq!(steps.len(), expected);
        for (i, a) in steps.iter().enumerate() {
            let others = steps.iter().enumerate().filter(|(j, _)| *j != i);
            others.for_each(|(_, b)| assert!(a.to != b.to && a.to != b.from, "slot {} belongs to one sequence", a.to));
        }
    }
}

/// Holds that sequences that begin with the same page stand side by side.
fn check_neighbours(step: &Step) {
    let mut pages: Vec<u32> = step.sequences.iter().map(|sequence| sequence.tables[0][0]).collect();
    pages.dedup();
    let runs = pages.len();
    pages.sort_unstable();
    pages.dedup();
    assert_eq!(runs, pages.len(), "sequences that share their pages are apart");
}

impl Program for FakeProgram {
    fn groups(&self) -> &[StateGroup] {
        &self.groups
    }

    fn recurrent(&self, _: usize) -> Option<&RecurrentGroup> {
        (self.layout == Layout::Hybrid).then_some(&self.recurrent)
    }

    fn history(&self, _: usize) -> usize {
        if self.layout == Layout::Hybrid { HISTORY } else { 0 }
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

    fn release_pages(&mut self, group: usize, pages: &[u32]) {
        self.rows.retain(|(of, page, _), _| *of != group || !pages.contains(page));
    }

    fn reserve_slots(&mut self, _: usize, _: usize) -> Result<(), StepError> {
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), StepError> {
        self.gate.pass();
        if step.tokens.contains(&self.poison) {
            return Err(StepError::Invalid("poisoned".into()));
        }
        assert!(!step.tokens.contains(&(self.poison + 1)), "poisoned");
        check_neighbours(step);
        self.check_slots(step);
        self.copy(step);
        self.logits.clear();
        let mut first = 0;
        for sequence in &step.sequences {
            let all = self.write(sequence, &step.tokens[first..first + sequence.rows]);
            self.check_history(sequence, &all);
            if let Some(recurrent) = sequence.recurrent {
                self.advance(recurrent, sequence.start, &all);
            }
            for row in (first..first + sequence.rows).filter(|row| step.logit_rows.contains(&(*row as u32))) {
                let tokens = &all[..=sequence.start + row - first];
                self.check_reads(sequence, tokens);
                let best = next_token(tokens);
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

    fn save_page(&self, group: usize, page: u32, tokens: usize, out: &mut Vec<u8>) -> Result<(), StepError> {
        for row in 0..rows_of(group, tokens) {
            let (value, position) = self.rows[&(group, page, row)];
            out.extend(value.to_le_bytes());
            out.extend((position as u64).to_le_bytes());
        }
        Ok(())
    }

    fn load_page(&mut self, group: usize, page: u32, tokens: usize, bytes: &[u8]) -> Result<(), StepError> {
        if bytes.len() != 12 * rows_of(group, tokens) {
            return Err(StepError::Invalid(format!("page {page} of group {group}: {} bytes", bytes.len())));
        }
        for (row, bytes) in bytes.chunks_exact(12).enumerate() {
            let value = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            let position = u64::from_le_bytes(bytes[4..].try_into().unwrap());
            self.rows.insert((group, page, row), (value, position as usize));
        }
        Ok(())
    }

    fn save_slot(&self, _: usize, slot: u32, out: &mut Vec<u8>) -> Result<(), StepError> {
        out.extend(self.slots[&slot].taken.iter().flat_map(|token| token.to_le_bytes()));
        Ok(())
    }

    fn load_slot(&mut self, _: usize, slot: u32, bytes: &[u8]) -> Result<(), StepError> {
        let taken = bytes.chunks_exact(4).map(|token| u32::from_le_bytes(token.try_into().unwrap())).collect();
        self.slots.insert(slot, Slot { taken, tentative: Vec::new() });
        Ok(())
    }
}
