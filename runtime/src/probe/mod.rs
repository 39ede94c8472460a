//! Probes: what the model computes for exactly these tokens, and whether it computes the same whatever way they come.
//!
//! A probe runs through the real engine: its scheduler, its caches, its executor. [`check`] holds the equalities that
//! every family must have: whole prompt == chunks of any size == interleaved with other sequences == from a shared
//! prefix == on another slot == after rejected speculation. Each also shows that it happened.

mod check;
mod dump;
mod run;

use std::{collections::BTreeMap, path::PathBuf};

use bantam_backend::KvType;
use serde::Serialize;

pub use check::CHECKS;
use run::{Plan, Run};

use crate::engine::{Engine, EngineConfig, EngineError, Refusal};

/// What is to be probed.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// Model file.
    pub model: PathBuf,
    /// The sequence, at least one token.
    pub tokens: Vec<u32>,
    /// Tokens to continue it by, greedily.
    pub greedy: usize,
    /// Tokens a step; `None`: as many as fit.
    pub chunk: Option<usize>,
    /// Threads to compute with; 0: one per physical core.
    pub threads: usize,
    /// Format of cached keys.
    pub k_type: KvType,
    /// Format of cached values.
    pub v_type: KvType,
    /// Values whose name matches the pattern (`*` stands for anything) are written to the directory.
    pub dump: Option<(String, PathBuf)>,
    /// Names out of [`CHECKS`].
    pub checks: Vec<String>,
}

/// What a probe found.
#[derive(Debug, Serialize)]
pub struct ProbeReport {
    /// Tokens of the sequence.
    pub n_tokens: usize,
    /// Entries of a logit row.
    pub vocab: usize,
    /// The greedy continuation.
    pub greedy: Vec<u32>,
    /// What was computed, checks included.
    pub counters: Counters,
    /// Per check: the largest difference of a logit to the plain run, and the evidence that the check happened.
    pub checks: BTreeMap<String, CheckReport>,
    /// Logits of each token of the sequence, `[n_tokens, vocab]`.
    #[serde(skip)]
    pub logits: Vec<f32>,
}

/// What was computed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counters {
    /// Token rows.
    pub rows: u64,
    /// Steps.
    pub steps: u64,
    /// Prompt tokens that came out of the cache.
    pub reused_tokens: u64,
}

/// How a check went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Largest |difference| of a logit to the plain run.
    pub max_diff: f32,
    /// What shows that the check did what its name says.
    #[serde(flatten)]
    pub evidence: BTreeMap<&'static str, u64>,
}

/// Why a probe cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The model cannot be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The tokens were not taken.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The model failed.
    #[error("the model failed: {0}")]
    Failed(String),
    /// A token that the model does not have.
    #[error("--tokens: token {token} at index {index}: the vocabulary has {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Where it stands.
        index: usize,
        /// Number of tokens.
        vocab: usize,
    },
    /// No tokens.
    #[error("--tokens: at least one token is needed")]
    Empty,
    /// A check of this name does not exist.
    #[error("--check {name}: no such check; there are: all, {}", CHECKS.join(", "))]
    UnknownCheck {
        /// The name.
        name: String,
    },
    /// A check needs a longer sequence.
    #[error("--check {name}: needs at least {needed} tokens, found {found}")]
    TooShort {
        /// The check.
        name: &'static str,
        /// Tokens it needs.
        needed: usize,
        /// Tokens there are.
        found: usize,
    },
    /// A file cannot be written.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
}

/// Runs a probe.
///
/// # Errors
/// See [`ProbeError`].
pub async fn run(config: ProbeConfig) -> Result<ProbeReport, ProbeError> {
    if config.tokens.is_empty() {
        return Err(ProbeError::Empty);
    }
    let checks = check::select(&config.checks, config.tokens.len())?;
    if let Some((pattern, directory)) = config.dump.clone() {
        let config = config.clone();
        tokio::task::spawn_blocking(move || dump::dump(&config, &pattern, &directory))
            .await
            .map_err(|e| ProbeError::Failed(e.to_string()))??;
    }
    let engine = Engine::start(engine_config(&config))?;
    let result = probe(&engine, &config, &checks).await;
    engine.stop().await;
    result
}

async fn probe(engine: &Engine, config: &ProbeConfig, checks: &[&'static str]) -> Result<ProbeReport, ProbeError> {
    let info = engine.ready().await?;
    if let Some((index, &token)) = config.tokens.iter().enumerate().find(|(_, t)| **t as usize >= info.vocab) {
        return Err(ProbeError::Token { token, index, vocab: info.vocab });
    }
    // Speculation is checked while decoding, so checks decode a little even if no continuation is asked for.
    let decoded = if checks.is_empty() { config.greedy } else { config.greedy.max(check::DECODED) };
    let plan = Plan { chunk: config.chunk.unwrap_or(0), ..Plan::new(&config.tokens, decoded) };
    let whole = Run::start(engine, plan)?.finish().await?;
    let mut reports = BTreeMap::new();
    for name in checks {
        let report = check::run(name, engine, Plan::new(&config.tokens, decoded), &whole).await?;
        reports.insert((*name).to_string(), report);
    }
    let status = engine.status().await;
    Ok(ProbeReport {
        n_tokens: config.tokens.len(),
        vocab: info.vocab,
        greedy: whole.greedy(config.tokens.len()).into_iter().take(config.greedy).collect(),
        counters: Counters { rows: status.rows, steps: status.steps, reused_tokens: status.reused_tokens },
        checks: reports,
        logits: whole.prompt_logits(config.tokens.len()),
    })
}

fn engine_config(config: &ProbeConfig) -> EngineConfig {
    let length = config.tokens.len() + config.greedy + check::EXTRA_TOKENS;
    EngineConfig {
        parallel: check::SEQUENCES,
        context: length,
        threads: config.threads,
        k_type: config.k_type,
        v_type: config.v_type,
        all_logits: true,
        beyond_model_context: true,
        ..EngineConfig::new(config.model.clone())
    }
}
