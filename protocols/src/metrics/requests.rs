//! What is counted as requests go by.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bantam_runtime::engine::{FinishReason, Outcome};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of vLLM's histograms, in seconds.
const FIRST_TOKEN_S: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const BETWEEN_TOKENS_S: [f64; 19] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const REQUEST_S: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

/// The same in tokens: up to the longest windows that models have.
const TOKENS: [f64; 19] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];

/// How a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Stop,
    Length,
    /// Nobody wanted the answer any more: the client left, or the deadline that it gave has passed.
    Abort,
    Error,
}

impl Ending {
    const ALL: [Ending; 4] = [Ending::Stop, Ending::Length, Ending::Abort, Ending::Error];

    /// As vLLM calls it.
    fn name(self) -> &'static str {
        match self {
            Ending::Stop => "stop",
            Ending::Length => "length",
            Ending::Abort => "abort",
            Ending::Error => "error",
        }
    }
}

impl From<FinishReason> for Ending {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop | FinishReason::ToolCalls => Ending::Stop,
            FinishReason::Length => Ending::Length,
        }
    }
}

type ByLabel<V> = Family<[(&'static str, V); 1], Counter<u64, AtomicU64>>;

/// Counters and histograms of all requests since the server started.
#[derive(Debug)]
pub(crate) struct Requests {
    ended: ByLabel<&'static str>,
    errors: ByLabel<u16>,
    first_token: Histogram,
    between_tokens: Histogram,
    request: Histogram,
    prompt_tokens: Histogram,
    generated_tokens: Histogram,
}

impl Requests {
    /// None yet.
    pub(crate) fn new() -> Self {
        let requests = Requests {
            ended: Family::default(),
            errors: Family::default(),
            first_token: Histogram::new(FIRST_TOKEN_S),
            between_tokens: Histogram::new(BETWEEN_TOKENS_S),
            request: Histogram::new(REQUEST_S),
            prompt_tokens: Histogram::new(TOKENS),
            generated_tokens: Histogram::new(TOKENS),
        };
        // A counter that is there from the start shows its first increment.
        for ending in Ending::ALL {
            drop(requests.ended.get_or_create(&[(FINISHED_REASON, ending.name())]));
        }
        for status in [400, 429, 503] {
            drop(requests.errors.get_or_create(&[(STATUS, status)]));
        }
        requests
    }

    /// A request was answered with an error.
    pub(crate) fn answered_with_error(&self, status: u16) {
        self.errors.get_or_create(&[(STATUS, status)]).inc();
    }

    pub(super) fn started(&self, first_token: Duration) {
        self.first_token.observe(first_token.as_secs_f64());
    }

    pub(super) fn paused(&self, between_tokens: Duration) {
        self.between_tokens.observe(between_tokens.as_secs_f64());
    }

    pub(super) fn finished(&self, outcome: &Outcome, took: Duration) {
        self.request.observe(took.as_secs_f64());
        self.prompt_tokens.observe(outcome.prompt_tokens as f64);
        self.generated_tokens.observe(outcome.completion_tokens as f64);
    }

    pub(super) fn ended(&self, ending: Ending) {
        self.ended.get_or_create(&[(FINISHED_REASON, ending.name())]).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "bantam_error_responses",
            "Requests that were answered with an error, by the status",
            self.errors.clone(),
        );
    }

    pub(super) fn register_vllm(&self, registry: &mut Registry) {
        registry.register(
            "vllm:request_success",
            "Generations that ended, by how; `abort`: the client left or its deadline passed",
            self.ended.clone(),
        );
        let between =
            "Time between two pieces of an answer as its client takes them, mostly of one token each, in seconds";
        let older = "The older name of vllm:inter_token_latency_seconds";
        let rows = [
            ("vllm:time_to_first_token_seconds", "Time from arrival to the first token, in seconds", &self.first_token),
            ("vllm:inter_token_latency_seconds", between, &self.between_tokens),
            ("vllm:time_per_output_token_seconds", older, &self.between_tokens),
            (
                "vllm:e2e_request_latency_seconds",
                "Time from arrival to the end of the answer, in seconds",
                &self.request,
            ),
            ("vllm:request_prompt_tokens", "Tokens of the prompts of finished requests", &self.prompt_tokens),
            ("vllm:request_generation_tokens", "Tokens generated for finished requests", &self.generated_tokens),
        ];
        for (name, help, histogram) in rows {
            registry.register(name, help, histogram.clone());
        }
    }
}

const FINISHED_REASON: &str = "finished_reason";
const STATUS: &str = "status";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise() {
        for bounds in [&FIRST_TOKEN_S[..], &BETWEEN_TOKENS_S, &REQUEST_S, &TOKENS] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
        }
    }
}
