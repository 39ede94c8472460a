//! A step that was checked, laid out for the members.

use bantam_backend::Step;
use bantam_graph::Rows;

use crate::{
    attention::{Cut, Pieces},
    compile::MaxRows,
};

/// What the rows of a space stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowMap {
    /// Token ids; of strided rows the id of the token that closes the block.
    pub(crate) tokens: Vec<u32>,
    /// Indexes in the sequence; of strided rows that of the first token of the block.
    pub(crate) positions: Vec<u32>,
    /// Indexes of the sequence in the step.
    pub(crate) sequences: Vec<u32>,
    /// Indexes of the token among those of the step.
    pub(crate) rows: Vec<u32>,
}

impl RowMap {
    fn with_capacity(rows: usize) -> Self {
        let empty = || Vec::with_capacity(rows);
        RowMap { tokens: empty(), positions: empty(), sequences: empty(), rows: empty() }
    }

    fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.sequences.clear();
        self.rows.clear();
    }

    fn push(&mut self, token: u32, position: usize, sequence: usize, row: usize) {
        self.tokens.push(token);
        self.positions.push(position as u32);
        self.sequences.push(sequence as u32);
        self.rows.push(row as u32);
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
    /// By stride.
    strided: Vec<(usize, RowMap)>,
    /// First row of each sequence.
    first_rows: Vec<usize>,
    attentions: Vec<(Rows, Pieces)>,
}

impl Prepared {
    /// Room for any step of up to `max` rows on a team of `members`; `attentions` are the row spaces and cuts of all
    /// attentions, `places` the places for results of their segments, `strides` those of the strided spaces.
    pub(crate) fn new(
        max: MaxRows,
        members: usize,
        places: usize,
        attentions: impl Iterator<Item = (Rows, Cut)>,
        strides: impl Iterator<Item = usize>,
    ) -> Self {
        let mut kinds: Vec<(Rows, Pieces)> = Vec::new();
        for (rows, cut) in attentions {
            if !kinds.iter().any(|(r, p)| *r == rows && p.cut() == cut) {
                kinds.push((rows, Pieces::with_capacity(cut, max.of(rows), members, places)));
            }
        }
        let mut strided: Vec<(usize, RowMap)> = Vec::new();
        for stride in strides {
            if !strided.iter().any(|(s, _)| *s == stride) {
                strided.push((stride, RowMap::with_capacity(max.of(Rows::Strided { stride }))));
            }
        }
        let [tokens, logits] = [max.tokens, max.logits].map(RowMap::with_capacity);
        Prepared { tokens, logits, strided, first_rows: Vec::with_capacity(max.tokens), attentions: kinds }
    }

    /// Lays out a step that was checked.
    pub(crate) fn prepare(&mut self, step: &Step) {
        let Prepared { tokens, logits, strided, first_rows, attentions } = self;
        tokens.clear();
        first_rows.clear();
        strided.iter_mut().for_each(|(_, map)| map.clear());
        for (s, sequence) in step.sequences.iter().enumerate() {
            let first = tokens.len();
            first_rows.push(first);
            for (i, token) in step.tokens[first..first + sequence.rows].iter().enumerate() {
                let position = sequence.start + i;
                tokens.push(*token, position, s, first + i);
                for (stride, map) in strided.iter_mut() {
                    if (position + 1).is_multiple_of(*stride) {
                        map.push(*token, position + 1 - *stride, s, first + i);
                    }
                }
            }
        }
        logits.clear();
        for row in &step.logit_rows {
            let row = *row as usize;
            logits.push(tokens.tokens[row], tokens.positions[row] as usize, tokens.sequences[row] as usize, row);
        }
        for (rows, pieces) in attentions {
            pieces.lay_out(if *rows == Rows::Tokens { tokens } else { logits }, step);
        }
    }

    /// The rows of a space.
    pub(crate) fn rows(&self, rows: Rows) -> &RowMap {
        match rows {
            Rows::Tokens => &self.tokens,
            Rows::Logits => &self.logits,
            Rows::Strided { stride } => {
                self.strided.iter().find(|(s, _)| *s == stride).map_or(&self.tokens, |(_, map)| map)
            }
        }
    }

    /// First row of each sequence of the step.
    pub(crate) fn first_rows(&self) -> &[usize] {
        &self.first_rows
    }

    /// The pieces of an attention over a space.
    pub(crate) fn pieces(&self, rows: Rows, cut: Cut) -> Option<&Pieces> {
        self.attentions.iter().find(|(r, p)| *r == rows && p.cut() == cut).map(|(_, p)| p)
    }
}
