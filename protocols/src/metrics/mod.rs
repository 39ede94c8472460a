//! `GET /metrics`: what this server does, in Prometheus' text format.
//!
//! Figures of the runtime are read when they are asked for ([`table`]); what one request tells is counted as it happens
//! ([`requests`]). Each is there under a name of Bantam's, and those that routers of clusters go by also under the names
//! that vLLM gives them, with its labels, so that a router takes this server for one.

mod observation;
mod requests;
mod table;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bantam_runtime::engine::{ModelInfo, Status};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

pub(crate) use observation::Observation;
pub(crate) use requests::Requests;

use crate::app::App;
use crate::error::ApiError;

pub(crate) async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, ApiError> {
    let model = app.model()?;
    let status = app.engine.status().await;
    let text = expose(&model, &status, &app.requests).map_err(|e| ApiError::internal(e.to_string()))?;
    Ok(([(CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text))
}

fn expose(model: &ModelInfo, status: &Status, requests: &Requests) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    table::register(&mut registry, table::BANTAM, status);
    table::register_build(&mut registry, model);
    requests.register(&mut registry);
    // vLLM numbers its engines; here there is one.
    let labels = [("model_name", model.name.as_str()), ("engine", "0")];
    let labels = labels.map(|(name, value)| (name.into(), value.to_owned().into()));
    let mut vllm = Registry::with_labels(labels.into_iter());
    table::register(&mut vllm, table::VLLM, status);
    table::register_cache(&mut vllm, status);
    requests.register_vllm(&mut vllm);
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    prometheus_text::encode(&mut text, &vllm)?;
    Ok(text)
}
