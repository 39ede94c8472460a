//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{ChatPrompt, ModelInfo, Prompt};
use serde_json::{Value, json};

use super::request::{MessagesRequest, counted};
use super::stream::MessageStream;
use super::wire::Stamp;
use crate::app::App;
use crate::error::ApiError;
use crate::limits::JsonBody;
use crate::log::Arrival;

const ENDPOINT: &str = "/v1/messages";

/// What the chat API and the runtime call fields, and what they are called here.
const NAMES: [(&str, &str); 5] = [
    (".function.parameters", ".input_schema"),
    (".function.name", ".name"),
    ("response_format.json_schema", "output_config.format"),
    ("response_format", "output_config.format"),
    ("stop", "stop_sequences"),
];

pub(crate) async fn create(
    State(app): State<App>,
    Extension(arrival): Extension<Arrival>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let resident = app.model()?;
    let MessagesRequest { model, stream, progress, default_budget, display, mut request } =
        MessagesRequest::read(&body)?;
    app.check_model(model, &resident)?;
    if let Prompt::Chat(chat) = &mut request.prompt {
        settle_thinking(chat, &resident);
    }
    if resident.thinking_budget.is_none() {
        request.reasoning_budget.get_or_insert(default_budget);
    }
    let stamp = Stamp::new(&resident.name);
    let answer = app.submit(ENDPOINT, arrival, request).await.map_err(|error| error.in_names(&NAMES))?;
    let answer = answer.known_as(&app.live, &stamp.id).with_progress(progress, &app.engine);
    if stream {
        let told = MessageStream::new(stamp, arrival.id(), answer.prompt_tokens(), display);
        return Ok(answer.stream(told, app.sse_keepalive));
    }
    Ok(answer.respond(|whole| Json(stamp.whole(&whole, display)).into_response()).await)
}

pub(crate) async fn count_tokens(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let resident = app.model()?;
    let (model, mut chat) = counted(&body)?;
    app.check_model(model, &resident)?;
    settle_thinking(&mut chat, &resident);
    let (_, tokens) = app.render(chat).await?;
    Ok(Json(json!({ "input_tokens": tokens.len() })))
}

/// Clients that say nothing of thinking expect an answer whose first block is text, unless the server was told otherwise.
fn settle_thinking(chat: &mut ChatPrompt, resident: &ModelInfo) {
    if chat.effort.is_none() && resident.reasoning_effort.is_none() {
        chat.thinking.get_or_insert(false);
    }
}
