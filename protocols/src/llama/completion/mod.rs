//! `POST /completion` and `POST /infill`: llama.cpp's own protocol of texts.

mod biases;
mod extent;
mod infill;
mod prompt;
mod request;
mod told;
mod wire;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{ModelInfo, Prompt, Request};
use bantam_text::Tokenizer;
use serde_json::Value;

use crate::answer::{Answer, Whole};
use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Field, FieldError};
use crate::limits::JsonBody;
use crate::llama::text::compute;
use crate::log::Arrival;
use crate::openai::options;
use infill::{Infill, Marks};
use request::Options;
use told::Teller;
pub(crate) use wire::{Settings, settings};

/// A request, checked and with tokens where it is no text alone.
struct Asked {
    options: Options,
    prompts: Vec<Prompt>,
    /// Whether something of what was sent had to be left out of the prompt.
    cut: bool,
}

pub(crate) async fn completion(
    State(app): State<App>,
    Extension(arrival): Extension<Arrival>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let model = app.model()?;
    let most = app.engine.config().concurrency;
    let asked = compute(&model, move |model| read_completion(&body, model, most)).await??;
    answer("/completion", &app, arrival, &model, asked).await
}

fn read_completion(body: &Value, model: &ModelInfo, most: usize) -> Result<Asked, ApiError> {
    let fields = Field::body(body).object()?;
    let options = Options::read(&fields, &model.tokenizer)?;
    let field = fields.required("prompt")?;
    let prompts = prompt::read(&field)?;
    let answers = prompts.len().saturating_mul(options.n);
    if answers > most {
        let problem = format!("asks for {answers} answers; this server takes {most} at once");
        return Err(field.error(problem).into());
    }
    let prompts = prompts.into_iter().map(|parts| prompt::prompt(parts, model)).collect::<Result<_, _>>()?;
    Ok(Asked { options, prompts, cut: false })
}

pub(crate) async fn infill(
    State(app): State<App>,
    Extension(arrival): Extension<Arrival>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let model = app.model()?;
    let asked = compute(&model, move |model| read_infill(&body, model)).await??;
    answer("/infill", &app, arrival, &model, asked).await
}

/// Whether a vocabulary has what infilling takes.
pub(crate) fn can_infill(tokenizer: &Tokenizer) -> bool {
    Marks::of(tokenizer).is_some()
}

fn read_infill(body: &Value, model: &ModelInfo) -> Result<Asked, ApiError> {
    let fields = Field::body(body).object()?;
    let options = Options::read(&fields, &model.tokenizer)?;
    let infill = Infill::read(&fields)?;
    let marks = Marks::of(&model.tokenizer).ok_or_else(|| {
        let why = "The model's vocabulary has no tokens for infilling (prefix, suffix and middle of a text); \
                   send a prompt of your own to /completion";
        ApiError::not_supported(why)
    })?;
    let wanted = options.request.max_tokens.unwrap_or(model.max_tokens);
    // Half of the window is the prompt's in any case.
    let room = model.context.saturating_sub(wanted).max(model.context / 2);
    let (tokens, cut) = infill.tokens(&model.tokenizer, marks, room)?;
    Ok(Asked { options, prompts: vec![Prompt::Tokens(tokens)], cut })
}

/// Answers each prompt as often as is asked for.
async fn answer(
    endpoint: &'static str,
    app: &App,
    arrival: Arrival,
    model: &Arc<ModelInfo>,
    asked: Asked,
) -> Result<Response, ApiError> {
    let Asked { options, prompts, cut } = asked;
    app.check_model(options.model.as_deref(), model)?;
    let of = |prompt: &Prompt| Request { prompt: prompt.clone(), ..options.request.clone() };
    let requests: Vec<_> = prompts.iter().flat_map(|prompt| options::variants(&of(prompt), options.n)).collect();
    let params = model.sampling.with(&options.request.sampling).map_err(|e| FieldError::new(&e.field, e.problem()))?;
    let answers = app.submit_all(endpoint, arrival, requests).await?;
    let teller = Arc::new(Teller::new(&options, &params, model, &prompts, cut));
    let prepared = answers.into_iter().map(|answer| {
        let answer = answer.with_progress(options.progress, &app.engine);
        let prompt_tokens = answer.prompt_tokens();
        answer.rewritten(|events| options.extent.clone().cut(events, prompt_tokens))
    });
    let answers: Vec<Answer> = prepared.collect();
    if options.stream {
        let told = answers.into_iter().enumerate().map(|(index, answer)| {
            let stream = told::Stream::new(Arc::clone(&teller), index, answer.prompt_tokens());
            (answer, stream)
        });
        return Ok(Answer::stream_all(told.collect(), |_| Vec::new(), app.sse_keepalive));
    }
    let whole = move |wholes: Vec<Whole>| {
        let told: Vec<_> = wholes.iter().enumerate().map(|(index, whole)| teller.whole(index, whole)).collect();
        match <[Value; 1]>::try_from(told) {
            Ok([only]) => Json(only).into_response(),
            Err(several) => Json(several).into_response(),
        }
    };
    Ok(Answer::respond_all(answers, whole).await)
}
