//! The row of a generation under way. It follows the generation's events and is written when it is dropped, whatever the
//! way in which the request ends.

use std::sync::Arc;
use std::time::Duration;

use bantam_runtime::engine::{Event, FinishReason, Outcome};

use super::row::{Ending, Row, time_of_day};
use super::{Arrival, Log};

#[derive(Debug)]
pub(crate) struct PendingRow {
    log: Arc<Log>,
    endpoint: &'static str,
    arrival: Arrival,
    prompt_tokens: usize,
    cached_tokens: Option<usize>,
    miss: Option<String>,
    first_token: Option<Duration>,
    end: End,
}

#[derive(Debug)]
enum End {
    /// None yet: dropped now, the client has left.
    Open,
    Finished(Outcome),
    Failed(String),
}

impl PendingRow {
    pub(crate) fn new(log: Arc<Log>, endpoint: &'static str, arrival: Arrival, prompt_tokens: usize) -> Self {
        PendingRow {
            log,
            endpoint,
            arrival,
            prompt_tokens,
            cached_tokens: None,
            miss: None,
            first_token: None,
            end: End::Open,
        }
    }

    /// Takes note of what happened.
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Started { cached_tokens, miss } => {
                self.miss = miss.as_ref().filter(|_| self.log.is_verbose()).map(ToString::to_string);
                self.cached_tokens = Some(*cached_tokens);
                self.first_token = Some(self.arrival.at.elapsed());
            }
            Event::Delta(_) => {}
            Event::Finished(outcome) => self.end = End::Finished(outcome.clone()),
            Event::Failed(why) => self.end = End::Failed(why.to_string()),
        }
    }

    fn row(&self) -> Row {
        let mut row = Row {
            time: time_of_day(),
            endpoint: self.endpoint.to_owned(),
            prompt_tokens: Some(self.prompt_tokens),
            cached_tokens: self.cached_tokens,
            first_token: self.first_token,
            completion_tokens: None,
            decode: None,
            ending: Ending::Gone,
            note: self.miss.clone(),
            total: self.arrival.at.elapsed(),
        };
        match &self.end {
            End::Open => {}
            End::Failed(why) => {
                row.ending = Ending::Failed(why.clone());
                row.note = Some(self.arrival.id());
            }
            End::Finished(outcome) => {
                row.cached_tokens = Some(outcome.cached_tokens);
                row.completion_tokens = Some(outcome.completion_tokens);
                row.decode = Some(outcome.decode_time);
                row.ending = Ending::Finished(match outcome.reason {
                    FinishReason::Stop => "stop",
                    FinishReason::Length => "length",
                    FinishReason::ToolCalls => "calls",
                });
            }
        }
        row
    }
}

impl Drop for PendingRow {
    fn drop(&mut self) {
        self.log.row(&self.row());
    }
}

#[cfg(test)]
mod tests {
    use bantam_runtime::engine::Failure;

    use bantam_runtime::engine::{Difference, Miss};

    use super::super::{LogLevel, testing};
    use super::*;

    fn outcome() -> Outcome {
        Outcome {
            reason: FinishReason::Length,
            prompt_tokens: 10,
            cached_tokens: 5,
            completion_tokens: 3,
            reasoning_tokens: 0,
            stop_text: None,
            time_to_first_token: Duration::from_millis(20),
            decode_time: Duration::from_millis(100),
        }
    }

    /// The words of the row that these events leave.
    async fn words(level: LogLevel, events: &[Event]) -> Vec<String> {
        let (log, written) = testing::log(level);
        let mut row = testing::pending(&log);
        for event in events {
            row.observe(event);
        }
        drop(row);
        log.flush().await;
        written.text().split_whitespace().skip(1).map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn a_finished_generation_tells_its_figures() {
        let differs = Some(Difference { cached: "a".into(), asked: "b".into() });
        let miss = Some(Miss { at: 5, known: 5, differs });
        let events = [Event::Started { cached_tokens: 5, miss }, Event::Finished(outcome())];
        let verbose = words(LogLevel::Verbose, &events).await.join(" ");
        assert!(verbose.ends_with("miss at 5: cached \"a\", asked \"b\""), "{verbose}");
        let words = words(LogLevel::Normal, &events).await;
        assert!(!words.contains(&"miss".to_owned()));
        assert_eq!(words[..3], ["/v1/chat/completions", "10", "50%"]);
        assert_eq!(words[4..7], ["3", "20.0", "length"]);
    }

    #[tokio::test]
    async fn a_client_that_leaves_in_the_queue_has_no_figures() {
        let words = words(LogLevel::Normal, &[]).await;
        assert_eq!(words[..7], ["/v1/chat/completions", "10", "--", "--", "--", "--", "gone"]);
    }

    #[tokio::test]
    async fn quiet_shows_failures_only() {
        assert!(words(LogLevel::Quiet, &[Event::Finished(outcome())]).await.is_empty());
        let failed = words(LogLevel::Quiet, &[Event::Failed(Failure::Fault("out of luck".into()))]).await;
        assert_eq!(failed[6], "failed");
        assert!(failed.join(" ").contains("out of luck req_"));
    }
}
