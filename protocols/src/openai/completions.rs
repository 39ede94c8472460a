//! `POST /v1/completions`.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{Delta, Outcome, Prompt, Request};
use serde_json::Value;

use super::completions_wire::{Choice, Logprobs, Offset};
use super::envelope::{Pieces, Stamp, frame};
use super::options::{Delivery, MAX_LOGPROBS};
use super::usage::Usage;
use super::{finish_reason, options, unsupported};
use crate::answer::{Answer, Frame, Frames, Progress, Whole};
use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Field, FieldError, Fields};
use crate::limits::JsonBody;
use crate::log::Arrival;

const ENDPOINT: &str = "/v1/completions";

const OBJECT: &str = "text_completion";

/// A completions request, checked.
pub(super) struct CompletionsRequest<'a> {
    model: Option<&'a str>,
    delivery: Delivery,
    logprobs: bool,
    /// The prompts, where they are to stand before the answers.
    echo: Option<Vec<String>>,
    /// Answers to each prompt.
    n: usize,
    /// One for each prompt.
    requests: Vec<Request>,
}

impl<'a> CompletionsRequest<'a> {
    pub(super) fn read(body: &'a Value) -> Result<Self, FieldError> {
        let fields = Field::body(body).object()?;
        let model = fields.text("model")?;
        unsupported::refuse_in_completions(&fields)?;
        let logprobs = fields.count("logprobs", 0, MAX_LOGPROBS)?;
        let prompts = prompts(&fields.required("prompt")?)?;
        Ok(CompletionsRequest {
            model,
            delivery: Delivery::read(&fields)?,
            logprobs: logprobs.is_some(),
            echo: echo(&fields, &prompts, logprobs.is_some())?,
            n: options::n(&fields)?,
            requests: prompts
                .into_iter()
                .map(|prompt| options::request(&fields, prompt, logprobs))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// One prompt, or an array of several.
fn prompts(field: &Field<'_>) -> Result<Vec<Prompt>, FieldError> {
    match field.value() {
        Value::Array(values) if matches!(values.first(), Some(Value::String(_) | Value::Array(_))) => {
            field.items()?.iter().map(prompt).collect()
        }
        _ => prompt(field).map(|only| vec![only]),
    }
}

/// A text or token ids.
fn prompt(field: &Field<'_>) -> Result<Prompt, FieldError> {
    match field.value() {
        Value::String(text) => Ok(Prompt::Text(text.clone())),
        Value::Array(ids) if ids.is_empty() => Err(field.error("must not be empty")),
        Value::Array(_) => Ok(Prompt::Tokens(field.items()?.iter().map(Field::token).collect::<Result<_, _>>()?)),
        _ => Err(field.expected("a string, an array of token ids, or an array of these")),
    }
}

fn echo(fields: &Fields<'_>, prompts: &[Prompt], logprobs: bool) -> Result<Option<Vec<String>>, FieldError> {
    if !fields.flag("echo")?.unwrap_or(false) {
        return Ok(None);
    }
    let text = |prompt: &Prompt| match prompt {
        Prompt::Text(text) if !logprobs => Ok(text.clone()),
        Prompt::Text(_) => Err(FieldError::new("echo", "is not supported together with `logprobs`")),
        _ => Err(FieldError::new("echo", "is supported with a prompt of text only")),
    };
    prompts.iter().map(text).collect::<Result<_, _>>().map(Some)
}

pub(crate) async fn completions(
    State(app): State<App>,
    Extension(arrival): Extension<Arrival>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let resident = app.model()?;
    let CompletionsRequest { model, delivery, logprobs, echo, n, requests } = CompletionsRequest::read(&body)?;
    app.check_model(model, &resident)?;
    let requests = requests.iter().flat_map(|request| options::variants(request, n)).collect();
    let answers = app.submit_all(ENDPOINT, arrival, requests).await?;
    let answers = answers.into_iter().map(|answer| answer.with_progress(delivery.progress, &app.engine)).collect();
    let stamp = Stamp::new("cmpl", &resident.name);
    let echoed = |index: usize| echo.as_ref().and_then(|prompts| prompts.get(index / n)).cloned();
    if delivery.stream {
        let pieces = Pieces { stamp, object: OBJECT, include_usage: delivery.include_usage };
        return Ok(stream(answers, &pieces, echoed, n, app.sse_keepalive));
    }
    let choice = |(index, whole): (usize, &Whole)| Choice {
        index,
        text: echoed(index).unwrap_or_default() + &whole.turn.content(),
        logprobs: logprobs.then(|| Logprobs::new(&whole.tokens, &mut Offset::default())),
        finish_reason: Some(finish_reason(whole.outcome.reason)),
    };
    let whole = |wholes: Vec<Whole>| {
        let choices = wholes.iter().enumerate().map(choice).collect();
        let outcomes: Vec<_> = wholes.into_iter().map(|whole| whole.outcome).collect();
        Json(stamp.whole(OBJECT, choices, Usage::of(&outcomes, n))).into_response()
    };
    Ok(Answer::respond_all(answers, whole).await)
}

/// The answers, `n` to each prompt, as `text_completion` objects.
fn stream(
    answers: Vec<Answer>,
    pieces: &Pieces,
    echoed: impl Fn(usize) -> Option<String>,
    n: usize,
    keepalive: Duration,
) -> Response {
    let last = pieces.clone();
    let told = |(index, answer)| {
        let stream =
            CompletionsStream { pieces: pieces.clone(), index, echo: echoed(index), offset: Offset::default() };
        (answer, stream)
    };
    let answers = answers.into_iter().enumerate().map(told).collect();
    Answer::stream_all(answers, move |outcomes| last.ending(Usage::of(outcomes, n)), keepalive)
}

/// One of them.
struct CompletionsStream {
    pieces: Pieces,
    index: usize,
    echo: Option<String>,
    offset: Offset,
}

impl CompletionsStream {
    fn text(&self, text: String, logprobs: Option<Logprobs>) -> Frame {
        self.pieces.piece(Choice { index: self.index, text, logprobs, finish_reason: None })
    }
}

impl Frames for CompletionsStream {
    fn started(&mut self, _: usize) -> Vec<Frame> {
        self.echo.take().map(|prompt| self.text(prompt, None)).into_iter().collect()
    }

    fn delta(&mut self, delta: Delta) -> Vec<Frame> {
        let text = delta.text();
        if text.is_empty() && delta.tokens.is_empty() {
            return Vec::new();
        }
        let logprobs = (!delta.tokens.is_empty()).then(|| Logprobs::new(&delta.tokens, &mut self.offset));
        vec![self.text(text, logprobs)]
    }

    fn finished(&mut self, outcome: &Outcome) -> Vec<Frame> {
        let finish_reason = Some(finish_reason(outcome.reason));
        vec![self.pieces.piece(Choice { index: self.index, text: String::new(), logprobs: None, finish_reason })]
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
    use bantam_runtime::engine::{Event, FinishReason};
    use serde_json::json;

    use super::*;
    use crate::answer::testing::{data, finished, scripted, text, token};

    fn read(body: &Value) -> Result<CompletionsRequest<'_>, String> {
        CompletionsRequest::read(body).map_err(|e| e.to_string())
    }

    #[test]
    fn prompts_come_in_four_shapes() {
        let prompt = |given: Value| read(&json!({"prompt": given})).map(|mut r| r.requests.remove(0).prompt);
        assert!(matches!(prompt(json!("a")), Ok(Prompt::Text(t)) if t == "a"));
        assert!(matches!(prompt(json!(["a"])), Ok(Prompt::Text(t)) if t == "a"));
        assert!(matches!(prompt(json!([1, 2])), Ok(Prompt::Tokens(t)) if t == [1, 2]));
        assert!(matches!(prompt(json!([[1, 2]])), Ok(Prompt::Tokens(t)) if t == [1, 2]));
        let problems = [
            (
                json!(["a", 1]),
                "`prompt[1]` must be a string, an array of token ids, or an array of these, found an integer",
            ),
            (json!([]), "`prompt` must not be empty"),
            (json!([[]]), "`prompt[0]` must not be empty"),
            (json!([1, "a"]), "`prompt[1]` must be an integer, found a string"),
            (json!([-1]), "`prompt[0]` must be between 0 and 4294967295, found -1"),
            (json!(null), "`prompt` is required"),
        ];
        for (given, problem) in problems {
            assert_eq!(prompt(given).unwrap_err(), problem);
        }
    }

    #[test]
    fn the_prompt_is_echoed_as_text_without_probabilities() {
        assert_eq!(read(&json!({"prompt": "a", "echo": true})).unwrap().echo, Some(vec!["a".to_owned()]));
        assert_eq!(read(&json!({"prompt": "a", "echo": false})).unwrap().echo, None);
        assert!(read(&json!({"prompt": [1], "echo": true})).err().unwrap().starts_with("`echo` is supported with"));
        assert!(read(&json!({"prompt": "a", "echo": true, "logprobs": 1})).err().unwrap().starts_with("`echo`"));
    }

    async fn stream(events: Vec<Event>, echo: Option<&str>) -> Vec<Value> {
        let stamp = Stamp { id: "cmpl-1".into(), created: 5, model: "local".into() };
        let pieces = Pieces { stamp, object: OBJECT, include_usage: true };
        let echo = |_| echo.map(str::to_owned);
        let told = data(super::stream(vec![scripted(events)], &pieces, echo, 1, Duration::from_secs(60))).await;
        told.iter().map(|data| serde_json::from_str(data).unwrap_or(Value::from(data.as_str()))).collect()
    }

    #[tokio::test]
    async fn a_stream_is_the_echo_the_pieces_the_finish_and_the_usage() {
        let events = vec![Event::Started { cached_tokens: 0, miss: None }, text("b"), finished(FinishReason::Length)];
        let pieces = stream(events, Some("a")).await;
        let texts: Vec<_> = pieces.iter().filter_map(|p| p["choices"][0]["text"].as_str()).collect();
        assert_eq!(texts, ["a", "b", ""]);
        assert_eq!(pieces[2]["choices"][0]["finish_reason"], "length");
        assert_eq!(pieces[3]["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
        assert_eq!(pieces[4], "[DONE]");
        assert_eq!(pieces.len(), 5);
    }

    #[tokio::test]
    async fn offsets_run_on_over_the_pieces() {
        let pieces = stream(vec![token("äb"), token("c"), finished(FinishReason::Stop)], None).await;
        let told = |i: usize| pieces[i]["choices"][0]["logprobs"].clone();
        assert_eq!((&told(0)["text_offset"], &told(1)["text_offset"]), (&json!([0]), &json!([2])));
        assert_eq!(told(0)["tokens"], json!(["äb"]));
        assert_eq!(told(0)["top_logprobs"][0], json!({"äb": -0.5, "bytes:\\xe2\\x82": -9999.0}));
    }
}
