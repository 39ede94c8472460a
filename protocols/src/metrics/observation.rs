//! A generation under way as the metrics see it. It follows the generation's events; where it is dropped before the end, the
//! client has left.

use std::sync::Arc;
use std::time::Instant;

use bantam_runtime::engine::{Event, Failure};

use super::requests::{Ending, Requests};
use crate::log::Arrival;

#[derive(Debug)]
pub(crate) struct Observation {
    requests: Arc<Requests>,
    arrived: Instant,
    /// When the last piece came.
    last: Option<Instant>,
    ending: Ending,
}

impl Observation {
    pub(crate) fn new(requests: Arc<Requests>, arrival: Arrival) -> Self {
        Observation { requests, arrived: arrival.at, last: None, ending: Ending::Abort }
    }

    /// Takes note of what happened.
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => self.requests.started(self.arrived.elapsed()),
            Event::Delta(_) => {
                let now = Instant::now();
                if let Some(last) = self.last.replace(now) {
                    self.requests.paused(now - last);
                }
            }
            Event::Finished(outcome) => {
                self.requests.finished(outcome, self.arrived.elapsed());
                self.ending = outcome.reason.into();
            }
            Event::Failed(Failure::Fault(_)) => self.ending = Ending::Error,
            Event::Failed(Failure::Deadline { .. }) => self.ending = Ending::Abort,
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.requests.ended(self.ending);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bantam_runtime::engine::{Delta, FinishReason, Outcome};
    use prometheus_client::encoding::prometheus_text;
    use prometheus_client::registry::Registry;

    use super::*;

    /// What is told of a request to which this happened, line by line.
    fn told(events: &[Event]) -> Vec<String> {
        let requests = Arc::new(Requests::new());
        let mut observation = Observation::new(Arc::clone(&requests), Arrival::now());
        events.iter().for_each(|event| observation.observe(event));
        drop(observation);
        let (mut registry, mut text) = (Registry::default(), String::new());
        requests.register_vllm(&mut registry);
        prometheus_text::encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0")).map(str::to_owned).collect()
    }

    fn has(lines: &[String], line: &str) -> bool {
        lines.iter().any(|told| told == line)
    }

    #[test]
    fn every_request_ends_in_one_way() {
        let outcome = Outcome {
            reason: FinishReason::Stop,
            prompt_tokens: 10,
            cached_tokens: 5,
            completion_tokens: 3,
            reasoning_tokens: 0,
            stop_text: None,
            time_to_first_token: Duration::ZERO,
            decode_time: Duration::ZERO,
        };
        let deadline = Failure::Deadline { after: Duration::from_millis(5) };
        for (event, reason) in [
            (None, "abort"),
            (Some(Event::Finished(outcome)), "stop"),
            (Some(Event::Failed(Failure::Fault("out of luck".into()))), "error"),
            (Some(Event::Failed(deadline)), "abort"),
        ] {
            let lines = told(event.as_slice());
            let ended: Vec<_> = lines.iter().filter(|line| line.starts_with("vllm:request_success_total")).collect();
            assert_eq!(ended, [&format!("vllm:request_success_total{{finished_reason=\"{reason}\"}} 1")]);
            assert_eq!(has(&lines, "vllm:request_prompt_tokens_sum 10.0"), reason == "stop");
        }
    }

    #[test]
    fn pauses_are_those_between_pieces() {
        let piece = Event::Delta(Delta::default());
        let lines = told(&[Event::Started { cached_tokens: 0, miss: None }, piece.clone(), piece.clone(), piece]);
        assert!(has(&lines, "vllm:time_to_first_token_seconds_count 1"), "{lines:?}");
        assert!(has(&lines, "vllm:inter_token_latency_seconds_count 2"), "{lines:?}");
        assert!(has(&lines, "vllm:time_per_output_token_seconds_count 2"), "the older name tells the same");
    }
}
