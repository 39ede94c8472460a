//! A step laid out for the device: one run of words, copied there at once, of which kernels get addresses.

use bantam_backend::{NO_SLOT, Step};
use bantam_graph::{InputSource, Rows};

use crate::{
    attention::tiles,
    compile::{HostOp, Plan, hashes},
};

/// What graphs want to know of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// Strides of the strided row spaces.
    pub(crate) strides: Vec<usize>,
    /// Row spaces whose rows are cut into tiles of so many.
    pub(crate) tiles: Vec<(Rows, u32)>,
}

/// What the rows of a space stand for, as indexes of the words that say it.
#[derive(Clone, Copy, Debug, Default)]
struct Map {
    rows: usize,
    /// Of their sequences, of their indexes in it, of their places among the step's tokens.
    at: [usize; 3],
    /// Of strided rows, their indexes in the state.
    strided: usize,
}

/// A step laid out.
#[derive(Debug, Default)]
pub(crate) struct Laid {
    /// What is copied to the device.
    pub(crate) words: Vec<u32>,
    tokens: Map,
    logits: Map,
    strided: Vec<(usize, Map)>,
    /// Tiles of a space's rows: where their words are, and how many.
    tiles: Vec<((Rows, u32), (usize, u32))>,
    /// Sequences.
    pub(crate) sequences: usize,
    /// Rows of the sequence that has most.
    pub(crate) most_rows: usize,
    /// Index of the words that say where each sequence begins: its first token's index in it.
    pub(crate) starts: usize,
    /// Index of the words that say each sequence's first row in the step, and one more: all rows.
    pub(crate) first_rows: usize,
    /// Of each state group, the index of its tables, and the pages of a table.
    pub(crate) tables: Vec<(usize, usize)>,
    /// Index of the words of the recurrent steps: from, to, accepted, tentative, and the banks of from and to, each for all
    /// sequences.
    pub(crate) recurrent: [usize; 6],
}

impl Laid {
    /// Lays out a step that was checked. `bank` says which bank of a slot holds its kept inputs.
    pub(crate) fn lay_out(&mut self, step: &Step, layout: &Layout, bank: impl Fn(u32) -> usize) {
        self.words.clear();
        self.sequences = step.sequences.len();
        self.most_rows = step.sequences.iter().map(|s| s.rows).max().unwrap_or(0);
        let first_rows = first_rows(step);
        self.starts = self.push(step.sequences.iter().map(|s| s.start as u32));
        self.first_rows = self.push(first_rows.iter().map(|row| *row as u32));
        let rows =
            || step.sequences.iter().enumerate().flat_map(|(s, seq)| (0..seq.rows).map(move |i| (s, seq.start + i)));
        self.tokens.rows = step.tokens.len();
        let places = self.push(0..step.tokens.len() as u32);
        let sequences = self.push(rows().map(|(s, _)| s as u32));
        self.tokens.at = [sequences, self.push(rows().map(|(_, position)| position as u32)), places];
        self.logits.rows = step.logit_rows.len();
        let wanted = self.push(step.logit_rows.iter().copied());
        let all: Vec<(usize, usize)> = rows().collect();
        let of = |row: &u32| all.get(*row as usize).copied().unwrap_or_default();
        let sequences = self.push(step.logit_rows.iter().map(|row| of(row).0 as u32));
        self.logits.at = [sequences, self.push(step.logit_rows.iter().map(|row| of(row).1 as u32)), wanted];
        self.strided.clear();
        for &stride in &layout.strides {
            let closing: Vec<(usize, &(usize, usize))> =
                all.iter().enumerate().filter(|(_, (_, position))| (position + 1).is_multiple_of(stride)).collect();
            let sequences = self.push(closing.iter().map(|(_, (s, _))| *s as u32));
            let first = self.push(closing.iter().map(|(_, (_, position))| (position + 1 - stride) as u32));
            let at = [sequences, first, self.push(closing.iter().map(|(row, _)| *row as u32))];
            let strided = self.push(closing.iter().map(|(_, (_, position))| (position / stride) as u32));
            self.strided.push((stride, Map { rows: closing.len(), at, strided }));
        }
        self.lay_out_tiles(step, layout);
        self.lay_out_tables(step);
        self.lay_out_slots(step, bank);
    }

    fn lay_out_tiles(&mut self, step: &Step, layout: &Layout) {
        self.tiles.clear();
        for &(rows, most) in &layout.tiles {
            let mut counts = vec![0; step.sequences.len()];
            for sequence in self.mapped(rows, 0) {
                counts[*sequence as usize] += 1;
            }
            let mut cut = Vec::new();
            tiles(counts.into_iter(), most, &mut cut);
            let count = (cut.len() / 2) as u32;
            let at = self.push(cut.into_iter());
            self.tiles.push(((rows, most), (at, count)));
        }
    }

    fn lay_out_tables(&mut self, step: &Step) {
        self.tables.clear();
        let groups = step.sequences.first().map_or(0, |s| s.tables.len());
        for group in 0..groups {
            let table = |s: usize| step.sequences[s].tables.get(group).map_or(&[][..], Vec::as_slice);
            let pages = (0..step.sequences.len()).map(|s| table(s).len()).max().unwrap_or(0);
            let entry = |s: usize, page: usize| table(s).get(page).copied().unwrap_or(u32::MAX);
            let at = self.push((0..step.sequences.len()).flat_map(|s| (0..pages).map(move |page| entry(s, page))));
            self.tables.push((at, pages));
        }
    }

