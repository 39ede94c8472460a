//! What a draft proposes for exactly these tokens: its graphs and its trunk's run by themselves, without the engine.
//!
//! The trunk sees all tokens but the last, as it has when a draft is asked.

use bantam_backend::{
    CompileOptions, NO_SLOT, PageTable, Program, RecurrentStep, SequenceStep, Step, StepError, WeightSource,
};
use bantam_family_api::{Draft, DraftMethod};
use bantam_graph::Graph;
use serde::Serialize;

use super::{DraftChoice, ProbeConfig, ProbeError, run::argmax};
use crate::load::{self, LoadedDraft};

/// Places of a model's graphs in its program.
const TRUNK: usize = 0;
const DRAFT: usize = 1;
const REFINEMENT: usize = 2;

/// What a draft proposed.
#[derive(Clone, Debug, Serialize)]
pub struct DraftReport {
    /// Rows of logits: of a chain one for each row that reads one of the tokens, of a block its size.
    pub rows: usize,
    /// The tokens proposed behind the sequence: by a chain as many as are asked for by `greedy`, by a block one per row.
    pub proposed: Vec<u32>,
    /// The logits.
    #[serde(skip)]
    pub logits: Vec<f32>,
}

/// Runs a draft.
pub(super) fn draft(config: &ProbeConfig, choice: &DraftChoice) -> Result<DraftReport, ProbeError> {
    let failed = |e: &dyn std::fmt::Display| ProbeError::Failed(e.to_string());
    let loaded = load::open(&config.model, &config.families).map_err(|e| failed(&e))?;
    let (draft, source): (Draft, Box<dyn WeightSource>) = match choice {
        DraftChoice::File(path) => {
            let LoadedDraft { draft, source } =
                load::open_draft(path, &loaded, &config.families).map_err(|e| ProbeError::Draft(e.to_string()))?;
            (draft, Box::new(source))
        }
        DraftChoice::BuiltIn => match loaded.model.draft.clone() {
            Some(draft) => (draft, Box::new(loaded.source)),
            None => return Err(ProbeError::NoDraft { model: config.model.clone() }),
        },
    };
    let Some((&last, seen)) = config.tokens.split_last().filter(|(_, seen)| !seen.is_empty()) else {
        return Err(ProbeError::NothingSeen);
    };
    let graphs = draft.graphs(&loaded.model.text).map_err(|e| failed(&e))?;
    let chunk = config.chunk.unwrap_or(config.tokens.len()).clamp(1, config.tokens.len());
    let rows = chunk.max(block_size(&draft));
    let options = CompileOptions {
        max_rows: rows,
        max_logit_rows: rows,
        max_tentative: 0,
        k_type: config.k_type,
        v_type: config.v_type,
        repack: config.repack,
        ops: loaded.ops.clone(),
    };
    let (backend, _) = config.hardware.first_backend(config.threads).map_err(ProbeError::Failed)?;
    let program = backend
        .compile_model(&graphs.iter().collect::<Vec<_>>(), source.as_ref(), &options, &mut |_, _| {})
        .map_err(|e| failed(&e))?;
    let longest = config.tokens.len() + config.greedy.max(block_size(&draft));
    let mut drafting = Drafting::new(program, graphs, chunk, longest).map_err(|e| failed(&e))?;
    let report = match draft.method {
        DraftMethod::Chain { shift, .. } => drafting.chain(&config.tokens, seen, shift, config.greedy),
        DraftMethod::Block { size, mask_token, .. } => drafting.block(seen, last, size, mask_token),
    };
    numbers(report.map_err(|e| failed(&e))?, choice)
}

/// Refuses logits that are not numbers, as the engine does the model's: nothing can be chosen by them.
fn numbers(report: DraftReport, choice: &DraftChoice) -> Result<DraftReport, ProbeError> {
    if !report.logits.iter().any(|logit| logit.is_nan()) {
        return Ok(report);
    }
    let why = "the draft's logits are not numbers (NaN): its file is damaged, or its weights overflow";
    Err(match choice {
        DraftChoice::File(path) => ProbeError::Draft(format!("{}: {why}", path.display())),
        DraftChoice::BuiltIn => ProbeError::Failed(why.into()),
    })
}

fn block_size(draft: &Draft) -> usize {
    match draft.method {
        DraftMethod::Chain { .. } => 1,
        DraftMethod::Block { size, .. } => size,
    }
}

/// One sequence on a program of its own.
struct Drafting {
    program: Box<dyn Program>,
    graphs: Vec<Graph>,
    tables: Vec<PageTable>,
    /// Tokens a step.
    chunk: usize,
}

/// Rows of a graph, by value: logits, and each tap.
#[derive(Default)]
struct Rows {
    logits: Vec<f32>,
    taps: Vec<Vec<f32>>,
}

impl Drafting {
    fn new(mut program: Box<dyn Program>, graphs: Vec<Graph>, chunk: usize, longest: usize) -> Result<Self, StepError> {
        let mut tables = Vec::new();
        for group in 0..program.groups().len() {
            let pages = program.groups().get(group).map_or(0, |group| group.pages(longest));
            program.reserve_pages(group, pages)?;
            tables.push((0..u32::try_from(pages).unwrap_or(u32::MAX)).collect());
        }
        for graph in 0..graphs.len() {
            if program.recurrent(graph).is_some() {
                program.reserve_slots(graph, 1)?;
            }
        }
        Ok(Drafting { program, graphs, tables, chunk })
    }

