//! A message as a stream of events: its start, each block with its start, pieces and end, its end.

use bantam_runtime::engine::{Delta, Outcome, Piece};
use serde_json::{Value, json};

use super::errors::body;
use super::wire::{Display, End, Signature, Stamp, new_id, usage, usage_so_far};
use crate::answer::{Frame, Frames, Progress};
use crate::error::ApiError;

/// A message under way.
#[derive(Debug)]
pub(super) struct MessageStream {
    stamp: Stamp,
    request_id: String,
    prompt_tokens: usize,
    display: Display,
    /// Whether the start has been told: nothing else may come before it.
    begun: bool,
    /// Index of the block that is open, or else of the next one.
    index: usize,
    open: Option<Open>,
}

/// What kind of block pieces are being added to.
#[derive(Debug)]
enum Open {
    Text,
    Thinking(Signature),
    Call,
}

impl MessageStream {
    pub(super) fn new(stamp: Stamp, request_id: String, prompt_tokens: usize, display: Display) -> Self {
        MessageStream { stamp, request_id, prompt_tokens, display, begun: false, index: 0, open: None }
    }

    /// The start, unless it has been told.
    fn begin(&mut self, cached_tokens: usize) -> Vec<Frame> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        let usage = usage_so_far(self.prompt_tokens, cached_tokens, 0);
        let message = self.stamp.message(&[], End::default(), &usage);
        vec![event("message_start", json!({ "message": message })), ping()]
    }

    fn piece(&mut self, piece: Piece, told: &mut Vec<Frame>) {
        match piece {
            Piece::Content(text) | Piece::Reasoning(text) if text.is_empty() => {}
            Piece::Content(text) => {
                if !matches!(self.open, Some(Open::Text)) {
                    self.open(Open::Text, &json!({"type": "text", "text": ""}), told);
                }
                told.push(self.delta_of(&json!({"type": "text_delta", "text": text})));
            }
            Piece::Reasoning(text) => {
                if !matches!(self.open, Some(Open::Thinking(_))) {
                    let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                    self.open(Open::Thinking(Signature::new(self.display)), &block, told);
                }
                let Some(Open::Thinking(signature)) = &mut self.open else { return };
                let shown = signature.add(&text);
                if !shown.is_empty() {
                    told.push(self.delta_of(&json!({"type": "thinking_delta", "thinking": shown})));
                }
            }
            Piece::Call { name, .. } => {
                let block = json!({"type": "tool_use", "id": new_id("toolu"), "name": name, "input": {}});
                self.open(Open::Call, &block, told);
            }
            Piece::Arguments { json, .. } if matches!(self.open, Some(Open::Call)) && !json.is_empty() => {
                told.push(self.delta_of(&json!({"type": "input_json_delta", "partial_json": json})));
            }
            Piece::Arguments { .. } => {}
            Piece::CallEnd { .. } => self.close(told),
        }
    }

    fn open(&mut self, kind: Open, block: &Value, told: &mut Vec<Frame>) {
        self.close(told);
        told.push(event("content_block_start", json!({"index": self.index, "content_block": block})));
        self.open = Some(kind);
    }

    fn close(&mut self, told: &mut Vec<Frame>) {
        let Some(open) = self.open.take() else { return };
        if let Open::Thinking(signature) = open {
            told.push(self.delta_of(&json!({"type": "signature_delta", "signature": signature.told()})));
        }
        told.push(event("content_block_stop", json!({"index": self.index})));
        self.index += 1;
    }

    fn delta_of(&self, delta: &Value) -> Frame {
        event("content_block_delta", json!({"index": self.index, "delta": delta}))
    }
}

impl Frames for MessageStream {
    fn started(&mut self, cached_tokens: usize) -> Vec<Frame> {
        self.begin(cached_tokens)
    }

    fn delta(&mut self, delta: Delta) -> Vec<Frame> {
        let mut told = self.begin(0);
        for piece in delta.pieces {
            self.piece(piece, &mut told);
        }
        told
    }

    fn finished(&mut self, outcome: &Outcome) -> Vec<Frame> {
        let mut told = self.begin(outcome.cached_tokens);
        self.close(&mut told);
        let end = End::of(outcome);
        let delta = json!({"stop_reason": end.reason, "stop_sequence": end.sequence});
        told.push(event("message_delta", json!({"delta": delta, "usage": usage(outcome)})));
        told.push(event("message_stop", json!({})));
        told
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
        vec![Frame::Event("error", body(error, &self.request_id).to_string())]
    }

    /// In an event that clients pass over whatever it holds.
    fn progress(&mut self, progress: Progress) -> Vec<Frame> {
        let mut told = self.begin(progress.cache);
        told.push(event("ping", json!({ "prompt_progress": progress })));
        told
    }

    fn waiting(&mut self) -> Vec<Frame> {
        let told = self.begin(0);
        if told.is_empty() { vec![ping()] } else { told }
    }
}

fn ping() -> Frame {
    event("ping", json!({}))
}

/// An event, whose data says what it is once more.
fn event(name: &'static str, fields: Value) -> Frame {
    let mut data = json!({"type": name});
    if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
        data.extend(fields);
    }
    Frame::Event(name, data.to_string())
}

#[cfg(test)]
mod tests {
    use bantam_runtime::engine::{Event, Failure, FinishReason};

    use super::*;
    use crate::answer::testing::{finished, scripted, text, told};

    fn stream() -> MessageStream {
        let stamp = Stamp { id: "msg_1".into(), model: "local".into() };
        MessageStream::new(stamp, "req_1".into(), 10, Display::Shown)
    }

