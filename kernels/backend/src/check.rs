//! What a step must be before it runs, whatever runs it.

use std::ops::Range;

use crate::{
    SequenceStep, Step, StepError,
    books::{PageBook, SlotBook},
};

/// What integers a step may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Token ids are below this.
    pub tokens: Option<usize>,
    /// Positions are below this.
    pub positions: Option<usize>,
}

/// Most rows of a step.
#[derive(Clone, Copy, Debug)]
pub struct MostRows {
    /// Tokens.
    pub tokens: usize,
    /// Tokens whose logits are wanted.
    pub logits: usize,
}

/// What a graph asks of its steps.
#[derive(Clone, Debug, Default)]
pub struct Demands {
    /// What integers a step may hold.
    pub limits: Limits,
    /// State groups whose rows the graph writes.
    pub writes: Range<usize>,
    /// State groups of other graphs whose rows it reads.
    pub reads: Vec<usize>,
    /// Ids of earlier tokens that a sequence must bring along.
    pub history: usize,
    /// Widths of the hidden inputs.
    pub hidden: Vec<usize>,
}

type Checked = Result<(), String>;

/// Checks a step against a program. `number` is a number that no earlier step had; `slots` are those of the graph's
/// recurrent state, if it has any.
///
/// # Errors
/// What does not fit.
pub fn check<P: AsRef<PageBook> + AsMut<PageBook>>(
    step: &Step,
    demands: &Demands,
    max: MostRows,
    pools: &mut [P],
    slots: Option<&mut SlotBook>,
    number: u64,
) -> Result<(), StepError> {
    let checked = rows(step, &demands.limits, max)
        .and_then(|()| hidden(step, demands))
        .and_then(|()| sequences(step, demands, pools, number))
        .and_then(|()| copies(step, pools))
        .and_then(|()| recurrent(step, slots, number));
    checked.map_err(StepError::Invalid)
}

fn rows(step: &Step, limits: &Limits, max: MostRows) -> Checked {
    if step.tokens.len() > max.tokens {
        return Err(format!("{} rows, of at most {}", step.tokens.len(), max.tokens));
    }
    if step.logit_rows.len() > max.logits {
        return Err(format!("{} logit rows, of at most {}", step.logit_rows.len(), max.logits));
    }
    if !step.logit_rows.is_sorted_by(|a, b| a < b) {
        return Err("logit rows must rise".into());
    }
    if let Some(last) = step.logit_rows.last() {
        within("logit row", *last as usize, Some(step.tokens.len()))?;
    }
    step.tokens.iter().try_for_each(|t| within("token id", *t as usize, limits.tokens))
}

fn within(what: &str, found: usize, limit: Option<usize>) -> Checked {
    match limit {
        Some(limit) if found >= limit => Err(format!("{what} {found}, expected below {limit}")),
        _ => Ok(()),
    }
}

fn hidden(step: &Step, demands: &Demands) -> Checked {
    for (i, width) in demands.hidden.iter().enumerate() {
        let found = step.hidden.get(i).map_or(0, Vec::len);
        if found != step.tokens.len() * width {
            let rows = step.tokens.len();
            return Err(format!("hidden input {i}: expected {rows} rows of {width} entries, found {found} entries"));
        }
    }
    Ok(())
}

fn sequences(
    step: &Step,
    demands: &Demands,
    pools: &mut [impl AsRef<PageBook> + AsMut<PageBook>],
    number: u64,
) -> Checked {
    let mut rows = 0usize;
    for (s, sequence) in step.sequences.iter().enumerate() {
        rows = rows.saturating_add(sequence.rows);
        one_sequence(sequence, demands, pools, number).map_err(|why| format!("sequence {s}: {why}"))?;
    }
    if rows == step.tokens.len() {
        return Ok(());
    }
    Err(format!("sequences of {rows} rows in all, but {} tokens", step.tokens.len()))
}

