//! `POST /v1/chat/completions`.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{Delta, Outcome, Prompt, Request};
use serde_json::Value;

use super::chat_wire::{Choice, ChunkChoice, ChunkDelta, Logprobs};
use super::envelope::{Pieces, Stamp, frame};
use super::options::{Delivery, MAX_LOGPROBS};
use super::thinking::Thinking;
use super::usage::Usage;
use super::{conversation, finish_reason, form, options, unsupported};
use crate::answer::{Answer, Frame, Frames, Progress, Whole};
use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Field, FieldError, Fields};
use crate::limits::JsonBody;
use crate::log::Arrival;

const ENDPOINT: &str = "/v1/chat/completions";

/// A chat request, checked.
pub(super) struct ChatRequest<'a> {
    model: Option<&'a str>,
    delivery: Delivery,
    logprobs: bool,
    /// Answers asked for.
    n: usize,
    request: Request,
}

impl<'a> ChatRequest<'a> {
    pub(super) fn read(body: &'a Value) -> Result<Self, FieldError> {
        let fields = Field::body(body).object()?;
        let model = fields.text("model")?;
        unsupported::refuse_in_chat(&fields)?;
        let logprobs = logprobs(&fields)?;
        let chat = conversation(&fields)?;
        let tool_choice = form::tool_choice(&fields, chat.tools.as_deref().unwrap_or_default())?;
        Ok(ChatRequest {
            model,
            delivery: Delivery::read(&fields)?,
            logprobs: logprobs.is_some(),
            n: options::n(&fields)?,
            request: Request {
                tool_choice,
                parallel_tool_calls: fields.flag("parallel_tool_calls")?.unwrap_or(true),
                reasoning_budget: Thinking::read(&fields)?.budget,
                ..options::request(&fields, Prompt::Chat(chat), logprobs)?
            },
        })
    }
}

fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, FieldError> {
    let top = fields.count("top_logprobs", 0, MAX_LOGPROBS)?;
    match (fields.flag("logprobs")?.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, Some(1..)) => Err(FieldError::new("top_logprobs", "needs `logprobs` to be true")),
        (false, _) => Ok(None),
    }
}

pub(crate) async fn chat_completions(
    State(app): State<App>,
    Extension(arrival): Extension<Arrival>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let resident = app.model()?;
    let ChatRequest { model, delivery, logprobs, n, request } = ChatRequest::read(&body)?;
    app.check_model(model, &resident)?;
    let answers = app.submit_all(ENDPOINT, arrival, options::variants(&request, n)).await?;
    let stamp = Stamp::new("chatcmpl", &resident.name);
    let answers = answers.into_iter().map(|answer| answer.known_as(&app.live, &stamp.id));
    let answers: Vec<_> = answers.map(|answer| answer.with_progress(delivery.progress, &app.engine)).collect();
    if delivery.stream {
        let pieces = Pieces { stamp, object: "chat.completion.chunk", include_usage: delivery.include_usage };
        return Ok(stream(answers, &pieces, app.sse_keepalive));
    }
    let whole = |wholes: Vec<Whole>| {
        let choices = wholes.iter().enumerate().map(|(index, whole)| Choice::new(index, whole, logprobs)).collect();
        let outcomes: Vec<_> = wholes.into_iter().map(|whole| whole.outcome).collect();
        Json(stamp.whole("chat.completion", choices, Usage::of(&outcomes, n))).into_response()
    };
    Ok(Answer::respond_all(answers, whole).await)
}

/// The answers to one conversation as `chat.completion.chunk` objects.
fn stream(answers: Vec<Answer>, pieces: &Pieces, keepalive: Duration) -> Response {
    let (n, last) = (answers.len(), pieces.clone());
    let told = |(index, answer)| (answer, ChatStream { pieces: pieces.clone(), index });
    let answers = answers.into_iter().enumerate().map(told).collect();
    Answer::stream_all(answers, move |outcomes| last.ending(Usage::of(outcomes, n)), keepalive)
}

/// One of them.
struct ChatStream {
    pieces: Pieces,
    index: usize,
}

impl ChatStream {
    fn chunk(&self, delta: ChunkDelta, logprobs: Option<Logprobs>, finish_reason: Option<&'static str>) -> Frame {
        self.pieces.piece(ChunkChoice { index: self.index, delta, logprobs, finish_reason })
    }
}

impl Frames for ChatStream {
    fn started(&mut self, _: usize) -> Vec<Frame> {
        vec![self.chunk(ChunkDelta::role(), None, None)]
    }

