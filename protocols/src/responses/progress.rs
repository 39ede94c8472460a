//! A response under way: what comes of the model becomes items, each told as it begins, grows and ends.

use std::sync::Arc;

use bantam_runtime::engine::{Delta, FinishReason, Outcome, Piece};
use serde_json::{Value, json};

use super::custom::Input;
use super::events::Events;
use super::new_id;
use super::object::End;
use super::output::{Item, logprobs, text_part};
use super::request::Telling;
use super::store::Place;
use crate::answer::{Frame, Frames, Progress as PromptProgress};
use crate::error::ApiError;

/// A response under way.
#[derive(Debug)]
pub(super) struct Progress {
    object: Value,
    telling: Telling,
    /// Of the next event.
    sequence_number: u64,
    /// Items that have ended.
    output: Vec<Value>,
    /// The item that is being added to.
    open: Option<Item>,
    /// Where the response is kept, if it is.
    place: Option<Place>,
    /// Where its events are kept, if they are.
    events: Option<Arc<Events>>,
    ended: bool,
}

impl Progress {
    pub(super) fn new(object: Value, telling: Telling, place: Option<Place>) -> Self {
        let events = place.as_ref().and_then(Place::events);
        Progress { object, telling, sequence_number: 0, output: Vec::new(), open: None, place, events, ended: false }
    }

    /// The response as it is.
    pub(super) fn object(&self) -> &Value {
        &self.object
    }