    /// Runs a graph over the tokens of its sequence from `start` on, with a hidden row for each.
    fn run(&mut self, graph: usize, tokens: &[u32], start: usize, hidden: &[Vec<f32>]) -> Result<Rows, StepError> {
        let mut rows = Rows::default();
        let widths = self.graphs.get(graph).map(Graph::hidden).unwrap_or_default();
        let mut at = start;
        for part in tokens.get(start..).unwrap_or_default().chunks(self.chunk.max(1)) {
            let hidden = hidden.iter().zip(&widths).map(|(hidden, width)| {
                let first = (at - start) * width;
                hidden.get(first..first + part.len() * width).unwrap_or_default().to_vec()
            });
            let hidden = hidden.collect();
            self.step(graph, tokens, at, part.len(), hidden, &mut rows)?;
            at += part.len();
        }
        Ok(rows)
    }

    fn step(
        &mut self,
        graph: usize,
        tokens: &[u32],
        start: usize,
        rows: usize,
        hidden: Vec<Vec<f32>>,
        into: &mut Rows,
    ) -> Result<(), StepError> {
        let history = tokens.get(start.saturating_sub(self.program.history(graph))..start).unwrap_or_default().to_vec();
        let from = if start == 0 { NO_SLOT } else { 0 };
        let recurrent = RecurrentStep { from, to: 0, accepted: 0, tentative: 0 };
        let step = Step {
            graph,
            tokens: tokens.get(start..start + rows).unwrap_or_default().to_vec(),
            sequences: vec![SequenceStep {
                rows,
                start,
                tables: self.tables.clone(),
                history,
                recurrent: self.program.recurrent(graph).map(|_| recurrent),
            }],
            logit_rows: if graph == TRUNK { vec![] } else { (0..u32::try_from(rows).unwrap_or(u32::MAX)).collect() },
            hidden,
            taps: true,
            ..Step::default()
        };
        self.program.run(&step)?;
        into.logits.extend_from_slice(if graph == TRUNK { &[] } else { self.program.logits() });
        into.taps.resize(self.graphs.get(graph).map_or(0, |graph| graph.taps.len()), Vec::new());
        for (i, tap) in into.taps.iter_mut().enumerate() {
            tap.extend_from_slice(self.program.tap(i));
        }
        Ok(())
    }

    /// Rows that read all tokens from the `shift`-th on, each with the trunk's row of the token before; then as many more
    /// as are asked for, each with the row before it and what that proposed.
    fn chain(&mut self, tokens: &[u32], seen: &[u32], shift: usize, more: usize) -> Result<DraftReport, StepError> {
        let trunk = self.run(TRUNK, seen, 0, &[])?;
        let widths = self.graphs.get(DRAFT).map(Graph::hidden).unwrap_or_default();
        // Before the first token there is a row of zeros.
        let padded = trunk
            .taps
            .into_iter()
            .zip(&widths)
            .map(|(tap, width)| [vec![0.0; (1 - shift.min(1)) * width], tap].concat());
        let mut read = tokens.get(shift..).unwrap_or_default().to_vec();
        let rows = self.run(DRAFT, &read, 0, &padded.collect::<Vec<_>>())?;
        let (count, mut proposed, mut last) = (read.len(), Vec::new(), self.last(&rows, &widths));
        while proposed.len() < more {
            proposed.push(last.0);
            read.push(last.0);
            let rows = self.run(DRAFT, &read, read.len() - 1, &last.1)?;
            last = self.last(&rows, &widths);
        }
        Ok(DraftReport { rows: count, proposed, logits: rows.logits })
    }

    /// What the last row proposes, and what it taps.
    fn last(&self, rows: &Rows, widths: &[usize]) -> (u32, Vec<Vec<f32>>) {
        let vocab = self.program.vocab();
        let row =
            |rows: &[f32], width: usize| rows.get(rows.len().saturating_sub(width)..).unwrap_or_default().to_vec();
        let taps = rows.taps.iter().zip(widths).map(|(tap, &width)| row(tap, width));
        (argmax(&row(&rows.logits, vocab)), taps.collect())
    }

    /// The known token and mask tokens behind it at once; then, if there is a refinement, row after row with what the row
    /// before proposed.
    fn block(&mut self, seen: &[u32], known: u32, size: usize, mask: u32) -> Result<DraftReport, StepError> {
        self.run(TRUNK, seen, 0, &[])?;
        self.chunk = size;
        let mut tokens = seen.to_vec();
        tokens.push(known);
        tokens.resize(seen.len() + size, mask);
        let block = self.run(DRAFT, &tokens, seen.len(), &[])?;
        let vocab = self.program.vocab();
        if self.graphs.get(REFINEMENT).is_none() {
            let proposed = block.logits.chunks(vocab.max(1)).map(argmax).collect();
            return Ok(DraftReport { rows: size, proposed, logits: block.logits });
        }
        let (mut proposed, mut logits) = (vec![known], Vec::new());
        for row in 0..size {
            let of_row = |tap: &Vec<f32>| tap.chunks(tap.len() / size.max(1)).nth(row).unwrap_or_default().to_vec();
            let hidden: Vec<Vec<f32>> = block.taps.iter().map(of_row).collect();
            let refined = self.run(REFINEMENT, &proposed, row, &hidden)?;
            proposed.push(argmax(&refined.logits));
            logits.extend(refined.logits);
        }
        Ok(DraftReport { rows: size, proposed: proposed.split_off(1), logits })
    }
}
