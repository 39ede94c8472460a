//! What a backend notes about pages and slots, so that steps that do not fit are refused.

use crate::{NO_SLOT, RecurrentStep, SequenceStep, StateGroup, Step};

/// The pages of a state group: how many there are, and which step wrote each.
#[derive(Debug)]
pub struct PageBook {
    group: StateGroup,
    /// Number of the last step that wrote each page.
    written: Vec<u64>,
    /// The pages before this one have been used.
    touched: usize,
}

impl PageBook {
    /// Of a group without pages.
    pub fn new(group: StateGroup) -> Self {
        PageBook { group, written: Vec::new(), touched: 0 }
    }

    /// What the pages are for.
    pub fn group(&self) -> &StateGroup {
        &self.group
    }

    /// Pages that exist.
    pub fn pages(&self) -> usize {
        self.written.len()
    }

    /// Notes that pages `0..pages` exist.
    pub fn grow(&mut self, pages: usize) {
        if pages > self.written.len() {
            self.written.resize(pages, 0);
        }
    }

    /// Notes that these pages, which exist, are used.
    pub fn touch(&mut self, pages: &[u32]) {
        self.touched = pages.iter().fold(self.touched, |touched, page| touched.max(*page as usize + 1));
    }

    /// Notes that the pages from this one on were not used after all: there is no memory for them.
    pub fn untouch(&mut self, pages: usize) {
        self.touched = self.touched.min(pages);
    }

    /// Pages `0..touched` may have been used; none behind them has.
    pub fn touched(&self) -> usize {
        self.touched
    }

    /// Whether a page exists, and has room for so many tokens.
    pub fn holds(&self, page: u32, tokens: usize) -> bool {
        (page as usize) < self.written.len() && tokens <= self.group.page_tokens
    }

    /// Notes that step number `step` writes a page; false if it was noted for this step before, or does not exist.
    pub fn note_write(&mut self, page: u32, step: u64) -> bool {
        self.written.get_mut(page as usize).is_some_and(|last| std::mem::replace(last, step) != step)
    }
}

/// What is known of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Note {
    /// Tokens that the value stands after; none: nothing was written yet.
    tokens: Option<usize>,
    /// Tentative rows whose inputs are kept.
    kept: usize,
    /// Which of two banks holds them.
    bank: usize,
    /// Number of the last step that wrote it.
    written: u64,
}

/// The slots of a graph's recurrent state: after how many tokens each stands, and which tentative rows it keeps.
#[derive(Debug)]
pub struct SlotBook {
    notes: Vec<Note>,
    /// Most tentative rows of a step.
    tentative: usize,
}

impl SlotBook {
    /// Without slots; a step has at most `tentative` tentative rows of a sequence.
    pub fn new(tentative: usize) -> Self {
        SlotBook { notes: Vec::new(), tentative }
    }

    /// Most tentative rows of a step.
    pub fn tentative(&self) -> usize {
        self.tentative
    }

    /// Slots that exist.
    pub fn slots(&self) -> usize {
        self.notes.len()
    }

    /// Notes that slots `0..slots` exist.
    pub fn grow(&mut self, slots: usize) {
        if slots > self.notes.len() {
            self.notes.resize(slots, Note::default());
        }
    }

    /// After how many tokens a slot stands; `None` if there is no such slot, or nothing was ever written to it.
    pub fn tokens(&self, slot: u32) -> Option<usize> {
        self.notes.get(slot as usize)?.tokens
    }

    /// Which bank holds the inputs that a slot keeps; those that a step leaves go to the other one.
    pub fn bank(&self, slot: u32) -> usize {
        self.notes.get(slot as usize).map_or(0, |note| note.bank)
    }

    /// Checks what step number `number` does with a sequence's slots, and notes that it writes one.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&mut self, sequence: &SequenceStep, number: u64) -> Result<(), String> {
        let Some(RecurrentStep { from, to, accepted, tentative }) = sequence.recurrent else {
            return Err("the graph has recurrent state, and no slots are given".into());
        };
        let exist = self.notes.len();
        let (after, kept) = match self.notes.get(from as usize) {
            _ if from == NO_SLOT => (Some(0), 0),
            Some(note) => (note.tokens, note.kept),
            None => return Err(format!("slot {from} of {exist}")),
        };
        if accepted > kept {
            return Err(format!("{accepted} accepted rows, and slot {from} keeps {kept}"));
        }
        if after.is_none_or(|after| after + accepted != sequence.start) {
            let after = after.map_or("no tokens at all".into(), |after| format!("{after} tokens"));
            let start = sequence.start;
            return Err(format!("slot {from} stands after {after}, expected {start} - {accepted}"));
        }
        if tentative > sequence.rows || tentative > self.tentative {
            let (rows, most) = (sequence.rows, self.tentative);
            return Err(format!("{tentative} tentative rows of {rows}, expected at most {most}"));
        }
        let target = self.notes.get_mut(to as usize).ok_or_else(|| format!("slot {to} of {exist}"))?;
        if std::mem::replace(&mut target.written, number) == number {
            return Err(format!("slot {to} is written twice in one step"));
        }
        Ok(())
    }

    /// Whether step number `number` was noted to write a slot.
    pub fn is_written(&self, slot: u32, number: u64) -> bool {
        self.notes.get(slot as usize).is_some_and(|note| note.written == number)
    }

    /// Notes what a step that was run has left in the slots.
    pub fn finish(&mut self, step: &Step) {
        for sequence in &step.sequences {
            let Some(RecurrentStep { to, tentative, .. }) = sequence.recurrent else { continue };
            if let Some(note) = self.notes.get_mut(to as usize) {
                note.tokens = Some(sequence.start + sequence.rows - tentative);
                note.kept = tentative;
                note.bank = 1 - note.bank;
            }
        }
    }

    /// Notes that a slot was loaded: it stands after so many tokens and keeps nothing.
    pub fn load(&mut self, slot: u32, tokens: usize) {
        if let Some(note) = self.notes.get_mut(slot as usize) {
            (note.tokens, note.kept) = (Some(tokens), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use bantam_graph::StateKind;

    use super::*;

    #[test]
    fn a_page_is_written_once_in_a_step() {
        let mut book =
            PageBook::new(StateGroup { kind: StateKind::PerToken, page_tokens: 32, page_bytes: 64, states: vec![0] });
        book.grow(2);
        assert!(book.note_write(1, 5) && !book.note_write(1, 5) && book.note_write(1, 6));
        assert!(!book.note_write(2, 6));
        assert!(book.holds(1, 32) && !book.holds(1, 33) && !book.holds(2, 1));
        assert_eq!(book.touched(), 0);
        book.touch(&[1, 0]);
        book.touch(&[]);
        assert_eq!(book.touched(), 2);
        book.untouch(1);
        assert_eq!(book.touched(), 1);
    }
}