    fn event(&mut self, name: &'static str, fields: &Value) -> Frame {
        let mut data = json!({"type": name, "sequence_number": self.sequence_number});
        if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
            data.extend(fields.clone());
        }
        self.sequence_number += 1;
        let frame = Frame::Event(name, data.to_string());
        if let Some(events) = &self.events {
            events.push(frame.clone());
        }
        frame
    }

    /// An event about the open item, or a part of it.
    fn of_item(&mut self, name: &'static str, item: &Item, fields: Value) -> Frame {
        let mut about = json!({"item_id": item.id(), "output_index": self.output.len()});
        if let (Value::Object(about), Value::Object(fields)) = (&mut about, fields) {
            about.extend(fields);
        }
        self.event(name, &about)
    }

    fn of_response(&mut self, name: &'static str) -> Frame {
        let about = json!({"response": self.object});
        self.event(name, &about)
    }

    /// Ends the open item, if there is one, and begins this.
    fn begin(&mut self, item: Item, told: &mut Vec<Frame>) {
        self.close("completed", told);
        let added = json!({"output_index": self.output.len(), "item": item.begun()});
        told.push(self.event("response.output_item.added", &added));
        match &item {
            Item::Message { .. } => {
                let part = json!({"content_index": 0, "part": text_part("", &[])});
                told.push(self.of_item("response.content_part.added", &item, part));
            }
            Item::Reasoning { .. } if self.telling.summary => {
                let part = json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}});
                told.push(self.of_item("response.reasoning_summary_part.added", &item, part));
            }
            Item::Reasoning { .. } => {
                let part = json!({"content_index": 0, "part": {"type": "reasoning_text", "text": ""}});
                told.push(self.of_item("response.content_part.added", &item, part));
            }
            Item::Call { .. } | Item::CustomCall { .. } => {}
        }
        self.open = Some(item);
    }

    /// Ends the open item, if there is one.
    fn close(&mut self, status: &str, told: &mut Vec<Frame>) {
        let Some(mut item) = self.open.take() else { return };
        if let Item::CustomCall { input, .. } = &mut item {
            let rest = input.rest();
            self.more_input(&item, &rest, told);
        }
        match &item {
            Item::Message { text, logprobs, .. } => {
                let done = json!({"content_index": 0, "text": text, "logprobs": logprobs});
                told.push(self.of_item("response.output_text.done", &item, done));
                let part = json!({"content_index": 0, "part": text_part(text, logprobs)});
                told.push(self.of_item("response.content_part.done", &item, part));
            }
            Item::Reasoning { text, .. } if self.telling.summary => {
                let done = json!({"summary_index": 0, "text": text});
                told.push(self.of_item("response.reasoning_summary_text.done", &item, done));
                let part = json!({"summary_index": 0, "part": {"type": "summary_text", "text": text}});
                told.push(self.of_item("response.reasoning_summary_part.done", &item, part));
            }
            Item::Reasoning { text, .. } => {
                let done = json!({"content_index": 0, "text": text});
                told.push(self.of_item("response.reasoning_text.done", &item, done));
                let part = json!({"content_index": 0, "part": {"type": "reasoning_text", "text": text}});
                told.push(self.of_item("response.content_part.done", &item, part));
            }
            Item::Call { name, arguments, .. } => {
                let done = json!({"name": name, "arguments": arguments});
                told.push(self.of_item("response.function_call_arguments.done", &item, done));
            }
            Item::CustomCall { input, .. } => {
                told.push(self.of_item("response.custom_tool_call_input.done", &item, json!({"input": input.text()})));
            }
        }
        let done = item.told(status, &self.telling);
        told.push(self.event("response.output_item.done", &json!({"output_index": self.output.len(), "item": done})));
        self.output.push(done);
    }

    fn piece(&mut self, piece: Piece, tokens: &[Value], told: &mut Vec<Frame>) {
        match piece {
            Piece::Content(more) => self.text(&more, tokens, told),
            Piece::Reasoning(more) => self.thought(&more, told),
            Piece::Call { name, .. } => self.call(name, told),
            Piece::Arguments { json, .. } => self.arguments(&json, told),
            Piece::CallEnd { .. } => self.close("completed", told),
        }
    }

    fn text(&mut self, more: &str, tokens: &[Value], told: &mut Vec<Frame>) {
        if more.is_empty() && tokens.is_empty() {
            return;
        }
        if !matches!(self.open, Some(Item::Message { .. })) {
            self.begin(Item::Message { id: new_id("msg"), text: String::new(), logprobs: Vec::new() }, told);
        }
        let Some(mut item) = self.open.take() else { return };
        if let Item::Message { text, logprobs, .. } = &mut item {
            text.push_str(more);
            logprobs.extend_from_slice(tokens);
        }
        let delta = json!({"content_index": 0, "delta": more, "logprobs": tokens});
        told.push(self.of_item("response.output_text.delta", &item, delta));
        self.open = Some(item);
    }

    fn thought(&mut self, more: &str, told: &mut Vec<Frame>) {
        if more.is_empty() {
            return;
        }
        if !matches!(self.open, Some(Item::Reasoning { .. })) {
            self.begin(Item::Reasoning { id: new_id("rs"), text: String::new() }, told);
        }
        let Some(mut item) = self.open.take() else { return };
        if let Item::Reasoning { text, .. } = &mut item {
            text.push_str(more);
        }
        let (name, index) = match self.telling.summary {
            true => ("response.reasoning_summary_text.delta", "summary_index"),
            false => ("response.reasoning_text.delta", "content_index"),
        };
        told.push(self.of_item(name, &item, json!({index: 0, "delta": more})));
        self.open = Some(item);
    }

    fn call(&mut self, name: String, told: &mut Vec<Frame>) {
        let call_id = new_id("call");
        let item = match self.telling.custom.contains(&name) {
            true => Item::CustomCall { id: new_id("ctc"), call_id, name, input: Input::default() },
            false => Item::Call { id: new_id("fc"), call_id, name, arguments: String::new() },
        };
        self.begin(item, told);
    }

    fn arguments(&mut self, more: &str, told: &mut Vec<Frame>) {
        let Some(mut item) = self.open.take() else { return };
        match &mut item {
            Item::CustomCall { input, .. } => {
                let text = input.add(more);
                self.more_input(&item, &text, told);
            }
            Item::Call { arguments, .. } => {
                arguments.push_str(more);
                told.push(self.of_item("response.function_call_arguments.delta", &item, json!({"delta": more})));
            }
            // Nothing can follow a call that never began.
            Item::Message { .. } | Item::Reasoning { .. } => {}
        }
        self.open = Some(item);
    }

    fn more_input(&mut self, item: &Item, more: &str, told: &mut Vec<Frame>) {
        if !more.is_empty() {
            told.push(self.of_item("response.custom_tool_call_input.delta", item, json!({"delta": more})));
        }
    }

    /// Tells an item that is there already: its beginning, all of it at once, its end.
    fn retell(&mut self, item: Item, status: &str, told: &mut Vec<Frame>) {
        match item {
            Item::Message { id, text, logprobs } => {
                self.begin(Item::Message { id, text: String::new(), logprobs: Vec::new() }, told);
                self.text(&text, &logprobs, told);
            }
            Item::Reasoning { id, text } => {
                self.begin(Item::Reasoning { id, text: String::new() }, told);
                self.thought(&text, told);
            }
            Item::Call { id, call_id, name, arguments } => {
                self.begin(Item::Call { id, call_id, name, arguments: String::new() }, told);
                self.arguments(&arguments, told);
            }
            Item::CustomCall { id, call_id, name, input } => {
                let text = input.text().to_owned();
                let begun =
                    |input| Item::CustomCall { id: id.clone(), call_id: call_id.clone(), name: name.clone(), input };
                self.begin(begun(Input::default()), told);
                let item = begun(input);
                self.more_input(&item, &text, told);
                self.open = Some(item);
            }
        }
        self.close(status, told);
    }

    /// Ends the response.
    pub(super) fn end(&mut self, end: &End<'_>) -> Vec<Frame> {
        if std::mem::replace(&mut self.ended, true) {
            return Vec::new();
        }
        let mut told = Vec::new();
        let whole = matches!(end, End::Completed(_) | End::Empty);
        self.close(if whole { "completed" } else { "incomplete" }, &mut told);
        end.put(&mut self.object, std::mem::take(&mut self.output));
        if let Some(place) = self.place.take() {
            place.close(self.object.clone());
        }
        if let End::Failed(error) = end {
            let about = json!({"code": self.object["error"]["code"], "message": error.message, "param": error.param});
            told.push(self.event("error", &about));
        }
        told.push(self.of_response(last_event(end.status())));
        if let Some(events) = &self.events {
            events.end();
        }
        told
    }
}

