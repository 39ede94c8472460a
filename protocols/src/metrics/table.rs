//! The figures that are read from the runtime's status: one row for each name.

use bantam_runtime::engine::{ModelInfo, SlotState, Status};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::llama::slots::state_name;

/// A name, what it means and where its value is found. The names of counters are told with `_total` at their end.
pub(super) struct Row {
    name: &'static str,
    help: &'static str,
    figure: Figure,
}

enum Figure {
    Counter(fn(&Status) -> u64),
    /// A counter of seconds.
    Time(fn(&Status) -> f64),
    /// A gauge; one that has no value yet is left out.
    Gauge(fn(&Status) -> Option<f64>),
    /// A gauge with one value for each value of a label.
    Parts(&'static str, fn(&Status) -> Vec<(&'static str, usize)>),
}

use Figure::{Counter, Gauge as Level, Parts, Time};

const fn row(name: &'static str, figure: Figure, help: &'static str) -> Row {
    Row { name, help, figure }
}

/// Under names of this server.
pub(super) const BANTAM: &[Row] = &[
    row("bantam_slots", Parts("state", slots), "Slots by what they do"),
    row("bantam_requests_running", Level(|s| Some(s.running() as f64)), "Requests that are being computed"),
    row(
        "bantam_requests_waiting",
        Level(|s| Some(s.waiting() as f64)),
        "Requests that are not being computed yet, with and without a slot",
    ),
    row("bantam_requests_queued", Level(|s| Some(s.queued as f64)), "Requests that have no slot yet"),
    row("bantam_steps", Counter(|s| s.steps), "Steps that ended"),
    row("bantam_steps_failed", Counter(|s| s.steps_failed), "Steps that failed"),
    row("bantam_step_seconds", Time(|s| s.step_time.as_secs_f64()), "Time that steps took, in seconds"),
    row(
        "bantam_step_running_seconds",
        Level(|s| Some(s.step_running.unwrap_or_default().as_secs_f64())),
        "Time since the step that is being computed began, in seconds; 0 while there is none",
    ),
    row(
        "bantam_last_step_age_seconds",
        Level(|s| s.last_step.map(|age| age.as_secs_f64())),
        "Time since the last step ended, in seconds; absent before the first",
    ),
    row(
        "bantam_step_sequences_max",
        Level(|s| Some(s.max_step_sequences as f64)),
        "Most sequences that one step has carried",
    ),
    row("bantam_rows_computed", Counter(|s| s.rows), "Rows (tokens of sequences) that went through the model"),
    row(
        "bantam_prefill_rows_computed",
        Counter(|s| s.prompt_rows),
        "Rows of prompts, and of sequences that were displaced and are computed again",
    ),
    row(
        "bantam_decode_rows_computed",
        Counter(|s| s.rows.saturating_sub(s.prompt_rows)),
        "Rows that were the one new token of their sequence",
    ),
    row(
        "bantam_prefill_tokens_per_second",
        Level(|s| s.prefill_speed),
        "Prompt rows a second of the steps that had any, mostly of those in the last 10 seconds of computing",
    ),
    row(
        "bantam_decode_tokens_per_second",
        Level(|s| s.decode_speed),
        "Decode rows a second of the steps that had any, mostly of those in the last 10 seconds of computing",
    ),
    row(
        "bantam_prompt_tokens",
        Counter(|s| s.prompt_tokens),
        "Tokens of prompts whose first token was generated, found in the cache or computed",
    ),
    row("bantam_generated_tokens", Counter(|s| s.generated_tokens), "Tokens generated, end tokens not counted"),
    row("bantam_prefix_tokens_wanted", Counter(|s| s.state.tokens_wanted), "Tokens looked up in the prefix cache"),
    row("bantam_prefix_tokens_found", Counter(|s| s.state.tokens_reused), "Tokens found in the prefix cache"),
    row(
        "bantam_prefixes_evicted",
        Counter(|s| s.state.evictions),
        "Prefixes and points to go on from that gave way to others, in whole or in part",
    ),
    row("bantam_prefix_tokens_evicted", Counter(|s| s.state.tokens_evicted), "Tokens whose state was evicted"),
    row(
        "bantam_sequences_displaced",
        Counter(|s| s.displaced),
        "Sequences that gave their memory to older ones and started again later",
    ),
    row("bantam_state_pages", Parts("use", pages), "Pages of state: held by running sequences, or cached only"),
    row(
        "bantam_state_bytes",
        Level(|s| Some(s.state.bytes as f64)),
        "Memory of state that is held or cached, in bytes",
    ),
    row("bantam_state_budget_bytes", Level(|s| Some(s.state.budget as f64)), "Most memory for state, in bytes"),
    row(
        "bantam_state_usage_ratio",
        Level(|s| Some(s.state.usage)),
        "Part of the memory for state that running sequences hold, 0 to 1; what is only cached is free for others",
    ),
];

