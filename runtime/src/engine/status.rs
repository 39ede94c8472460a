//! What the runtime says about itself: for `/health`, `/props`, `/slots` and the log.

use std::sync::Arc;

use bantam_grammar::Vocabulary;
use bantam_text::{Capabilities, ChatTemplate, OutputFormat, Tokenizer};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, time::Duration};

use super::{AnswerRules, Miss, SamplingDefaults};
use crate::{placement::Plan, snapshot::SnapshotKey};

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
    /// Its computation as JSON: the graphs as `graph` and `draft`, `types` of their values by name, and the checkpoint's
    /// `tensors`; or why there is none.
    pub graphs: Result<Arc<str>, String>,
    /// The special tokens by the names that templates use.
    pub special_tokens: BTreeMap<String, String>,
    /// Where its weights and its state lie; none where it is a program and no checkpoint.
    pub plan: Option<Arc<Plan>>,
    /// What answers are held to.
    pub rules: AnswerRules,
    /// Whether spellings of control tokens within messages become these tokens.
    pub parse_special: bool,
    /// How the model marks the parts of its turns.
    pub output: OutputFormat,
    /// Control tokens that are part of these marks, in rising order.
    pub marks: Arc<[u32]>,
    /// What grammars are compiled for; or why there can be none.
    pub vocabulary: Result<Vocabulary, String>,
    /// Tokens that end a generation.
    pub end_tokens: Vec<u32>,
    /// How much the model thinks where a request does not say.
    pub reasoning_effort: Option<String>,
    /// Most tokens that it may think where a request does not say; `None`: no limit.
    pub thinking_budget: Option<usize>,
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
    /// Waiting for a prefix that another request computes, for memory, or for its turn.
    Waiting,
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
    /// Why there were no more of them.
    pub miss: Option<Miss>,
    /// Tokens generated so far.
    pub generated: usize,
    /// The request that is computing a prefix which this one waits for.
    pub waits_for: Option<u64>,
    /// A request that ran when this one began, and began with the tokens that this one found in the cache.
    pub shares_with: Option<u64>,
    /// Since the request was given the slot.
    pub in_slot: Duration,
    /// Since its first token was there.
    pub decoding: Option<Duration>,
}

impl SlotStatus {
    /// A slot that does nothing.
    pub(crate) fn idle(id: usize) -> Self {
        SlotStatus {
            id,
            state: SlotState::Idle,
            request: None,
            prompt_tokens: 0,
            prompt_done: 0,
            cached_tokens: 0,
            miss: None,
            generated: 0,
            waits_for: None,
            shares_with: None,
            in_slot: Duration::ZERO,
            decoding: None,
        }
    }
}

/// A request that has no slot yet.
#[derive(Clone, Copy, Debug)]
pub struct QueuedStatus {
    /// Number of the request.
    pub request: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Since it was submitted.
    pub waiting: Duration,
}

/// Memory for the state of sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StateStatus {
    /// Pages that running sequences hold.
    pub pages_held: usize,
    /// Pages that are kept as prefixes only, and given up where others need them.
    pub pages_cached: usize,
    /// Bytes of pages and recurrent state, held or cached.
    pub bytes: u64,
    /// Of these, held by running sequences.
    pub bytes_held: u64,
    /// Most bytes of these.
    pub budget: u64,
    /// Part of the memory that running sequences hold, 0 to 1: of that for pages or of that for recurrent state, whichever
    /// is more.
    pub usage: f64,
    /// Tokens of a block, the unit in which the memory is told to others; 0 where it does not grow with a sequence.
    pub block_tokens: usize,
    /// Blocks that fit the memory.
    pub blocks: u64,
    /// Tokens of prompts that were looked up, since the start.
    pub tokens_wanted: u64,
    /// Of these, found.
    pub tokens_reused: u64,
    /// Prefixes evicted, in whole or in part, since the start.
    pub evictions: u64,
    /// Tokens whose state was evicted, since the start.
    pub tokens_evicted: u64,
}

