//! `POST /v1/responses` and `/v1/responses/input_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{ModelInfo, Prompt};
use serde_json::{Value, json};

use super::events::Events;
use super::new_id;
use super::object::{End, begun};
use super::progress::Progress;
use super::request::ResponsesRequest;
use super::store::{Place, Store};
use crate::answer::{Frames, respond_with, seen, told_at_once, with_seen};
use crate::app::{App, AppState};
use crate::error::ApiError;
use crate::fields::Field;
use crate::limits::JsonBody;
use crate::log::Arrival;

const ENDPOINT: &str = "/v1/responses";

/// What the chat API and the runtime call fields, and what they are called here.
const NAMES: [(&str, &str); 5] = [
    ("messages", "input"),
    (".function.parameters", ".parameters"),
    (".function.name", ".name"),
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
];

pub(crate) async fn create(
    State(app): State<App>,
    Extension(arrival): Extension<Arrival>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let resident = app.model()?;
    let asked = read(&app, &body, &resident)?;
    if !asked.asks {
        return Ok(nothing(&asked, &resident));
    }
    if asked.background && !asked.store {
        return Err(ApiError::bad_request("`background` needs `store` to be true").param("background"));
    }
    let object = begun(&new_id("resp"), &asked, &resident);
    let answer = app.submit(ENDPOINT, arrival, asked.request).await.map_err(|error| error.in_names(&NAMES))?;
    let answer = answer.known_as(&app.live, object["id"].as_str().unwrap_or_default());
    let answer = answer.with_progress(asked.progress, &app.engine);
    let (answer, place) = match asked.store {
        true => {
            // Others than the one who is told the whole response may know its name.
            let follow = asked.stream || asked.background;
            let (place, stopped) = Store::open(&app.responses, &object, asked.history, asked.input, follow);
            (answer.until(stopped), Some(place))
        }
        false => (answer, None),
    };
    let events = place.as_ref().and_then(Place::events);
    let progress = Progress::new(object.clone(), asked.telling, place);
    let seen = seen([&answer]);
    if asked.background {
        tokio::spawn(answer.drive(progress));
        let response = match events.filter(|_| asked.stream) {
            Some(events) => respond_with(Events::follow(events, 0, app.sse_keepalive)),
            None => Json(object).into_response(),
        };
        return Ok(with_seen(response, seen));
    }
    if asked.stream {
        return Ok(answer.stream(progress, app.sse_keepalive));
    }
    let told = answer.drive(progress).await;
    let response = told.map_or_else(IntoResponse::into_response, |progress| Json(progress.object()).into_response());
    Ok(with_seen(response, seen))
}

pub(crate) async fn input_tokens(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let resident = app.model()?;
    let asked = read(&app, &body, &resident)?;
    let tokens = match asked.request.prompt {
        Prompt::Chat(chat) if asked.asks => app.render(chat).await.map_err(|error| error.in_names(&NAMES))?.1.len(),
        _ => 0,
    };
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": tokens})))
}

fn read<'a>(app: &AppState, body: &'a Value, resident: &ModelInfo) -> Result<ResponsesRequest<'a>, ApiError> {
    let previous = Field::body(body).object()?.text("previous_response_id")?;
    let history = match previous {
        None => Vec::new(),
        Some(id) => app.responses.conversation(id).ok_or_else(|| {
            let message = format!("Previous response with id '{id}' not found: send the whole conversation as `input`");
            ApiError::bad_request(message).code("previous_response_not_found").param("previous_response_id")
        })?,
    };
    let asked = ResponsesRequest::read(body, history, &app.responses)?;
    app.check_model(asked.model, resident)?;
    Ok(asked)
}

/// The answer to nothing.
fn nothing(asked: &ResponsesRequest<'_>, resident: &Arc<ModelInfo>) -> Response {
    let object = begun(&new_id("resp"), asked, resident);
    let mut progress = Progress::new(object, asked.telling.clone(), None);
    let mut told = progress.begun();
    told.extend(progress.end(&End::Empty));
    if asked.stream { told_at_once(told) } else { Json(progress.object()).into_response() }
}