/// The same under vLLM's names.
pub(super) const VLLM: &[Row] = &[
    row("vllm:num_requests_running", Level(|s| Some(s.running() as f64)), "Requests that are being computed"),
    row("vllm:num_requests_waiting", Level(|s| Some(s.waiting() as f64)), "Requests that are not being computed yet"),
    row(
        "vllm:kv_cache_usage_perc",
        Level(|s| Some(s.state.usage)),
        "Part of the memory for state that running sequences hold, 0 to 1",
    ),
    row("vllm:gpu_cache_usage_perc", Level(|s| Some(s.state.usage)), "The older name of vllm:kv_cache_usage_perc"),
    row("vllm:prefix_cache_queries", Counter(|s| s.state.tokens_wanted), "Tokens looked up in the prefix cache"),
    row("vllm:prefix_cache_hits", Counter(|s| s.state.tokens_reused), "Tokens found in the prefix cache"),
    row("vllm:num_preemptions", Counter(|s| s.displaced), "Sequences that gave their memory to older ones"),
    row("vllm:prompt_tokens", Counter(|s| s.prompt_tokens), "Tokens of prompts whose first token was generated"),
    row("vllm:generation_tokens", Counter(|s| s.generated_tokens), "Tokens generated"),
];

fn slots(status: &Status) -> Vec<(&'static str, usize)> {
    use SlotState::{Blocked, Decode, Idle, Prefill, Waiting};
    let count = |state| status.slots.iter().filter(|slot| slot.state == state).count();
    [Idle, Waiting, Prefill, Decode, Blocked].map(|state| (state_name(state), count(state))).into()
}

fn pages(status: &Status) -> Vec<(&'static str, usize)> {
    vec![("held", status.state.pages_held), ("cached", status.state.pages_cached)]
}

/// Registers the values that these rows have now.
pub(super) fn register(registry: &mut Registry, rows: &[Row], status: &Status) {
    for Row { name, help, figure } in rows {
        match figure {
            Counter(read) => registry.register(*name, *help, ConstCounter::new(read(status))),
            Time(read) => registry.register(*name, *help, ConstCounter::new(read(status))),
            Level(read) => {
                if let Some(value) = read(status) {
                    registry.register(*name, *help, ConstGauge::new(value));
                }
            }
            Parts(label, read) => {
                let family = Family::<[(&'static str, &'static str); 1], Gauge>::default();
                for (part, value) in read(status) {
                    family.get_or_create(&[(label, part)]).set(i64::try_from(value).unwrap_or(i64::MAX));
                }
                registry.register(*name, *help, family);
            }
        }
    }
}

/// A gauge that is always 1 and says something by its labels.
fn register_info<const N: usize>(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    labels: &[(&'static str, String); N],
) {
    let family = Family::<[(&'static str, String); N], Gauge>::default();
    family.get_or_create(labels).set(1);
    registry.register(name, help, family);
}

pub(super) fn register_build(registry: &mut Registry, model: &ModelInfo) {
    let labels = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("backend", model.backend.to_owned()),
        ("architecture", model.architecture.clone()),
    ];
    register_info(registry, "bantam_build_info", "Always 1; the labels say what runs", &labels);
}

/// What routers that follow the prefixes of prompts size their tables by.
pub(super) fn register_cache(registry: &mut Registry, status: &Status) {
    let labels = [
        ("block_size", status.state.block_tokens.to_string()),
        ("num_gpu_blocks", status.state.blocks.to_string()),
        ("enable_prefix_caching", "True".to_owned()),
    ];
    let help = "Always 1; the labels say how many blocks of how many tokens the memory for state has";
    register_info(registry, "vllm:cache_config_info", help, &labels);
}