/// The name of the event that ends a response of this status.
fn last_event(status: &str) -> &'static str {
    match status {
        "completed" => "response.completed",
        "failed" => "response.failed",
        _ => "response.incomplete",
    }
}

/// The events of a response that has ended, made of what it holds: each item at once.
pub(super) fn again(object: &Value) -> Vec<Frame> {
    let mut begun = object.clone();
    begun["status"] = "in_progress".into();
    begun["output"] = json!([]);
    for key in ["usage", "completed_at", "error", "incomplete_details"] {
        begun.get_mut(key).map(Value::take);
    }
    let mut progress = Progress::new(begun, Telling::default(), None);
    let mut told = progress.begun();
    for given in object["output"].as_array().into_iter().flatten() {
        let Some((item, telling)) = Item::read(given) else { continue };
        progress.telling = telling;
        progress.retell(item, given["status"].as_str().unwrap_or("completed"), &mut told);
    }
    if let Some(error) = object.get("error").filter(|error| !error.is_null()) {
        let about = json!({"code": error["code"], "message": error["message"], "param": null});
        told.push(progress.event("error", &about));
    }
    progress.object = object.clone();
    told.push(progress.of_response(last_event(object["status"].as_str().unwrap_or_default())));
    told
}

impl Frames for Progress {
    fn begun(&mut self) -> Vec<Frame> {
        vec![self.of_response("response.created"), self.of_response("response.in_progress")]
    }

    fn started(&mut self, _: usize) -> Vec<Frame> {
        Vec::new()
    }

    /// In an event that all clients know: some stop at one that they do not.
    fn progress(&mut self, progress: PromptProgress) -> Vec<Frame> {
        let about = json!({"response": self.object, "prompt_progress": progress});
        vec![self.event("response.in_progress", &about)]
    }

