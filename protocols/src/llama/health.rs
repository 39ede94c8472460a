//! `GET /health`: open to everybody, and answered from what is known without asking the model.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use bantam_runtime::engine::{Readiness, SlotState, Status};
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::authorized;

/// 200 once requests are served, 503 with the reason before and after. Figures are for those who have the key.
pub(crate) async fn health(State(app): State<App>, headers: HeaderMap) -> (StatusCode, Json<Value>) {
    let (status, mut body) = match app.engine.readiness() {
        Readiness::Loading(part) => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "loading", "progress": part})),
        Readiness::Failed(_) => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "failed"})),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "draining"})),
        Readiness::Ready(_) => (StatusCode::OK, json!({"status": "ok"})),
    };
    if status == StatusCode::OK
        && authorized(&app.keys, &headers)
        && let (Some(body), Value::Object(figures)) = (body.as_object_mut(), figures(&app.engine.status().await))
    {
        body.extend(figures);
    }
    (status, Json(body))
}

fn figures(status: &Status) -> Value {
    let idle = status.slots.iter().filter(|slot| slot.state == SlotState::Idle).count();
    json!({
        "slots_idle": idle,
        "slots_processing": status.slots.len() - idle,
        "requests_queued": status.queued,
        "steps": status.steps,
        "rows": status.rows,
        "max_step_sequences": status.max_step_sequences,
        "reused_tokens": status.reused_tokens,
        "state_pages_used": status.state.pages_held + status.state.pages_cached,
        "state_bytes": status.state.bytes,
        "state_budget_bytes": status.state.budget,
    })
}
