//! Where an answer ends that the runtime would go on with: no token at all, too little indentation, too much time.

use std::time::{Duration, Instant};

use bantam_runtime::engine::{Delta, Event, FinishReason, Outcome, Piece};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::fields::{FieldError, Fields};

/// The limits of one answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Extent {
    /// Only the prompt is wanted, in the cache.
    nothing: bool,
    /// Least indentation of a line, in characters; the answer ends before a line that has less.
    indent: usize,
    /// Most time since the first token, once there is a second line.
    time: Option<Duration>,
}

impl Extent {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let limit = fields.get("n_predict").or_else(|| fields.get("max_tokens"));
        let time = fields.integer("t_max_predict_ms")?.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
        Ok(Extent {
            nothing: limit.is_some_and(|limit| limit.value().as_f64() == Some(0.0)),
            indent: fields.count("n_indent", 0, usize::MAX)?.unwrap_or(0),
            time: time.map(Duration::from_millis),
        })
    }

    /// Whether no token is wanted.
    pub(super) fn nothing(&self) -> bool {
        self.nothing
    }

    /// Whether it may end an answer, and so must see its tokens.
    pub(super) fn counts(&self) -> bool {
        self.nothing || self.indent > 0 || self.time.is_some()
    }

    /// The events of an answer, which end with an outcome of its own where this ends it.
    pub(super) fn cut(self, events: BoxStream<'static, Event>, prompt_tokens: usize) -> BoxStream<'static, Event> {
        if !self.counts() {
            return events;
        }
        let mut seen = Seen::new(self, prompt_tokens);
        async_stream::stream! {
            let mut events = events;
            while let Some(event) = events.next().await {
                let (event, ended) = seen.pass(event);
                if let Some(event) = event {
                    yield event;
                }
                if ended {
                    // Dropped first, so that nothing more is computed for it.
                    drop(events);
                    yield Event::Finished(seen.outcome());
                    return;
                }
            }
        }
        .boxed()
    }
}

/// An answer so far.
struct Seen {
    extent: Extent,
    prompt_tokens: usize,
    cached_tokens: usize,
    completion_tokens: usize,
    submitted: Instant,
    first: Option<Instant>,
    lines: Lines,
}

impl Seen {
    fn new(extent: Extent, prompt_tokens: usize) -> Self {
        let lines = Lines { least: extent.indent, begun: false, indent: None };
        let submitted = Instant::now();
        Seen { extent, prompt_tokens, cached_tokens: 0, completion_tokens: 0, submitted, first: None, lines }
    }

    /// What is told of an event, and whether the answer ends with it.
    fn pass(&mut self, event: Event) -> (Option<Event>, bool) {
        match event {
            Event::Started { cached_tokens, .. } => {
                self.cached_tokens = cached_tokens;
                self.first = Some(Instant::now());
                (Some(event), self.extent.nothing)
            }
            Event::Delta(delta) => {
                let (delta, ended) = self.shortened(delta);
                (Some(Event::Delta(delta)), ended || self.is_late())
            }
            Event::Finished(_) | Event::Failed(_) => (Some(event), false),
        }
    }

    fn shortened(&mut self, delta: Delta) -> (Delta, bool) {
        self.completion_tokens += delta.tokens.len();
        let text = delta.text();
        match self.lines.pass(&text) {
            None => (delta, false),
            Some(kept) => {
                let pieces = vec![Piece::Content(text.get(..kept).unwrap_or_default().to_owned())];
                (Delta { pieces, tokens: delta.tokens }, true)
            }
        }
    }

    fn is_late(&self) -> bool {
        let spent = self.first.map(|first| first.elapsed()).unwrap_or_default();
        self.lines.begun && self.extent.time.is_some_and(|most| spent > most)
    }

    fn outcome(&self) -> Outcome {
        let first = self.first.unwrap_or(self.submitted);
        Outcome {
            reason: FinishReason::Length,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            completion_tokens: self.completion_tokens,
            reasoning_tokens: 0,
            stop_text: None,
            time_to_first_token: first.saturating_duration_since(self.submitted),
            decode_time: first.elapsed(),
        }
    }
}

/// The lines of an answer, behind its first.
struct Lines {
    least: usize,
    /// Whether there was the end of a line.
    begun: bool,
    /// Characters of indentation of the line that goes on, until it has others.
    indent: Option<usize>,
}

impl Lines {
    /// Bytes of `text` that are told where a line in it has too little indentation.
    fn pass(&mut self, text: &str) -> Option<usize> {
        for (at, c) in text.char_indices() {
            if let Some(indent) = self.indent {
                match c {
                    ' ' | '\t' => self.indent = Some(indent + 1),
                    _ if indent < self.least => return Some(at),
                    _ => self.indent = None,
                }
            }
            if c == '\n' {
                (self.begun, self.indent) = (true, Some(0));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::json;

    use super::*;
    use crate::fields::Field;

    fn extent(body: &serde_json::Value) -> Extent {
        Extent::read(&Field::body(body).object().unwrap()).unwrap()
    }

    async fn told(body: serde_json::Value, texts: &[&str]) -> (String, Option<FinishReason>) {
        let started = Event::Started { cached_tokens: 3, miss: None };
        let deltas = texts.iter().map(|text| Event::Delta(Delta::content(*text)));
        let events: Vec<_> = [started].into_iter().chain(deltas).collect();
        let mut events = extent(&body).cut(stream::iter(events).boxed(), 10);
        let (mut text, mut reason) = (String::new(), None);
        while let Some(event) = events.next().await {
            match event {
                Event::Delta(delta) => text += &delta.text(),
                Event::Finished(outcome) => {
                    assert_eq!((outcome.prompt_tokens, outcome.cached_tokens), (10, 3));
                    reason = Some(outcome.reason);
                }
                _ => {}
            }
        }
        (text, reason)
    }

    #[tokio::test]
    async fn an_answer_ends_before_a_line_of_less_indentation() {
        let body = json!({"n_indent": 2});
        let cut = Some(FinishReason::Length);
        assert_eq!(told(body.clone(), &["a\n  ", "b\n", " c", "d"]).await, ("a\n  b\n ".into(), cut));
        assert_eq!(told(body.clone(), &["a\n\tb\n"]).await, ("a\n\t".into(), cut));
        assert_eq!(told(body.clone(), &["a\n    b\n  c", "\n\n"]).await, ("a\n    b\n  c\n".into(), cut));
        assert_eq!(told(body, &["a b", "\n  c"]).await, ("a b\n  c".into(), None));
        assert_eq!(told(json!({"n_indent": 0}), &["a\nb"]).await, ("a\nb".into(), None));
    }

    #[tokio::test]
    async fn nothing_is_told_where_only_the_prompt_is_wanted() {
        assert_eq!(told(json!({"n_predict": 0}), &["a"]).await, (String::new(), Some(FinishReason::Length)));
        assert_eq!(told(json!({"n_predict": 1}), &["a"]).await, ("a".into(), None));
    }

    #[test]
    fn time_counts_from_the_second_line_on() {
        let mut seen = Seen::new(extent(&json!({"t_max_predict_ms": 1})), 1);
        seen.first = Instant::now().checked_sub(Duration::from_secs(1));
        assert!(!seen.pass(Event::Delta(Delta::content("a"))).1);
        assert!(seen.pass(Event::Delta(Delta::content("\n"))).1);
        let mut open = Seen::new(extent(&json!({"t_max_predict_ms": 0})), 1);
        open.first = seen.first;
        assert!(!open.pass(Event::Delta(Delta::content("\n"))).1);
    }
}
