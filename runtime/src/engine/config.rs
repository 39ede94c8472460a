//! What an engine is started with.

use std::{path::PathBuf, time::Duration};

use bantam_backend::KvType;
use bantam_plugins::Families;

use super::EngineError;
use crate::{
    hardware::Hardware,
    os,
    placement::{CacheType, PlacementChoices},
    sampling::SamplingOverrides,
};

/// How much memory kept prefixes take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheSize {
    /// An eighth of what is free once the weights are loaded, at most 8 GiB and what can be useful.
    #[default]
    Auto,
    /// None: only what running sequences share is kept.
    Off,
    /// So many MiB.
    Mib(usize),
}

/// What answers are held to, where a request asks for a form or declares tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRules {
    /// Calls follow the declarations of the tools.
    pub calls: bool,
    /// Answers have the form asked for.
    pub responses: bool,
    /// Most tokens of a call; one that is longer is cut off and ends the answer. `None`: no limit.
    pub max_call_tokens: Option<usize>,
}

impl Default for AnswerRules {
    fn default() -> Self {
        AnswerRules { calls: true, responses: true, max_call_tokens: None }
    }
}

/// Choices that hold for the life of an engine. [`EngineConfig::new`] gives the defaults of `serve`.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Model file.
    pub model: PathBuf,
    /// The families that may describe it.
    pub families: Families,
    /// Name it is served under.
    pub model_name: String,
    /// Sequences that run at once.
    pub parallel: usize,
    /// Longest sequence, prompt plus output; bounded by the model's own length. Reserves nothing by itself.
    pub context: usize,
    /// Most tokens generated where a request sets none.
    pub max_tokens: usize,
    /// Requests that are admitted at once, running and queued; more are refused.
    pub concurrency: usize,
    /// Threads to compute with; 0: one per physical core that may be used.
    pub threads: usize,
    /// Format of cached keys.
    pub k_type: CacheType,
    /// Format of cached values.
    pub v_type: CacheType,
    /// Copy the weights into a form that is faster to compute with, instead of using the files as they are.
    pub repack: bool,
    /// Where weights, state and experts go.
    pub placement: PlacementChoices,
    /// What computes.
    pub hardware: Hardware,
    /// Sampling options given to the server.
    pub sampling: SamplingOverrides,
    /// How much the model thinks where a request does not say: one of [`bantam_text::EFFORT_LEVELS`].
    pub reasoning_effort: Option<String>,
    /// Most tokens that it may think where a request does not say; `None`: no limit.
    pub thinking_budget: Option<usize>,
    /// What answers are held to.
    pub rules: AnswerRules,
    /// Whether spellings of control tokens within messages become these tokens, as in servers that do not tell them apart.
    pub parse_special: bool,
    /// Most rows of a step.
    pub batch: usize,
    /// Part of the time that prompts get while other sequences decode, in percent, if there are prompts.
    pub prefill_share: usize,
    /// Tokens between two points within a prompt that later requests can go on from, for models that cannot at any token.
    pub checkpoint_interval: usize,
    /// Time after which a step is taken for one that will not end; zero: none is.
    pub step_timeout: Duration,
    /// Memory to keep the state of ended conversations in, for those that go on from it.
    pub cache: CacheSize,
    /// Tokens of each running sequence beside one of the whole context that there is memory for; none: as many, as far as
    /// half of the free memory allows.
    pub scratch_context: Option<usize>,
    /// Directory that the cache is saved to and restored from.
    pub cache_dir: Option<PathBuf>,
    /// Time between two saves of the cache while requests are served; it is longer where saving takes long.
    pub cache_save_every: Duration,
    /// Most tokens of a sequence that a step computes on trial.
    pub(crate) max_tentative: usize,
    /// Room for the logits of every row of a step, for probes.
    pub(crate) all_logits: bool,
    /// Tells how many bytes of memory are free.
    pub(crate) available_memory: fn() -> Option<u64>,
    /// Take `context` even where it is longer than the model's own, for probes.
    pub(crate) beyond_model_context: bool,
}

impl EngineConfig {
    /// The defaults for this model.
    pub fn new(model: impl Into<PathBuf>) -> Self {
        EngineConfig {
            model: model.into(),
            families: Families::default(),
            model_name: "local".into(),
            parallel: 4,
            context: 32768,
            max_tokens: 4096,
            concurrency: 64,
            threads: 0,
            k_type: KvType::F16.into(),
            v_type: KvType::F16.into(),
            repack: true,
            placement: PlacementChoices::default(),
            hardware: Hardware::default(),
            sampling: SamplingOverrides::default(),
            reasoning_effort: None,
            thinking_budget: None,
            rules: AnswerRules::default(),
            parse_special: false,
            batch: 512,
            prefill_share: 50,
            checkpoint_interval: 256,
            step_timeout: Duration::from_secs(300),
            cache: CacheSize::Auto,
            scratch_context: None,
            cache_dir: None,
            cache_save_every: Duration::from_secs(60),
            max_tentative: 0,
            all_logits: false,
            available_memory: os::available_memory,
            beyond_model_context: false,
        }
    }

    /// Checks what cannot be.
    pub(crate) fn validate(&self) -> Result<(), EngineError> {
        let limits = [
            ("--prefill-checkpoint-interval", self.checkpoint_interval, 1 << 24),
            ("--prefill-share", self.prefill_share, 99),
            ("--parallel", self.parallel, 1024),
            ("--context", self.context, 1 << 24),
            ("--max-tokens", self.max_tokens, 1 << 24),
            ("--concurrency", self.concurrency, 1 << 16),
            ("--step-tokens", self.batch, 1 << 14),
        ];
        for (flag, value, most) in limits {
            if !(1..=most).contains(&value) {
                return Err(EngineError::Load(format!("{flag} must be in 1..={most}, found {value}")));
            }
        }
        Ok(())
    }
}
