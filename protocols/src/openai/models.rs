//! `GET /v1/models`, `/v1/models/{id}` and `/v1/me`.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use bantam_runtime::engine::ModelInfo;
use serde::Serialize;
use serde_json::{Value, json};

use crate::anthropic;
use crate::app::App;
use crate::error::ApiError;

/// A model as the list shows it to those who do not speak Anthropic's protocol.
#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// The window that one request really gets, under the names that clients look for.
    context_length: usize,
    max_model_len: usize,
    meta: Value,
}

impl<'a> Model<'a> {
    /// The model by one of its names.
    fn new(id: &'a str, model: &'a ModelInfo) -> Self {
        Model {
            id,
            object: "model",
            created: model.created,
            owned_by: "bantam",
            context_length: model.context,
            max_model_len: model.context,
            meta: json!({
                "architecture": model.architecture,
                "name": model.title,
                "n_vocab": model.vocab,
                "n_ctx": model.context,
                "n_ctx_train": model.model_context,
                "size": model.weight_bytes,
            }),
        }
    }
}

pub(crate) async fn list(State(app): State<App>, headers: HeaderMap) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    // Plugins that have come since are told of in the log; whoever asks for the list does not wait for them.
    let families = app.engine.config().families.clone();
    tokio::task::spawn_blocking(move || families.refresh());
    let names = std::iter::once(&model.name).chain(&app.model_aliases);
    if anthropic::speaks_it(&headers) {
        return Ok(Json(anthropic::models::list(names, &model)));
    }
    let data: Vec<_> = names.map(|name| Model::new(name, &model)).collect();
    Ok(Json(json!({ "object": "list", "data": data })))
}

/// Who asks: there is one user.
pub(crate) async fn me() -> Json<Value> {
    Json(json!({"id": "local", "object": "user", "owned_by": "bantam"}))
}

pub(crate) async fn one(
    State(app): State<App>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    let Path(id) = id.map_err(|_| ApiError::bad_request("The model's name in the path is not UTF-8").param("model"))?;
    if !app.is_model(&id, &model) {
        return Err(ApiError::model_not_found(&id));
    }
    if anthropic::speaks_it(&headers) {
        return Ok(Json(anthropic::models::one(&id, &model)));
    }
    Ok(Json(json!(Model::new(&id, &model))))
}