    fn delta(&mut self, delta: Delta) -> Vec<Frame> {
        let mut told = Vec::new();
        let mut tokens = if self.telling.logprobs { logprobs(&delta.tokens) } else { Vec::new() };
        for piece in delta.pieces {
            // What is told is the probability of the answer's text.
            let of_text = if matches!(piece, Piece::Content(_)) { std::mem::take(&mut tokens) } else { Vec::new() };
            self.piece(piece, &of_text, &mut told);
        }
        told
    }

    fn finished(&mut self, outcome: &Outcome) -> Vec<Frame> {
        match outcome.reason {
            FinishReason::Length => self.end(&End::Incomplete(outcome)),
            FinishReason::Stop | FinishReason::ToolCalls => self.end(&End::Completed(outcome)),
        }
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
        self.end(&End::Failed(error))
    }

    fn ended(&mut self) -> Vec<Frame> {
        self.end(&End::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bantam_runtime::engine::{Event, Failure};
    use futures::StreamExt;

    use super::super::store::Store;
    use super::*;
    use crate::answer::testing::{finished, scripted, text, token, told};

    fn object() -> Value {
        json!({"id": "resp_1", "object": "response", "status": "in_progress", "output": [], "usage": null, "error": null})
    }

    /// The events of a stream, with names of items by their kind and place of first mention instead of random ones.
    async fn events(given: Vec<Event>, telling: Telling) -> Vec<Value> {
        let mut told = told(scripted(given), Progress::new(object(), telling, None)).await.join("\n");
        let mut seen = Vec::new();
        for prefix in ["msg_", "rs_", "fc_", "ctc_", "call_"] {
            while let Some(at) = told.match_indices(prefix).map(|(at, _)| at).find(|at| {
                let name = &told[at + prefix.len()..];
                name.as_bytes().get(..32).is_some_and(|name| name.iter().all(u8::is_ascii_hexdigit))
            }) {
                let name = told[at..at + prefix.len() + 32].to_owned();
                told = told.replace(&name, &format!("{prefix}{}", seen.len()));
                seen.push(name);
            }
        }
        let told: Vec<Value> = told.lines().map(|data| serde_json::from_str(data).unwrap()).collect();
        let numbers: Vec<_> = told.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..told.len() as u64).collect::<Vec<_>>());
        told
    }

    fn names(told: &[Value]) -> Vec<&str> {
        told.iter().map(|event| event["type"].as_str().unwrap().trim_start_matches("response.")).collect()
    }

    fn pieces(pieces: Vec<Piece>) -> Event {
        Event::Delta(Delta { pieces, tokens: Vec::new() })
    }

    fn without_number(mut event: Value) -> Value {
        event.as_object_mut().unwrap().remove("sequence_number");
        event
    }