    fn delta(&mut self, delta: Delta) -> Vec<Frame> {
        let mut logprobs = (!delta.tokens.is_empty()).then(|| Logprobs::new(&delta.tokens));
        let pieces = delta.pieces.into_iter().filter_map(ChunkDelta::piece);
        let mut frames: Vec<_> = pieces.map(|piece| self.chunk(piece, logprobs.take(), None)).collect();
        // Tokens that complete nothing yet are told all the same.
        if logprobs.is_some() {
            frames.push(self.chunk(ChunkDelta::content(String::new()), logprobs, None));
        }
        frames
    }

    fn finished(&mut self, outcome: &Outcome) -> Vec<Frame> {
        vec![self.chunk(ChunkDelta::default(), None, Some(finish_reason(outcome.reason)))]
    }

    fn progress(&mut self, progress: Progress) -> Vec<Frame> {
        vec![self.pieces.progress(progress)]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
        vec![frame(&error.body())]
    }
}

#[cfg(test)]
mod tests {
    use bantam_runtime::engine::{Event, Failure, FinishReason, Piece};
    use serde_json::json;

    use super::*;
    use crate::answer::testing::{data, finished, scripted, text, token};

    fn stamp() -> Stamp {
        Stamp { id: "chatcmpl-1".into(), created: 5, model: "local".into() }
    }

    fn pieces(include_usage: bool) -> Pieces {
        Pieces { stamp: stamp(), object: "chat.completion.chunk", include_usage }
    }

    async fn streams(answers: Vec<Vec<Event>>, include_usage: bool) -> Vec<Value> {
        let answers = answers.into_iter().map(scripted).collect();
        let told = data(stream(answers, &pieces(include_usage), Duration::from_secs(60))).await;
        told.iter().map(|data| serde_json::from_str(data).unwrap_or(Value::from(data.as_str()))).collect()
    }

    async fn one(events: Vec<Event>, include_usage: bool) -> Vec<Value> {
        streams(vec![events], include_usage).await
    }

    #[tokio::test]
    async fn a_stream_has_one_role_its_pieces_one_finish_and_the_end() {
        let events = vec![
            Event::Started { cached_tokens: 4, miss: None },
            text("He"),
            Event::Delta(Delta::default()),
            text("llo"),
            finished(FinishReason::Stop),
        ];
        let chunks = one(events, false).await;
        assert_eq!(chunks.len(), 5);
        let (done, chunks) = chunks.split_last().unwrap();
        assert_eq!(done, "[DONE]");
        let deltas: Vec<_> = chunks.iter().map(|c| c["choices"][0]["delta"].clone()).collect();
        let role = json!({"role": "assistant", "content": ""});
        assert_eq!(deltas, [role, json!({"content": "He"}), json!({"content": "llo"}), json!({})]);
        let finishes: Vec<_> = chunks.iter().map(|c| c["choices"][0]["finish_reason"].clone()).collect();
        assert_eq!(finishes, [json!(null), json!(null), json!(null), json!("stop")]);
        for chunk in chunks {
            assert_eq!((&chunk["id"], &chunk["object"]), (&json!("chatcmpl-1"), &json!("chat.completion.chunk")));
            assert!(chunk.get("usage").is_none());
        }
    }

    #[tokio::test]
    async fn usage_comes_once_and_last_where_it_is_asked_for() {
        let chunks =
            one(vec![Event::Started { cached_tokens: 4, miss: None }, finished(FinishReason::Length)], true).await;
        let [role, finish, usage, done] = chunks.as_slice() else { panic!("{chunks:?}") };
        assert_eq!((&role["usage"], &finish["usage"]), (&json!(null), &json!(null)));
        assert!(role.get("usage").is_some());
        assert_eq!(finish["choices"][0]["finish_reason"], "length");
        assert_eq!(usage["choices"], json!([]));
        let expected = json!({
            "prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 0},
        });
        assert_eq!(usage["usage"], expected);
        assert_eq!(done, "[DONE]");
    }

