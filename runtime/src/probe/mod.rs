//! Probes: what the model computes for exactly these tokens, and whether it computes the same whatever way they come.
//!
//! A probe runs through the real engine: its scheduler, its caches, its executor. [`check`] holds the equalities that
//! every family must have: whole prompt == chunks of any size == interleaved with other sequences == from a shared
//! prefix == on another slot == after rejected speculation == after snapshot and restore. Each also shows that it happened.

mod check;
mod draft;
mod dump;
mod run;
mod snapshot;

use std::{collections::BTreeMap, ops::Add, path::PathBuf};

use bantam_backend::KvType;
use bantam_plugins::Families;
use serde::Serialize;

pub use check::CHECKS;
pub(crate) use check::Fresh;
pub use draft::DraftReport;
use run::{Plan, Run};

use crate::{
    engine::{CacheSize, Engine, EngineConfig, EngineError, Refusal, Status},
    hardware::Hardware,
    placement::{BackendChoice, PlacementChoices},
    snapshot::SnapshotError,
};

/// What is to be probed.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// Model file.
    pub model: PathBuf,
    /// The families that may describe it.
    pub families: Families,
    /// The sequence, at least one token.
    pub tokens: Vec<u32>,
    /// Tokens to continue it by, greedily.
    pub greedy: usize,
    /// Tokens a step; `None`: as many as fit.
    pub chunk: Option<usize>,
    /// Threads to compute with; 0: one per physical core.
    pub threads: usize,
    /// What computes.
    pub hardware: Hardware,
    /// Format of cached keys.
    pub k_type: KvType,
    /// Format of cached values.
    pub v_type: KvType,
    /// Copy the weights into a form that is faster to compute with, instead of using the files as they are.
    pub repack: bool,
    /// Values whose name matches the pattern (`*` stands for anything) are written to the directory.
    pub dump: Option<(String, PathBuf)>,
    /// The draft to be run too, if any.
    pub draft: Option<DraftChoice>,
    /// Names out of [`CHECKS`].
    pub checks: Vec<String>,
    /// File to write the state after the sequence to.
    pub save: Option<PathBuf>,
    /// File with the state of some of the first tokens, to go on from.
    pub restore: Option<PathBuf>,
    /// How the check `snapshot` computes the rest of a sequence in a process of its own; `None`: in a new engine of this
    /// process.
    pub new_process: Option<NewProcess>,
}

/// Computes a sequence in a new process, from the snapshot in the file.
pub type NewProcess = fn(&ProbeConfig, &[u8]) -> Result<Rest, String>;

/// What was computed behind a snapshot.
#[derive(Debug, Default)]
pub struct Rest {
    /// Tokens of the sequence that the snapshot had.
    pub reused_tokens: usize,
    /// Logits of each token behind them.
    pub logits: Vec<f32>,
    /// The greedy continuation.
    pub greedy: Vec<u32>,
}

impl ProbeConfig {
    /// A probe of these tokens with nothing else asked for, and the cache in f32.
    pub fn new(model: PathBuf, tokens: Vec<u32>) -> Self {
        ProbeConfig {
            model,
            families: Families::default(),
            tokens,
            greedy: 0,
            chunk: None,
            threads: 0,
            hardware: Hardware::default(),
            k_type: KvType::F32,
            v_type: KvType::F32,
            repack: true,
            dump: None,
            draft: None,
            checks: Vec::new(),
            save: None,
            restore: None,
            new_process: None,
        }
    }
}

/// Which draft of a model is meant.
#[derive(Clone, Debug)]
pub enum DraftChoice {
    /// The one that the model's checkpoint carries.
    BuiltIn,
    /// That of a file of its own.
    File(PathBuf),
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
    /// What the draft proposes, if it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftReport>,
    /// Per check: the largest difference of a logit to the plain run, and the evidence that the check happened.
    pub checks: BTreeMap<String, CheckReport>,
    /// Logits of each token of the sequence, `[n_tokens, vocab]`; without those of tokens that were restored.
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

impl Counters {
    fn of(status: &Status) -> Self {
        Counters { rows: status.rows, steps: status.steps, reused_tokens: status.reused_tokens }
    }
}

impl Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        Counters {
            rows: self.rows + other.rows,
            steps: self.steps + other.steps,
            reused_tokens: self.reused_tokens + other.reused_tokens,
        }
    }
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
    /// The model has no draft.
    #[error("--draft-logits: {} carries no draft block; name the draft's file by --draft", .model.display())]
    NoDraft {
        /// The model.
        model: PathBuf,
    },
    /// The draft's file is of no use for the model.
    #[error("--draft: {0}")]
    Draft(String),
    /// Nothing to draft from.
    #[error("--tokens: a draft needs two tokens at least, of which the model has seen all but the last")]
    NothingSeen,
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
    /// The file to go on from is of no use.
    #[error("--restore {path}: {why}")]
    Restore {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: SnapshotError,
    },
    /// No value has a name like this.
    #[error("--dump {pattern}: no value has such a name; there are {count}, such as {examples}")]
    NothingToDump {
        /// The pattern.
        pattern: String,
        /// How many values there are.
        count: usize,
        /// Some of their names.
        examples: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
}