fn one_sequence(
    sequence: &SequenceStep,
    demands: &Demands,
    pools: &mut [impl AsRef<PageBook> + AsMut<PageBook>],
    number: u64,
) -> Checked {
    let (start, rows) = (sequence.start, sequence.rows);
    let end = start.checked_add(rows).filter(|end| u32::try_from(*end).is_ok());
    let Some(end) = end.filter(|_| rows > 0 || sequence.recurrent.is_some()) else {
        return Err(format!("{rows} rows from {start} on; expected 1 to 2³² tokens"));
    };
    within("position", end.saturating_sub(1), demands.limits.positions)?;
    let known = demands.history.min(start);
    if sequence.history.len() < known {
        return Err(format!("expected the ids of {known} tokens before it, found {}", sequence.history.len()));
    }
    sequence.history.iter().try_for_each(|t| within("earlier token id", *t as usize, demands.limits.tokens))?;
    if sequence.tables.len() != pools.len() {
        return Err(format!("expected {} page tables, found {}", pools.len(), sequence.tables.len()));
    }
    for g in demands.writes.clone() {
        let written = if rows > 0 { start..end } else { 0..0 };
        table(&sequence.tables[g], start..end, written, pools[g].as_mut(), number)
            .map_err(|why| format!("page table {g}: {why}"))?;
    }
    for &g in &demands.reads {
        table(&sequence.tables[g], start..start, 0..0, pools[g].as_mut(), number)
            .map_err(|why| format!("page table {g}: {why}"))?;
    }
    Ok(())
}

/// Checks that every page that `tokens` read or write is there, and that none of those that the tokens `written` write is
/// written twice in the step.
fn table(table: &[u32], tokens: Range<usize>, written: Range<usize>, pool: &mut PageBook, number: u64) -> Checked {
    let page_tokens = pool.group().page_tokens;
    let end = pool.group().pages(tokens.end);
    let needed = (pool.group().first_needed(tokens.start) / page_tokens).min(end)..end;
    let found = table.len();
    let pages = table.get(needed.clone()).ok_or_else(|| format!("expected {} pages, found {found}", needed.end))?;
    let exist = pool.pages();
    if let Some(page) = pages.iter().find(|p| **p as usize >= exist) {
        return Err(format!("page {page} of {exist}, among pages {needed:?} of the sequence, which are still needed"));
    }
    pool.touch(pages);
    let written = written.start / page_tokens..pool.group().pages(written.end);
    for page in table.get(written).unwrap_or_default() {
        if !pool.note_write(*page, number) {
            return Err(format!("page {page} is written twice in one step"));
        }
    }
    Ok(())
}

fn copies(step: &Step, pools: &mut [impl AsMut<PageBook>]) -> Checked {
    let groups = pools.len();
    for copy in &step.copies {
        let Some(pool) = pools.get_mut(copy.group).map(AsMut::as_mut) else {
            return Err(format!("{copy:?}, of {groups} groups"));
        };
        if ![copy.from, copy.to].iter().all(|page| pool.holds(*page, copy.tokens)) {
            let (pages, tokens) = (pool.pages(), pool.group().page_tokens);
            return Err(format!("{copy:?}, of {pages} pages of {tokens} tokens"));
        }
        pool.touch(&[copy.from, copy.to]);
    }
    Ok(())
}

fn recurrent(step: &Step, slots: Option<&mut SlotBook>, number: u64) -> Checked {
    let Some(slots) = slots else { return Ok(()) };
    for (s, sequence) in step.sequences.iter().enumerate() {
        slots.check(sequence, number).map_err(|why| format!("sequence {s}: {why}"))?;
    }
    // A slot that one sequence writes must not be another's to read: nobody says which comes first.
    for (s, sequence) in step.sequences.iter().enumerate() {
        let Some(recurrent) = &sequence.recurrent else { continue };
        if recurrent.from != recurrent.to && slots.is_written(recurrent.from, number) {
            return Err(format!("sequence {s}: slot {} is read and written in one step", recurrent.from));
        }
    }
    Ok(())
}
