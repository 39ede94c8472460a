//! What a benchmark finds out, and how it is shown.

use bantam_runtime::words::printable;
use serde::{Deserialize, Serialize};

/// What was measured. Fields with `_s` are seconds or per second.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) model: String,
    pub(super) architecture: String,
    pub(super) backend: String,
    pub(super) threads: usize,
    pub(super) prompt_tokens: usize,
    pub(super) decode_tokens: usize,
    pub(super) depth: usize,
    pub(super) batch: usize,
    pub(super) iterations: usize,
    pub(super) load_s: f64,
    /// From the start to the first token behind a prompt, loading included.
    pub(super) first_token_s: f64,
    pub(super) prefill_tok_s: f64,
    pub(super) decode_tok_s: f64,
    pub(super) weight_bytes: u64,
    pub(super) weight_bytes_per_token: u64,
    /// Without the buffers that the machine's memory is measured with.
    pub(super) peak_rss_bytes: Option<u64>,
    pub(super) read_gb_s: f64,
    pub(super) int8_tops: f64,
    /// Two turns of a conversation through the whole engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) chat: Option<[Turn; 2]>,
}

/// An answer in a conversation.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Turn {
    pub(super) prompt_tokens: usize,
    /// Of the prompt, found in the cache.
    pub(super) cached_tokens: usize,
    /// From the request to the first token.
    pub(super) ttft_s: f64,
    /// Behind the first token.
    pub(super) decode_tok_s: f64,
}

impl Report {
    /// The share that decode has of reading the weights once a step at the memory's speed.
    pub(super) fn decode_bound_share(&self) -> f64 {
        let steps_per_s = self.decode_tok_s / self.batch as f64;
        steps_per_s * self.weight_bytes_per_token as f64 / (self.read_gb_s * 1e9)
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let mut rows = vec![
            ("model", printable(&format!("{} ({})", self.model, self.architecture))),
            ("threads", format!("{} ({})", self.threads, self.backend)),
            ("load", format!("{:.2} s, {:.2} GB of weights", self.load_s, gb(self.weight_bytes))),
            ("first token", format!("{:.2} s, loading included", self.first_token_s)),
            ("prefill", format!("{:.1} tok/s over {} tokens", self.prefill_tok_s, self.prompt_tokens)),
            (
                "decode",
                format!(
                    "{:.1} tok/s over {} tokens, {} at once, from depth {}",
                    self.decode_tok_s, self.decode_tokens, self.batch, self.depth
                ),
            ),
        ];
        rows.extend(
            self.chat.iter().flatten().zip(["first turn", "second turn"]).map(|(turn, name)| (name, turn.row())),
        );
        rows.extend([
            ("peak memory", self.peak_rss_bytes.map_or("unknown".into(), |bytes| format!("{:.2} GB", gb(bytes)))),
            ("machine", format!("{:.1} GB/s read, {:.2} int8 TOPS", self.read_gb_s, self.int8_tops)),
            ("decode bound", format!("{:.0} % of reading the weights once a step", 100.0 * self.decode_bound_share())),
        ]);
        rows.iter().map(|(name, value)| format!("{name:<13}{value}\n")).collect()
    }
}

impl Turn {
    fn row(&self) -> String {
        format!(
            "{:.3} s to the first token of {} prompt tokens, {} of them cached; then {:.1} tok/s",
            self.ttft_s, self.prompt_tokens, self.cached_tokens, self.decode_tok_s
        )
    }
}