impl ProbeError {
    /// Whether something was asked for that cannot be meant, rather than something having failed.
    pub fn is_usage(&self) -> bool {
        match self {
            ProbeError::Token { .. }
            | ProbeError::Empty
            | ProbeError::NoDraft { .. }
            | ProbeError::NothingSeen
            | ProbeError::UnknownCheck { .. }
            | ProbeError::TooShort { .. }
            | ProbeError::NothingToDump { .. } => true,
            ProbeError::Engine(_)
            | ProbeError::Refused(_)
            | ProbeError::Failed(_)
            | ProbeError::Draft(_)
            | ProbeError::Restore { .. }
            | ProbeError::File { .. } => false,
        }
    }
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
        blocking(&config, move |config| dump::dump(config, &pattern, &directory)).await?;
    }
    let fresh = OfConfig(engine_config(&config));
    let mut engine = fresh.engine().await?;
    let result = probe(&mut engine, &fresh, &config, &checks).await;
    engine.stop().await;
    let mut report = result?;
    if let Some(choice) = config.draft.clone() {
        report.draft = Some(blocking(&config, move |config| draft::draft(config, &choice)).await?);
    }
    Ok(report)
}

/// Runs what computes on this thread.
async fn blocking<T: Send + 'static>(
    config: &ProbeConfig,
    work: impl FnOnce(&ProbeConfig) -> Result<T, ProbeError> + Send + 'static,
) -> Result<T, ProbeError> {
    let config = config.clone();
    tokio::task::spawn_blocking(move || work(&config)).await.map_err(|e| ProbeError::Failed(e.to_string()))?
}

struct OfConfig(EngineConfig);

impl Fresh for OfConfig {
    async fn engine(&self) -> Result<Engine, ProbeError> {
        let engine = Engine::start(self.0.clone())?;
        engine.ready().await?;
        Ok(engine)
    }
}

/// Runs the sequence plainly, then the checks against that.
pub(crate) async fn probe<F: Fresh>(
    engine: &mut Engine,
    fresh: &F,
    config: &ProbeConfig,
    checks: &[&'static str],
) -> Result<ProbeReport, ProbeError> {
    let info = engine.ready().await?;
    if let Some((index, &token)) = config.tokens.iter().enumerate().find(|(_, t)| **t as usize >= info.vocab) {
        return Err(ProbeError::Token { token, index, vocab: info.vocab });
    }
    if config.tokens.len() + config.greedy > info.model_context {
        let (asked, most) = (config.tokens.len() + config.greedy, info.model_context);
        tracing::warn!("a sequence of {asked} tokens, of which the model was made for {most} at most");
    }
    // Speculation is checked while decoding, so checks decode a little even if no continuation is asked for.
    let decoded = if checks.is_empty() { config.greedy } else { config.greedy.max(check::DECODED) };
    snapshot::restore(engine, config).await?;
    let share = config.save.is_some() || config.restore.is_some();
    let plan = Plan { chunk: config.chunk.unwrap_or(0), share, ..Plan::new(&config.tokens, decoded) };
    let whole = Run::start(engine, plan)?.finish().await?;
    snapshot::save(engine, config).await?;
    let (reports, spent) = check::run_all(checks, engine, fresh, config, &whole, decoded).await?;
    let status = engine.status().await;
    Ok(ProbeReport {
        n_tokens: config.tokens.len(),
        vocab: info.vocab,
        greedy: whole.greedy(config.tokens.len()).into_iter().take(config.greedy).collect(),
        counters: spent + Counters::of(&status),
        draft: None,
        checks: reports,
        logits: whole.prompt_logits(config.tokens.len()),
    })
}

/// On a device, where there are any.
fn placement(hardware: &Hardware) -> PlacementChoices {
    let backend = match hardware {
        Hardware::Cpu => BackendChoice::Cpu,
        Hardware::Devices(_) => BackendChoice::Cuda,
    };
    PlacementChoices { backend, ..PlacementChoices::default() }
}

fn engine_config(config: &ProbeConfig) -> EngineConfig {
    let length = config.tokens.len() + config.greedy + check::EXTRA_TOKENS;
    EngineConfig {
        parallel: check::SEQUENCES,
        context: length,
        threads: config.threads,
        hardware: config.hardware.clone(),
        placement: placement(&config.hardware),
        k_type: config.k_type.into(),
        v_type: config.v_type.into(),
        repack: config.repack,
        cache: CacheSize::Off,
        max_tentative: check::MOST_REJECTED,
        all_logits: true,
        beyond_model_context: true,
        families: config.families.clone(),
        ..EngineConfig::new(config.model.clone())
    }
}