/// A moment of the runtime. What is counted since the start begins anew where the runtime had to restart its parts.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The slots.
    pub slots: Vec<SlotStatus>,
    /// Requests admitted that have no slot yet.
    pub queued: usize,
    /// Each of them, in order.
    pub queue: Vec<QueuedStatus>,
    /// Steps run since the start.
    pub steps: u64,
    /// Of them, those that failed.
    pub steps_failed: u64,
    /// Time that steps took, since the start.
    pub step_time: Duration,
    /// Since the step that is being computed began; `None` while there is none. Moving state between steps counts as one.
    pub step_running: Option<Duration>,
    /// Since the last step ended; `None` before the first.
    pub last_step: Option<Duration>,
    /// Rows computed since the start.
    pub rows: u64,
    /// Of them, rows of sequences that had no new token to compute alone: of prompts, and of what a displaced sequence
    /// computes again.
    pub prompt_rows: u64,
    /// Prompt rows a second of the steps that had any, mostly of those in the last 10 seconds of computing; `None` before
    /// the first.
    pub prefill_speed: Option<f64>,
    /// The same of rows that were the one new token of their sequence.
    pub decode_speed: Option<f64>,
    /// Most sequences that one step has carried.
    pub max_step_sequences: usize,
    /// Prompt tokens that were found in the cache, since the start.
    pub reused_tokens: u64,
    /// Tokens of prompts whose first token was generated, since the start.
    pub prompt_tokens: u64,
    /// Tokens generated since the start, end tokens not counted.
    pub generated_tokens: u64,
    /// Sequences that gave their memory to older ones, since the start.
    pub displaced: u64,
    /// Memory for the state of sequences.
    pub state: StateStatus,
}

impl Status {
    /// Requests that are being computed.
    pub fn running(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot.state, SlotState::Idle | SlotState::Waiting)).count()
    }

    /// Requests that are not being computed yet, with and without a slot.
    pub fn waiting(&self) -> usize {
        self.queued + self.slots.iter().filter(|slot| slot.state == SlotState::Waiting).count()
    }
}

/// Who holds how much memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatus {
    /// What was free when the model began to be loaded, in bytes; `None` where the system does not say.
    pub total: Option<u64>,
    /// What was taken of it, in the order in which it was.
    pub entries: Vec<MemoryEntry>,
    /// What is free now, in bytes.
    pub available: Option<u64>,
    /// What the whole machine has, or the part of it that this process may use.
    pub machine: Option<u64>,
    /// What this process has in memory, mapped files included.
    pub process: Option<u64>,
    /// The file that the cache is saved to, if there is one: on the disk, not in memory.
    pub cache_file: Option<u64>,
    /// The device that the model lies on, if it does not lie in the host's memory.
    pub device: Option<DeviceStatus>,
}

/// A device that a model lies on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Its number.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// What it has, in bytes.
    pub bytes: u64,
    /// What was free when the model began to be loaded, in bytes.
    pub free: u64,
    /// What was taken of it, in the order in which it was.
    pub entries: Vec<MemoryEntry>,
}

/// A part of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryEntry {
    /// Whose it is (`family:instance`).
    pub owner: String,
    /// What it is for.
    pub what: String,
    /// How much.
    pub bytes: u64,
}

/// What an actor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorState {
    /// It takes messages.
    Running,
    /// It has stopped, failed, or not begun.
    Stopped,
}

/// An actor and those that it watches over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorStatus {
    /// What it is called; slots have their number behind it.
    pub name: String,
    /// What it does.
    pub state: ActorState,
    /// How often it was started again, be it alone or with those around it.
    pub restarts: u64,
    /// How often it failed itself.
    pub failures: u64,
    /// Why it failed last.
    pub last_failure: Option<String>,
    /// Those that it starts, and starts again.
    pub children: Vec<ActorStatus>,
}

/// What the experts of one mixture have computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MixtureStatus {
    /// Rows that each expert has computed, by the expert's number.
    pub rows: Vec<u64>,
}
