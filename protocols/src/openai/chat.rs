//! `POST /v1/chat/completions`.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{Delta, Outcome, Prompt, Request};
use serde_json::Value;

use super::chat_wire::{Choice, ChunkChoice, ChunkDelta, Logprobs};
use super::envelope::{Pieces, Stamp, frame};
use super::options::{Delivery, MAX_LOGPROBS};
use super::{conversation, finish_reason, options, unsupported};
use crate::answer::{Frame, Frames, Whole};
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
    request: Request,
}

impl<'a> ChatRequest<'a> {
    pub(super) fn read(body: &'a Value) -> Result<Self, FieldError> {
        let fields = Field::body(body).object()?;
        let model = fields.text("model")?;
        unsupported::refuse_in_chat(&fields)?;
        let logprobs = logprobs(&fields)?;
        let prompt = Prompt::Chat(conversation(&fields)?);
        Ok(ChatRequest {
            model,
            delivery: Delivery::read(&fields)?,
            logprobs: logprobs.is_some(),
            request: options::request(&fields, prompt, logprobs)?,
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
    let ChatRequest { model, delivery, logprobs, request } = ChatRequest::read(&body)?;
    app.check_model(model, &resident)?;
    let answer = app.submit(ENDPOINT, arrival, request).await?;
    let stamp = Stamp::new("chatcmpl", &resident.name);
    if delivery.stream {
        return Ok(answer.stream(ChatStream::new(stamp, delivery.include_usage), app.sse_keepalive));
    }
    let whole = |whole: Whole| {
        let outcome = whole.outcome.clone();
        Json(stamp.whole("chat.completion", Choice::new(whole, logprobs), &outcome)).into_response()
    };
    Ok(answer.respond(whole).await)
}

/// A chat answer as `chat.completion.chunk` objects.
struct ChatStream(Pieces);

impl ChatStream {
    fn new(stamp: Stamp, include_usage: bool) -> Self {
        ChatStream(Pieces { stamp, object: "chat.completion.chunk", include_usage })
    }
}

impl Frames for ChatStream {
    fn started(&mut self, _: usize) -> Vec<Frame> {
        vec![self.0.piece(ChunkChoice { delta: ChunkDelta::role(), ..ChunkChoice::default() })]
    }

    fn delta(&mut self, delta: Delta) -> Vec<Frame> {
        let text = delta.text();
        if text.is_empty() && delta.tokens.is_empty() {
            return Vec::new();
        }
        let logprobs = (!delta.tokens.is_empty()).then(|| Logprobs::new(&delta.tokens));
        vec![self.0.piece(ChunkChoice { delta: ChunkDelta::content(text), logprobs, ..ChunkChoice::default() })]
    }

    fn finished(&mut self, outcome: &Outcome) -> Vec<Frame> {
        let finish_reason = Some(finish_reason(outcome.reason));
        self.0.ending(ChunkChoice { finish_reason, ..ChunkChoice::default() }, outcome)
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Frame> {
        vec![frame(&error.body())]
    }
}

#[cfg(test)]
mod tests {
    use bantam_runtime::engine::{Event, Failure, FinishReason};
    use serde_json::json;

    use super::*;
    use crate::answer::testing::{finished, scripted, text, token, told};

    fn stamp() -> Stamp {
        Stamp { id: "chatcmpl-1".into(), created: 5, model: "local".into() }
    }

    async fn stream(events: Vec<Event>, include_usage: bool) -> Vec<Value> {
        let told = told(scripted(events), ChatStream::new(stamp(), include_usage)).await;
        told.iter().map(|data| serde_json::from_str(data).unwrap_or(Value::from(data.as_str()))).collect()
    }

    #[tokio::test]
    async fn a_stream_has_one_role_its_pieces_one_finish_and_the_end() {
        let events = vec![
            Event::Started { cached_tokens: 4, miss: None },
            text("He"),
            text(""),
            text("llo"),
            finished(FinishReason::Stop),
        ];
        let chunks = stream(events, false).await;
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
            stream(vec![Event::Started { cached_tokens: 4, miss: None }, finished(FinishReason::Length)], true).await;
        let [role, finish, usage, done] = chunks.as_slice() else { panic!("{chunks:?}") };
        assert_eq!((&role["usage"], &finish["usage"]), (&json!(null), &json!(null)));
        assert!(role.get("usage").is_some());
        assert_eq!(finish["choices"][0]["finish_reason"], "length");
        assert_eq!(usage["choices"], json!([]));
        let expected = json!({
            "prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 4},
        });
        assert_eq!(usage["usage"], expected);
        assert_eq!(done, "[DONE]");
    }

    #[tokio::test]
    async fn a_failed_stream_ends_with_the_error_and_no_done() {
        let chunks = stream(vec![text("a"), Event::Failed(Failure::Fault("the executor stopped".into()))], true).await;
        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks[1]["error"]["message"], "the executor stopped");
        assert_eq!(chunks[1]["error"]["type"], "server_error");
    }

    #[tokio::test]
    async fn log_probabilities_travel_with_their_piece() {
        let chunks = stream(vec![token("a"), finished(FinishReason::Stop)], false).await;
        let told = &chunks[0]["choices"][0]["logprobs"]["content"][0];
        assert_eq!((&told["token"], &told["logprob"], &told["bytes"]), (&json!("a"), &json!(-0.5), &json!([97])));
        assert_eq!(told["top_logprobs"][1], json!({"token": "\u{fffd}", "logprob": -9999.0, "bytes": [226, 130]}));
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
