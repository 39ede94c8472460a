//! A step on arrival: everything in it is checked before anything is computed.

use bantam_backend::{Step, StepError};
use bantam_graph::Rows;

use crate::{
    attention::{Cut, Pieces},
    compile::{Limits, MaxRows},
    pool::{PAGE_TOKENS, Pool},
};

/// What the rows of a space stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowMap {
    /// Token ids.
    pub(crate) tokens: Vec<u32>,
    /// Indexes in the sequence.
    pub(crate) positions: Vec<u32>,
    /// Indexes of the sequence in the step.
    pub(crate) sequences: Vec<u32>,
}

impl RowMap {
    fn with_capacity(rows: usize) -> Self {
        let empty = || Vec::with_capacity(rows);
        RowMap { tokens: empty(), positions: empty(), sequences: empty() }
    }

    fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.sequences.clear();
    }

    fn push(&mut self, token: u32, position: u32, sequence: u32) {
        self.tokens.push(token);
        self.positions.push(position);
        self.sequences.push(sequence);
    }

    /// Rows of the space in this step.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }
}

/// What all members need to know of a step, laid out before it starts. Never grows after it is made.
#[derive(Debug)]
pub(crate) struct Prepared {
    tokens: RowMap,
    logits: RowMap,
    attentions: Vec<(Rows, Pieces)>,
}

impl Prepared {
    /// Room for any step of up to `max` rows on a team of `members`; `attentions` are the row spaces and cuts of all
    /// attentions, `places` the places for results of their segments.
    pub(crate) fn new(
        max: MaxRows,
        members: usize,
        places: usize,
        attentions: impl Iterator<Item = (Rows, Cut)>,
    ) -> Self {
        let mut kinds: Vec<(Rows, Pieces)> = Vec::new();
        for (rows, cut) in attentions {
            if !kinds.iter().any(|(r, p)| *r == rows && p.cut() == cut) {
                kinds.push((rows, Pieces::with_capacity(cut, max.of(rows), members, places)));
            }
        }
        let [tokens, logits] = [max.tokens, max.logits].map(RowMap::with_capacity);
        Prepared { tokens, logits, attentions: kinds }
    }

    /// Lays out a step that was checked.
    pub(crate) fn prepare(&mut self, step: &Step) {
        let Prepared { tokens, logits, attentions } = self;
        tokens.clear();
        let mut ids = step.tokens.iter();
        for (s, sequence) in step.sequences.iter().enumerate() {
            // The range leads: the other order would lose a token at its end.
            for (i, token) in (0..sequence.rows).zip(ids.by_ref()) {
                tokens.push(*token, (sequence.start + i) as u32, s as u32);
            }
        }
        logits.clear();
        for row in &step.logit_rows {
            let row = *row as usize;
            logits.push(tokens.tokens[row], tokens.positions[row], tokens.sequences[row]);
        }
        for (rows, pieces) in attentions {
            pieces.lay_out(if *rows == Rows::Tokens { tokens } else { logits });
        }
    }

    /// The rows of a space.
    pub(crate) fn rows(&self, rows: Rows) -> &RowMap {
        match rows {
            // No strided rows are computed.
            Rows::Tokens | Rows::Strided { .. } => &self.tokens,
            Rows::Logits => &self.logits,
        }
    }

    /// The pieces of an attention over a space.
    pub(crate) fn pieces(&self, rows: Rows, cut: Cut) -> Option<&Pieces> {
        self.attentions.iter().find(|(r, p)| *r == rows && p.cut() == cut).map(|(_, p)| p)
    }
}

/// Checks a step against a program. `number` is a number that no earlier step had.
pub(crate) fn check(
    step: &Step,
    limits: &Limits,
    max: MaxRows,
    pools: &mut [Pool],
    number: u64,
) -> Result<(), StepError> {
    check_rows(step, limits, max)?;
    let mut rows = 0usize;
    for (s, sequence) in step.sequences.iter().enumerate() {
        let end = sequence.start.checked_add(sequence.rows).filter(|end| u32::try_from(*end).is_ok());
        let (Some(end), true) = (end, sequence.rows > 0) else {
            let (start, rows) = (sequence.start, sequence.rows);
            return Err(invalid(format!("sequence {s}: {rows} rows from {start} on; expected 1 to 2³² tokens")));
        };
        within("position", end - 1, limits.positions)?;
        rows = rows.saturating_add(sequence.rows);
        if sequence.tables.len() != pools.len() {
            let found = sequence.tables.len();
            return Err(invalid(format!("sequence {s}: expected {} page tables, found {found}", pools.len())));
        }
        for ((g, table), pool) in sequence.tables.iter().enumerate().zip(pools.iter_mut()) {
            check_table(table, sequence.start, end, pool, number)
                .map_err(|why| invalid(format!("sequence {s}, page table {g}: {why}")))?;
        }
    }
    if rows != step.tokens.len() {
        return Err(invalid(format!("sequences of {rows} rows in all, but {} tokens", step.tokens.len())));
    }
    check_copies(step, pools)
}

fn check_rows(step: &Step, limits: &Limits, max: MaxRows) -> Result<(), StepError> {
    within("graph", step.graph, Some(1))?;
    if step.tokens.len() > max.tokens {
        return Err(invalid(format!("{} rows, of at most {}", step.tokens.len(), max.tokens)));
    }
    if step.logit_rows.len() > max.logits {
        return Err(invalid(format!("{} logit rows, of at most {}", step.logit_rows.len(), max.logits)));
    }
    if !step.logit_rows.is_sorted_by(|a, b| a < b) {
        return Err(invalid("logit rows must rise".into()));
    }
    if let Some(last) = step.logit_rows.last() {
        within("logit row", *last as usize, Some(step.tokens.len()))?;
    }
    step.tokens.iter().try_for_each(|t| within("token id", *t as usize, limits.tokens))
}

fn within(what: &str, found: usize, limit: Option<usize>) -> Result<(), StepError> {
    match limit {
        Some(limit) if found >= limit => Err(invalid(format!("{what} {found}, expected below {limit}"))),
        _ => Ok(()),
    }
}

/// Checks that every page that tokens `start..end` read or write is there, and none is written twice in the step.
fn check_table(table: &[u32], start: usize, end: usize, pool: &mut Pool, number: u64) -> Result<(), String> {
    let needed = pool.group().first_needed(start) / PAGE_TOKENS..pool.group().pages(end);
    let found = table.len();
    let pages = table.get(needed.clone()).ok_or_else(|| format!("expected {} pages, found {found}", needed.end))?;
    let exist = pool.pages();
    if let Some(page) = pages.iter().find(|p| **p as usize >= exist) {
        return Err(format!("page {page} of {exist}, among pages {needed:?} of the sequence, which are still needed"));
    }
    for page in table.get(start / PAGE_TOKENS..needed.end).unwrap_or_default() {
        if !pool.note_write(*page, number) {
            return Err(format!("page {page} is written twice in one step"));
        }
    }
    Ok(())
}

fn check_copies(step: &Step, pools: &[Pool]) -> Result<(), StepError> {
    for copy in &step.copies {
        let pages = pools.get(copy.group).map_or(0, Pool::pages);
        let exist = [copy.from, copy.to].iter().all(|p| (*p as usize) < pages);
        if !exist || copy.tokens > PAGE_TOKENS {
            return Err(invalid(format!("{copy:?}, of {pages} pages of {PAGE_TOKENS} tokens")));
        }
    }
    Ok(())
}

fn invalid(why: String) -> StepError {
    StepError::Invalid(why)
}