    async fn events(events: Vec<Event>) -> Vec<Value> {
        told(scripted(events), stream()).await.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    fn pieces(pieces: Vec<Piece>) -> Event {
        Event::Delta(Delta { pieces, tokens: Vec::new() })
    }

    fn started() -> Event {
        Event::Started { cached_tokens: 4, miss: None }
    }

    #[tokio::test]
    async fn text_is_one_block_between_the_start_and_the_end() {
        let told = events(vec![started(), text("He"), text(""), text("llo"), finished(FinishReason::Stop)]).await;
        let usage = json!({
            "input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 0,
        });
        let mut ended = usage.clone();
        ended["output_tokens"] = 2.into();
        ended["output_tokens_details"] = json!({"thinking_tokens": 0});
        let message = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "local", "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage,
        });
        let expected = [
            json!({"type": "message_start", "message": message}),
            json!({"type": "ping"}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "He"}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "llo"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": ended}),
            json!({"type": "message_stop"}),
        ];
        assert_eq!(told, expected);
    }

    /// What a stream says of its blocks, without the start and the end.
    async fn blocks(given: Vec<Piece>, reason: FinishReason) -> Vec<Value> {
        let told = events(vec![started(), pieces(given), finished(reason)]).await;
        told[2..told.len() - 2].to_vec()
    }

    #[tokio::test]
    async fn thinking_text_and_calls_are_blocks_in_their_order() {
        let arguments = |index, json: &str| Piece::Arguments { index, json: json.into() };
        let call = |index, name: &str| Piece::Call { index, name: name.into() };
        let given = vec![
            Piece::Reasoning("h".into()),
            Piece::Reasoning("m".into()),
            Piece::Content("I look.".into()),
            call(0, "ls"),
            arguments(0, r#"{"path"#),
            arguments(0, r#"":"."}"#),
            Piece::CallEnd { index: 0 },
            call(1, "pwd"),
            Piece::CallEnd { index: 1 },
        ];
        let mut told = blocks(given, FinishReason::ToolCalls).await;
        for at in [8, 12] {
            let id = told[at]["content_block"]["id"].take();
            assert!(id.as_str().unwrap().starts_with("toolu_"), "{id}");
        }
        let start =
            |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
        let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
        let signature = "uC4heOz00MWFncLhadf+2Gc/n27rnzWRvtXyU7d0JAg=";
        let expected = [
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
            delta(0, json!({"type": "signature_delta", "signature": signature})),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "I look."})),
            stop(1),
            start(2, json!({"type": "tool_use", "id": null, "name": "ls", "input": {}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": r#"{"path"#})),
            delta(2, json!({"type": "input_json_delta", "partial_json": r#"":"."}"#})),
            stop(2),
            start(3, json!({"type": "tool_use", "id": null, "name": "pwd", "input": {}})),
            stop(3),
        ];
        assert_eq!(told, expected);
    }

    #[tokio::test]
    async fn what_the_end_cuts_off_is_closed() {
        let given =
            vec![Piece::Call { index: 0, name: "ls".into() }, Piece::Arguments { index: 0, json: "{\"pa".into() }];
        let told = blocks(given, FinishReason::Length).await;
        assert_eq!(told.last().unwrap(), &json!({"type": "content_block_stop", "index": 0}));
        let told = blocks(vec![Piece::Reasoning("h".into())], FinishReason::Length).await;
        assert_eq!(told[2]["delta"]["type"], "signature_delta");
        assert_eq!(blocks(Vec::new(), FinishReason::Stop).await, [] as [Value; 0]);
    }

    #[tokio::test]
    async fn of_thoughts_that_are_not_to_be_told_there_is_the_signature() {
        let given = vec![
            started(),
            pieces(vec![Piece::Reasoning("h".into())]),
            pieces(vec![Piece::Reasoning("m".into())]),
            text("Yes."),
            finished(FinishReason::Stop),
        ];
        let omitting = MessageStream { display: Display::Omitted, ..stream() };
        let told = told(scripted(given), omitting).await;
        let told: Vec<Value> = told.iter().map(|data| serde_json::from_str(data).unwrap()).collect();
        let mut block = told[2..6].to_vec();
        let signature = block[1]["delta"]["signature"].take();
        let expected = [
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": null}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        ];
        assert_eq!(block, expected);
        assert_eq!(Signature::opened(signature.as_str().unwrap()).as_deref(), Some("hm"));
    }

    #[tokio::test]
    async fn a_failure_is_the_last_event() {
        let told =
            events(vec![started(), text("a"), Event::Failed(Failure::Fault("the executor stopped".into()))]).await;
        let last = told.last().unwrap();
        assert_eq!(last["error"], json!({"type": "api_error", "message": "the executor stopped"}));
        assert_eq!((&last["type"], &last["request_id"]), (&json!("error"), &json!("req_1")));
    }

    #[test]
    fn nothing_comes_before_the_start_and_it_comes_once() {
        let mut stream = stream();
        let names = |frames: Vec<Frame>| -> Vec<&str> {
            let name = |frame: &Frame| match frame {
                Frame::Event(name, _) => *name,
                other => panic!("{other:?}"),
            };
            frames.iter().map(name).collect()
        };
        assert_eq!(names(stream.waiting()), ["message_start", "ping"]);
        assert_eq!(names(stream.waiting()), ["ping"]);
        assert_eq!(names(stream.started(4)), [] as [&str; 0]);
    }
}