    fn lay_out_slots(&mut self, step: &Step, bank: impl Fn(u32) -> usize) {
        let all = || step.sequences.iter().map(|s| s.recurrent);
        let slot = |slot: Option<u32>| slot.unwrap_or(NO_SLOT);
        self.recurrent = [
            self.push(all().map(|r| slot(r.map(|r| r.from)))),
            self.push(all().map(|r| slot(r.map(|r| r.to)))),
            self.push(all().map(|r| r.map_or(0, |r| r.accepted as u32))),
            self.push(all().map(|r| r.map_or(0, |r| r.tentative as u32))),
            self.push(all().map(|r| bank(slot(r.map(|r| r.from))) as u32)),
            // What a step keeps goes to the other bank than what the slot holds.
            self.push(all().map(|r| 1 - bank(slot(r.map(|r| r.to))) as u32)),
        ];
    }

    /// Appends words; the index of the first, at a multiple of 16 bytes.
    fn push(&mut self, words: impl Iterator<Item = u32>) -> usize {
        self.words.resize(self.words.len().next_multiple_of(4), 0);
        let at = self.words.len();
        self.words.extend(words);
        at
    }

    fn map(&self, rows: Rows) -> Map {
        match rows {
            Rows::Tokens => self.tokens,
            Rows::Logits => self.logits,
            Rows::Strided { stride } => {
                self.strided.iter().find(|(s, _)| *s == stride).map_or(Map::default(), |(_, map)| *map)
            }
        }
    }

    /// Rows of a space.
    pub(crate) fn rows(&self, rows: Rows) -> usize {
        self.map(rows).rows
    }

    /// Indexes of the words that say what the rows of a space stand for.
    pub(crate) fn row_map(&self, rows: Rows) -> [usize; 3] {
        self.map(rows).at
    }

    /// Index of the words that say which rows of the state the rows of a strided space are.
    pub(crate) fn strided_rows(&self, rows: Rows) -> usize {
        self.map(rows).strided
    }

    /// Tiles of at most so many rows of a space: where their words are, and how many.
    pub(crate) fn tiles(&self, rows: Rows, most: u32) -> (usize, u32) {
        self.tiles.iter().find(|(key, _)| *key == (rows, most)).map_or((0, 0), |(_, tiles)| *tiles)
    }

    /// The words of a map.
    fn mapped(&self, rows: Rows, which: usize) -> &[u32] {
        let map = self.map(rows);
        self.words.get(map.at[which]..map.at[which] + map.rows).unwrap_or_default()
    }

    /// Computes what the host computes, value by value: the bits of their rows.
    ///
    /// # Errors
    /// A table row that cannot be decoded.
    pub(crate) fn host_values(&self, step: &Step, plan: &Plan) -> Result<Vec<Vec<u32>>, String> {
        let mut values: Vec<Vec<u32>> = vec![Vec::new(); plan.values.len()];
        let mut scratch = Vec::new();
        for (value, op) in &plan.host {
            let mut out = Vec::new();
            match op {
                HostOp::Input(source) => self.input(step, *source, plan.values[*value].rows, &mut out),
                HostOp::Embed { ids, table, scale } => {
                    out.reserve(values[*ids].len() * table.width);
                    for id in &values[*ids] {
                        table.row(*id, *scale, &mut scratch, &mut out)?;
                    }
                }
                HostOp::Lookup { ids, table } => {
                    let row = |id: &u32| table.values.iter().skip(*id as usize * table.width).take(table.width);
                    out.extend(values[*ids].iter().flat_map(row));
                }
                HostOp::Select { x } => {
                    let width = plan.values[*value].width;
                    let row = |row: &u32| values[*x].iter().skip(*row as usize * width).take(width);
                    out.extend(self.mapped(Rows::Logits, 2).iter().flat_map(row));
                }
                HostOp::Hash { places, hash } => {
                    let rows = places.first().map_or(0, |place| values[*place].len());
                    (0..rows).for_each(|row| {
                        let ids: Vec<u32> = places.iter().map(|place| values[*place][row]).collect();
                        hashes(hash, &ids, &mut out);
                    });
                }
            }
            values[*value] = out;
        }
        Ok(values)
    }

    fn input(&self, step: &Step, source: InputSource, rows: Rows, out: &mut Vec<u32>) {
        let places = self.mapped(rows, 2).iter().map(|row| *row as usize);
        match source {
            InputSource::TokenIds => out.extend(places.map(|row| step.tokens[row])),
            InputSource::Positions | InputSource::StridedPositions { .. } => out.extend(self.mapped(rows, 1)),
            InputSource::PreviousTokens { back, missing } => {
                let [sequences, positions] = [0, 1].map(|which| self.mapped(rows, which));
                for ((row, s), position) in places.zip(sequences).zip(positions) {
                    let sequence = &step.sequences[*s as usize];
                    let within = *position as usize - sequence.start;
                    let before = |more: usize| sequence.history.len().checked_sub(more).map(|at| sequence.history[at]);
                    out.push(match back.checked_sub(within) {
                        None | Some(0) => step.tokens[row - back],
                        Some(more) => before(more).unwrap_or(missing),
                    });
                }
            }
            InputSource::Hidden { index, .. } => {
                out.extend(step.hidden.get(index).into_iter().flatten().map(|x| x.to_bits()));
            }
        }
    }
}

/// First row of each sequence, and behind them the number of rows.
fn first_rows(step: &Step) -> Vec<usize> {
    let mut rows = vec![0];
    for sequence in &step.sequences {
        rows.push(rows[rows.len() - 1] + sequence.rows);
    }
    rows
}
