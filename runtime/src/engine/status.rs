//! What the runtime says about itself: for `/health`, `/props`, `/slots` and the log.

use std::sync::Arc;

use bantam_text::{Capabilities, ChatTemplate, Tokenizer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use super::SamplingDefaults;
use crate::snapshot::SnapshotKey;

/// Whether requests can be served.
#[derive(Clone, Debug)]
pub enum Readiness {
    /// The model is being loaded: part done, 0 to 1.
    Loading(f32),
    /// Requests are served.
    Ready(Arc<ModelInfo>),
    /// The model cannot be loaded, and why.
    Failed(String),
    /// The server is shutting down.
    Draining,
}

/// The resident model.
pub struct ModelInfo {
    /// The name it is served under (`--model-name`).
    pub name: String,
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`, if the file has one.
    pub title: Option<String>,
    /// File or directory it came from.
    pub path: String,
    /// Seconds since the epoch when it became ready.
    pub created: u64,
    /// Longest sequence served: prompt plus output.
    pub context: usize,
    /// Longest sequence the model was made for.
    pub model_context: usize,
    /// Entries of a logit row.
    pub vocab: usize,
    /// Sequences that run at once.
    pub parallel: usize,
    /// Most tokens generated where a request sets none.
    pub max_tokens: usize,
    /// Resolved configuration.
    pub config: Map<String, Value>,
    /// What holds where a request says nothing.
    pub sampling: SamplingDefaults,
    /// The vocabulary.
    pub tokenizer: Tokenizer,
    /// The chat template, if the model has one.
    pub template: Option<ChatTemplate>,
    /// Why the model's chat template cannot be used.
    pub template_error: Option<String>,
    /// What the template was found to understand.
    pub template_capabilities: Option<Capabilities>,
    /// Its source.
    pub template_source: Option<String>,
    /// The special tokens by the names that templates use.
    pub special_tokens: BTreeMap<String, String>,
    /// Tokens that end a generation.
    pub end_tokens: Vec<u32>,
    /// What a snapshot must agree in to be restored here.
    pub snapshot_key: SnapshotKey,
    /// Bytes of weights in memory.
    pub weight_bytes: u64,
    /// Backend in use.
    pub backend: &'static str,
    /// Threads it computes with.
    pub threads: usize,
}

impl std::fmt::Debug for ModelInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModelInfo({} {})", self.name, self.architecture)
    }
}

/// What a slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing.
    Idle,
    /// Computing its prompt.
    Prefill,
    /// Generating.
    Decode,
    /// Waiting for its client to read.
    Blocked,
}

/// One slot.
#[derive(Clone, Debug)]
pub struct SlotStatus {
    /// Number of the slot.
    pub id: usize,
    /// What it does.
    pub state: SlotState,
    /// Number of the request it serves.
    pub request: Option<u64>,
    /// Tokens of that request's prompt.
    pub prompt_tokens: usize,
    /// Of these, computed or found so far.
    pub prompt_done: usize,
    /// Of these, found in the cache.
    pub cached_tokens: usize,
    /// Tokens generated so far.
    pub generated: usize,
}

/// A moment of the runtime.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The slots.
    pub slots: Vec<SlotStatus>,
    /// Requests admitted that have no slot yet.
    pub queued: usize,
    /// Steps run since the start.
    pub steps: u64,
    /// Rows computed since the start.
    pub rows: u64,
    /// Most sequences that one step has carried.
    pub max_step_sequences: usize,
    /// Prompt tokens that were found in the cache, since the start.
    pub reused_tokens: u64,
    /// State pages: in use by running sequences or kept as prefixes.
    pub pages_used: usize,
    /// Bytes of state in use.
    pub state_bytes: u64,
    /// Most bytes of state that may be in use.
    pub state_budget_bytes: u64,
}

/// What the experts of one mixture have computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MixtureStatus {
    /// Rows that each expert has computed, by the expert's number.
    pub rows: Vec<u64>,
}