    #[tokio::test]
    async fn a_text_is_a_message_with_one_part() {
        let given = vec![
            Event::Started { cached_tokens: 4, miss: None },
            text("He"),
            text(""),
            text("llo"),
            finished(FinishReason::Stop),
        ];
        let told = events(given, Telling::default()).await;
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        let at = json!({"item_id": "msg_0", "output_index": 0, "content_index": 0});
        let with = |name: &str, fields: Value| {
            let mut event = json!({"type": name});
            event.as_object_mut().unwrap().extend(at.as_object().unwrap().clone());
            event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            event
        };
        let message = |status: &str, content: Value| json!({"id": "msg_0", "type": "message", "status": status, "role": "assistant", "content": content});
        let usage = json!({
            "input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 12,
        });
        let whole = message("completed", json!([part("Hello")]));
        let expected = [
            json!({"type": "response.created", "response": object()}),
            json!({"type": "response.in_progress", "response": object()}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": message("in_progress", json!([]))}),
            with("response.content_part.added", json!({"part": part("")})),
            with("response.output_text.delta", json!({"delta": "He", "logprobs": []})),
            with("response.output_text.delta", json!({"delta": "llo", "logprobs": []})),
            with("response.output_text.done", json!({"text": "Hello", "logprobs": []})),
            with("response.content_part.done", json!({"part": part("Hello")})),
            json!({"type": "response.output_item.done", "output_index": 0, "item": whole}),
        ];
        let (last, others) = told.split_last().unwrap();
        assert_eq!(others.iter().cloned().map(without_number).collect::<Vec<_>>(), expected);
        assert_eq!(last["type"], "response.completed");
        let response = &last["response"];
        assert_eq!(
            (&response["status"], &response["output"], &response["usage"]),
            (&json!("completed"), &json!([whole]), &usage)
        );
    }

    #[tokio::test]
    async fn what_is_thought_and_called_are_items_in_their_order() {
        let given = vec![
            Piece::Reasoning("h".into()),
            Piece::Reasoning("m".into()),
            Piece::Content("I look.".into()),
            Piece::Call { index: 0, name: "ls".into() },
            Piece::Arguments { index: 0, json: "{\"a\"".into() },
            Piece::Arguments { index: 0, json: ":1}".into() },
            Piece::CallEnd { index: 0 },
            Piece::Call { index: 1, name: "patch".into() },
            Piece::Arguments { index: 1, json: "{\"input\": \"a\\nb\"}".into() },
            Piece::CallEnd { index: 1 },
        ];
        let custom = HashSet::from(["patch".to_owned()]);
        let given = vec![pieces(given), finished(FinishReason::ToolCalls)];
        let told = events(given.clone(), Telling { custom: custom.clone(), ..Telling::default() }).await;
        let call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"];
        let expected = [
            &["created", "in_progress"][..],
            &["output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta"],
            &["reasoning_text.done", "content_part.done", "output_item.done"],
            &["output_item.added", "content_part.added", "output_text.delta"],
            &["output_text.done", "content_part.done", "output_item.done"],
            &call,
            &["function_call_arguments.done", "output_item.done"],
            &["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"],
            &["completed"],
        ];
        assert_eq!(names(&told), expected.concat());
        let output = told.last().unwrap()["response"]["output"].clone();
        assert_eq!(output[0]["content"], json!([{"type": "reasoning_text", "text": "hm"}]));
        let called = json!({
            "id": "fc_2", "type": "function_call", "status": "completed", "call_id": "call_4", "name": "ls", "arguments": "{\"a\":1}",
        });
        assert_eq!(output[2], called);
        assert_eq!((&output[3]["type"], &output[3]["input"]), (&json!("custom_tool_call"), &json!("a\nb")));
        let indices: Vec<_> = told
            .iter()
            .filter(|e| e["type"] == "response.output_item.done")
            .map(|e| e["output_index"].clone())
            .collect();
        assert_eq!(indices, [0, 1, 2, 3]);

        let told = events(given, Telling { summary: true, custom, ..Telling::default() }).await;
        let summary = [
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
        ];
        assert_eq!(names(&told)[2..9], summary);
    }

    #[tokio::test]
    async fn probabilities_are_told_of_the_text_where_they_are_asked_for() {
        let given = vec![token("a"), finished(FinishReason::Stop)];
        let told = events(given.clone(), Telling { logprobs: true, ..Telling::default() }).await;
        let top = json!([{"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "\u{fffd}", "logprob": -9999.0, "bytes": [226, 130]}]);
        let expected = json!([{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": top}]);
        assert_eq!(told[4]["logprobs"], expected);
        assert_eq!(told.last().unwrap()["response"]["output"][0]["content"][0]["logprobs"], expected);
        assert_eq!(events(given, Telling::default()).await[4]["logprobs"], json!([]));
    }

    #[tokio::test]
    async fn what_the_limit_cuts_off_is_incomplete() {
        let call =
            vec![Piece::Call { index: 0, name: "ls".into() }, Piece::Arguments { index: 0, json: "{\"a".into() }];
        let told = events(vec![pieces(call), finished(FinishReason::Length)], Telling::default()).await;
        let last = told.last().unwrap();
        assert_eq!(last["type"], "response.incomplete");
        assert_eq!(last["response"]["incomplete_details"], json!({"reason": "max_output_tokens"}));
        assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    }

    #[tokio::test]
    async fn a_failure_is_an_error_and_a_failed_response() {
        let given = vec![text("a"), Event::Failed(Failure::Fault("the executor stopped".into()))];
        let told = events(given, Telling::default()).await;
        let [.., error, failed] = told.as_slice() else { panic!("{told:?}") };
        let message = "the executor stopped";
        let expected = json!({"type": "error", "code": "server_error", "message": message, "param": null});
        assert_eq!(without_number(error.clone()), expected);
        assert_eq!(failed["type"], "response.failed");
        assert_eq!(failed["response"]["error"], json!({"code": "server_error", "message": message}));
        assert_eq!(failed["response"]["output"][0]["status"], "incomplete");
    }

    #[tokio::test]
    async fn the_text_of_a_custom_tool_is_told_as_it_comes() {
        let arguments = |json: &str| pieces(vec![Piece::Arguments { index: 0, json: json.into() }]);
        let call = pieces(vec![Piece::Call { index: 0, name: "patch".into() }]);
        let given = vec![
            call,
            arguments("{\"input\": \"a\\"),
            arguments("nb"),
            arguments("c\"}"),
            finished(FinishReason::ToolCalls),
        ];
        let told = events(given, Telling { custom: HashSet::from(["patch".into()]), ..Telling::default() }).await;
        let deltas = told.iter().filter(|event| event["type"] == "response.custom_tool_call_input.delta");
        assert_eq!(deltas.map(|event| event["delta"].clone()).collect::<Vec<_>>(), ["a", "\nb", "c"]);
        let done = told.iter().find(|event| event["type"] == "response.custom_tool_call_input.done").unwrap();
        assert_eq!(done["input"], "a\nbc");
        assert_eq!(told.last().unwrap()["response"]["output"][0]["input"], "a\nbc");
    }

    #[tokio::test]
    async fn events_are_kept_and_can_be_made_anew() {
        let call = |index, name: &str| Piece::Call { index, name: name.into() };
        let json = |index, json: &str| Piece::Arguments { index, json: json.into() };
        let given = || {
            vec![
                pieces(vec![Piece::Reasoning("hm".into())]),
                token("a"),
                pieces(vec![call(0, "ls"), json(0, "{\"a\": 1}"), Piece::CallEnd { index: 0 }]),
                pieces(vec![call(1, "patch"), json(1, "{\"input\": \"b\"}"), Piece::CallEnd { index: 1 }]),
                finished(FinishReason::ToolCalls),
            ]
        };
        let custom = || HashSet::from(["patch".to_owned()]);
        for (summary, sealed) in [(false, false), (true, true)] {
            let telling = Telling { summary, sealed, logprobs: true, custom: custom() };
            let store = Arc::new(Store::default());
            let mut begun = object();
            begun["completed_at"] = Value::Null;
            let (place, _stopped) = Store::open(&store, &begun, Vec::new(), Vec::new(), true);
            let streamed = told(scripted(given()), Progress::new(begun, telling, Some(place))).await;
            let (object, kept) = store.told("resp_1").unwrap();
            let kept: Vec<Frame> = Events::follow(kept.unwrap(), 0, std::time::Duration::MAX).collect().await;
            let data = |frame: &Frame| match frame {
                Frame::Event(_, data) => data.clone(),
                other => panic!("{other:?}"),
            };
            assert_eq!(kept.iter().map(data).collect::<Vec<_>>(), streamed);
            let anew: Vec<String> = again(&object).iter().map(data).collect();
            let read = |told: &[String]| -> Vec<Value> {
                told.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
            };
            assert_eq!(read(&anew), read(&streamed), "as each item came at once, the events are the same");
        }
    }

    #[tokio::test]
    async fn one_that_is_cut_off_says_so_and_is_kept_as_far_as_it_came() {
        let store = Arc::new(Store::default());
        let (place, _stopped) = Store::open(&store, &object(), Vec::new(), Vec::new(), true);
        let told = told(scripted(vec![text("a")]), Progress::new(object(), Telling::default(), Some(place))).await;
        let last: Value = serde_json::from_str(told.last().unwrap()).unwrap();
        assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.incomplete"), &json!("cancelled")));
        assert_eq!(store.object("resp_1").unwrap()["output"][0]["content"][0]["text"], "a");
    }
}
