//! What the server tells of its own parts: `GET /graph`, what the model computes; `GET /actors`, who does the work and how
//! they fare; `GET /memory`, who holds how much.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{ActorState, ActorStatus, DeviceStatus, MemoryEntry, MemoryStatus, StateStatus};
use bantam_runtime::words::brief;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;

/// The graphs of the model as `inspect --graph` prints them, the type of each value, and the checkpoint's tensors.
pub(crate) async fn graph(State(app): State<App>) -> Result<Response, ApiError> {
    let model = app.model()?;
    match &model.graphs {
        Ok(graphs) => Ok(([(header::CONTENT_TYPE, "application/json")], graphs.to_string()).into_response()),
        Err(why) => {
            let message = format!("There is no graph of this model: {}", brief(why));
            Err(ApiError::new(StatusCode::NOT_FOUND, message).code("no_graph"))
        }
    }
}

/// An actor and those that it starts again when they fail.
#[derive(Serialize)]
pub(crate) struct Actor {
    name: String,
    /// `running` or `stopped`.
    state: &'static str,
    /// How often it was started again, alone or with others.
    restarts: u64,
    /// How often it was the one that failed.
    failures: u64,
    last_failure: Option<String>,
    children: Vec<Actor>,
}

impl From<ActorStatus> for Actor {
    fn from(status: ActorStatus) -> Self {
        Actor {
            name: status.name,
            state: match status.state {
                ActorState::Running => "running",
                ActorState::Stopped => "stopped",
            },
            restarts: status.restarts,
            failures: status.failures,
            last_failure: status.last_failure.as_deref().map(brief),
            children: status.children.into_iter().map(Actor::from).collect(),
        }
    }
}

/// The tree of actors, also while the model loads or its actors are started again.
pub(crate) async fn actors(State(app): State<App>) -> Json<Actor> {
    Json(app.engine.actors().await.into())
}

pub(crate) async fn memory(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    app.model()?;
    let (memory, status) = tokio::join!(app.engine.memory(), app.engine.status());
    let stored = app.responses.bytes();
    Ok(Json(told(&memory, &status.state, stored)))
}

fn told(memory: &MemoryStatus, state: &StateStatus, stored: usize) -> Value {
    let held: u64 = memory.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes));
    json!({
        "ledger": {
            "total_bytes": memory.total,
            "held_bytes": held,
            "free_bytes": memory.total.map(|total| total.saturating_sub(held)),
            "entries": entries(&memory.entries),
        },
        "state": {
            "budget_bytes": state.budget,
            "held_bytes": state.bytes_held,
            "cached_bytes": state.bytes.saturating_sub(state.bytes_held),
            "pages_held": state.pages_held,
            "pages_cached": state.pages_cached,
        },
        "machine": {
            "total_bytes": memory.machine,
            "available_bytes": memory.available,
            "process_bytes": memory.process,
        },
        "device": memory.device.as_ref().map(device),
        "cache_file_bytes": memory.cache_file,
        "stored_responses_bytes": stored,
    })
}

fn device(device: &DeviceStatus) -> Value {
    let held = device.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.bytes));
    json!({
        "index": device.index,
        "name": device.name,
        "total_bytes": device.bytes,
        "available_bytes": device.free,
        "held_bytes": held,
        "free_bytes": device.free.saturating_sub(held),
        "entries": entries(&device.entries),
    })
}

fn entries(entries: &[MemoryEntry]) -> Vec<Value> {
    entries.iter().map(|e| json!({"owner": e.owner, "what": e.what, "bytes": e.bytes})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_and_what_is_free_make_up_the_whole() {
        let entry = |bytes| MemoryEntry { owner: "llama:0".into(), what: "weights".into(), bytes };
        let memory = MemoryStatus { total: Some(100), entries: vec![entry(60), entry(15)], ..MemoryStatus::default() };
        let state = StateStatus { bytes: 12, bytes_held: 5, ..StateStatus::default() };
        let told = told(&memory, &state, 0);
        assert_eq!((&told["ledger"]["held_bytes"], &told["ledger"]["free_bytes"]), (&json!(75), &json!(25)));
        assert_eq!((&told["state"]["held_bytes"], &told["state"]["cached_bytes"]), (&json!(5), &json!(7)));
        assert_eq!(told["device"], Value::Null);
        let device =
            DeviceStatus { name: "a card".into(), free: 80, entries: vec![entry(50)], ..DeviceStatus::default() };
        let on_device = super::told(&MemoryStatus { device: Some(device), ..memory.clone() }, &state, 0);
        assert_eq!((&on_device["device"]["held_bytes"], &on_device["device"]["free_bytes"]), (&json!(50), &json!(30)));
        let unknown = MemoryStatus { total: None, ..memory };
        assert_eq!(super::told(&unknown, &state, 0)["ledger"]["free_bytes"], Value::Null);
    }
}