    #[tokio::test]
    async fn a_failed_stream_ends_with_the_error_and_no_done() {
        let chunks = one(vec![text("a"), Event::Failed(Failure::Fault("the executor stopped".into()))], true).await;
        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks[1]["error"]["message"], "the executor stopped");
        assert_eq!(chunks[1]["error"]["type"], "server_error");
    }

    #[tokio::test]
    async fn log_probabilities_travel_with_their_piece() {
        let chunks = one(vec![token("a"), finished(FinishReason::Stop)], false).await;
        let told = &chunks[0]["choices"][0]["logprobs"]["content"][0];
        assert_eq!((&told["token"], &told["logprob"], &told["bytes"]), (&json!("a"), &json!(-0.5), &json!([97])));
        assert_eq!(told["top_logprobs"][1], json!({"token": "\u{fffd}", "logprob": -9999.0, "bytes": [226, 130]}));
    }

    fn piece(piece: Piece) -> Event {
        Event::Delta(Delta { pieces: vec![piece], tokens: Vec::new() })
    }

    fn calling() -> Vec<Event> {
        let call = |index| piece(Piece::Call { index, name: format!("f{index}") });
        let arguments = |index, json: &str| piece(Piece::Arguments { index, json: json.into() });
        vec![
            piece(Piece::Reasoning("hm".into())),
            text("See:"),
            call(0),
            arguments(0, "{\"a\":"),
            arguments(0, "1}"),
            piece(Piece::CallEnd { index: 0 }),
            call(1),
            arguments(1, "{}"),
            piece(Piece::CallEnd { index: 1 }),
            finished(FinishReason::ToolCalls),
        ]
    }

    #[tokio::test]
    async fn calls_and_reasoning_are_the_same_whole_and_streamed() {
        let whole = scripted(calling()).whole().await;
        let whole = serde_json::to_value(Choice::new(0, &whole, false)).unwrap();
        let chunks = one(calling(), false).await;
        let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
        let joined = |key: &str| deltas().filter_map(|delta| delta[key].as_str()).collect::<String>();
        for (key, text) in [("reasoning", "hm"), ("reasoning_content", "hm"), ("content", "See:")] {
            assert_eq!((joined(key).as_str(), &whole["message"][key]), (text, &json!(text)));
        }
        let pieces: Vec<_> = deltas().filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
        for index in 0..2 {
            let of_call: Vec<_> = pieces.iter().filter(|piece| piece["index"] == index).collect();
            assert_eq!((&of_call[0]["type"], of_call[0]["id"].is_string()), (&json!("function"), true));
            assert!(of_call.iter().skip(1).all(|piece| piece.get("id").is_none()));
            let arguments: String =
                of_call.iter().filter_map(|piece| piece["function"]["arguments"].as_str()).collect();
            let call = &whole["message"]["tool_calls"][index];
            assert_eq!(call["function"], json!({"name": of_call[0]["function"]["name"], "arguments": arguments}));
            assert!(call["id"].as_str().unwrap().starts_with("call_") && call.get("index").is_none());
        }
        assert_eq!(whole["finish_reason"], "tool_calls");
        assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "tool_calls");
    }

    #[tokio::test]
    async fn several_answers_share_a_stream_that_ends_once() {
        let answer = |word: &str| vec![text(word), finished(FinishReason::Stop)];
        let chunks = streams(vec![answer("a"), answer("b")], true).await;
        for (index, word) in [(0, "a"), (1, "b")] {
            let of_it = || chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index);
            let texts: String = of_it().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
            assert_eq!(texts, word);
            assert_eq!(of_it().filter(|chunk| chunk["choices"][0]["finish_reason"] == "stop").count(), 1);
        }
        let [.., usage, done] = chunks.as_slice() else { panic!("{chunks:?}") };
        assert_eq!((&usage["usage"]["prompt_tokens"], &usage["usage"]["completion_tokens"]), (&json!(10), &json!(4)));
        assert_eq!(done, "[DONE]");
        let failing = vec![Event::Failed(Failure::Fault("the executor stopped".into()))];
        let chunks = streams(vec![failing.clone(), failing], true).await;
        assert_eq!(chunks.len(), 1, "one failure ends all: {chunks:?}");
    }

    #[test]
    fn alternatives_need_log_probabilities() {
        let read = |body: Value| logprobs(&Field::body(&body).object().unwrap()).map_err(|e| e.to_string());
        assert_eq!(read(json!({})), Ok(None));
        assert_eq!(read(json!({"logprobs": false, "top_logprobs": 0})), Ok(None));
        assert_eq!(read(json!({"logprobs": true})), Ok(Some(0)));
        assert_eq!(read(json!({"logprobs": true, "top_logprobs": 5})), Ok(Some(5)));
        assert_eq!(read(json!({"top_logprobs": 5})).unwrap_err(), "`top_logprobs` needs `logprobs` to be true");
        let problem = read(json!({"logprobs": true, "top_logprobs": 21})).unwrap_err();
        assert_eq!(problem, "`top_logprobs` must be between 0 and 20, found 21");
        assert_eq!(read(json!({"logprobs": 3})).unwrap_err(), "`logprobs` must be a boolean, found an integer");
    }
}
