//! Smaller routes of llama.cpp's server, and what is said on those for which this one has nothing.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::fields::Field;
use crate::limits::JsonBody;
use crate::openai::conversation;

/// Where clients ask for embeddings.
pub(crate) const EMBEDDING_ROUTES: [&str; 3] = ["/embedding", "/embeddings", "/v1/embeddings"];

/// Where clients ask for the order of texts.
pub(crate) const RERANKING_ROUTES: [&str; 4] = ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"];

/// `POST /v1/chat/completions/control`: `reasoning_end` ends the thinking of an answer under way.
pub(crate) async fn control(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let fields = Field::body(&body).object()?;
    let (id, action) = (fields.required("id")?.text()?, fields.required("action")?);
    if action.text()? != "reasoning_end" {
        return Err(action.error("must be \"reasoning_end\"").into());
    }
    if app.live.stop_thinking(id) {
        return Ok(Json(json!({"success": true})));
    }
    Ok(Json(json!({"success": false, "message": "no answer of this name is under way"})))
}

/// `POST /v1/chat/completions/input_tokens`: the tokens that a conversation's prompt has.
pub(crate) async fn input_tokens(State(app): State<App>, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    app.model()?;
    let fields = Field::body(&body).object()?;
    let (_, tokens) = app.render(conversation(&fields)?).await?;
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": tokens.len()})))
}

/// `GET /lora-adapters`: there are none.
pub(crate) async fn adapters() -> Json<Value> {
    Json(json!([]))
}

/// `POST /lora-adapters`: none can be set.
pub(crate) async fn set_adapters(JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    match Field::body(&body).items()?.as_slice() {
        [] => Ok(Json(json!({"success": true}))),
        _ => Err(ApiError::not_supported("This server loads no LoRA adapters; merge them into the model file")),
    }
}

/// `POST /slots/{id}?action=…`: a slot owns no cache here that could be saved or erased.
pub(crate) async fn slot_action(id: Result<Path<String>, PathRejection>) -> ApiError {
    if !id.is_ok_and(|Path(id)| id.parse::<u32>().is_ok()) {
        return ApiError::bad_request("The slot's number in the path must be an integer").param("id");
    }
    ApiError::not_supported(
        "Slots own no cache here: all requests share one, which --cache-dir saves at the end and restores at the start",
    )
}

pub(crate) async fn no_embeddings(JsonBody(_): JsonBody) -> ApiError {
    ApiError::not_supported("This server makes no embeddings: its model generates text")
}

pub(crate) async fn no_reranking(JsonBody(_): JsonBody) -> ApiError {
    ApiError::not_supported("This server does not rank documents: its model generates text")
}
