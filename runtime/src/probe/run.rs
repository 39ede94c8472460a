//! One run of a sequence through the engine, with all its logits.

use std::sync::mpsc::{Receiver, channel};

use super::ProbeError;
use crate::{
    actors::{
        job::{Capture, CapturedRow},
        speech::Speech,
    },
    engine::{Engine, Event, Generation, Prepared},
    sampling::{Sampler, SamplingParams},
};

/// How a sequence is to be run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) tokens: Vec<u32>,
    /// Tokens to draw greedily.
    pub(super) greedy: usize,
    /// Tokens a step; 0: as many as fit.
    pub(super) chunk: usize,
    /// Whether cached prefixes are used and left behind.
    pub(super) share: bool,
    /// Wrong tokens to be computed and taken back in each decoding step.
    pub(super) rejected: usize,
}

impl Plan {
    pub(super) fn new(tokens: &[u32], greedy: usize) -> Self {
        Plan { tokens: tokens.to_vec(), greedy, chunk: 0, share: false, rejected: 0 }
    }
}

/// A running sequence.
pub(super) struct Run {
    generation: Generation,
    rows: Receiver<CapturedRow>,
}

impl Run {
    pub(super) fn start(engine: &Engine, plan: Plan) -> Result<Self, ProbeError> {
        let (sender, rows) = channel();
        let (info, _) = engine.link().map_err(|e| ProbeError::Failed(e.to_string()))?;
        let prepared = Prepared {
            tokens: plan.tokens,
            sampler: Sampler::new(SamplingParams { temperature: 0.0, ..SamplingParams::default() }),
            max_tokens: plan.greedy.max(1),
            speech: Speech::plain(&info.tokenizer).map_err(|e| ProbeError::Failed(e.to_string()))?,
            guide: None,
            ignore_eos: true,
            share: plan.share,
            chunk: plan.chunk,
            priority: 0,
            deadline: None,
            turn: None,
            text: None,
        };
        let generation = engine.submit_probe(prepared, Capture { rows: sender, rejected: plan.rejected })?;
        Ok(Run { generation, rows })
    }

    /// Waits for the end.
    pub(super) async fn finish(mut self) -> Result<Logits, ProbeError> {
        let mut cached = 0;
        loop {
            match self.generation.next().await {
                Some(Event::Started { cached_tokens, .. }) => cached = cached_tokens,
                Some(Event::Delta(_)) => {}
                Some(Event::Failed(why)) => return Err(ProbeError::Failed(why.to_string())),
                Some(Event::Finished(_)) | None => break,
            }
        }
        let mut rows: Vec<CapturedRow> = self.rows.try_iter().collect();
        rows.sort_by_key(|row| row.index);
        Ok(Logits { cached, rows })
    }
}

/// The logits of a run: one row per computed token, by its index in the sequence.
#[derive(Debug)]
pub(super) struct Logits {
    /// Tokens that came out of the cache and have no row.
    pub(super) cached: usize,
    pub(super) rows: Vec<CapturedRow>,
}

impl Logits {
    /// Rows of the prompt, one after another.
    pub(super) fn prompt_logits(&self, prompt: usize) -> Vec<f32> {
        self.rows.iter().filter(|r| r.index < prompt).flat_map(|r| r.logits.iter().copied()).collect()
    }

    /// The tokens drawn: the best of each row from the prompt's last on.
    pub(super) fn greedy(&self, prompt: usize) -> Vec<u32> {
        self.rows.iter().filter(|r| r.index + 1 >= prompt).map(|r| argmax(&r.logits)).collect()
    }

    /// Largest difference to another run over the rows that this one has; infinite if the other lacks one, or a value
    /// is no number.
    pub(super) fn max_diff(&self, other: &Logits) -> f32 {
        self.rows.iter().fold(0.0, |worst, row| match other.rows.binary_search_by_key(&row.index, |r| r.index) {
            Ok(i) => row_diff(&row.logits, &other.rows[i].logits).max(worst),
            Err(_) => f32::INFINITY,
        })
    }
}

pub(super) fn row_diff(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |worst, (x, y)| match (x - y).abs() {
        d if d.is_nan() && x.to_bits() == y.to_bits() => worst,
        d if d.is_nan() => f32::INFINITY,
        d => d.max(worst),
    })
}

/// The greatest entry; the lowest index of several.
pub(super) fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().fold(None, |best: Option<(usize, f32)>, (i, &x)| match best {
        Some((_, y)) if x <= y || x.is_nan() => best,
        _ => Some((i, x)),
    });
    best.map_or(0, |(i, _)| u32::try_from(i).unwrap_or(u32::MAX))
}
