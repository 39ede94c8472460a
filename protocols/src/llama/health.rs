//! `GET /health` and `GET /ready`: answered from what is known without asking the model.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bantam_runtime::engine::{Engine, Readiness, SlotState, Status};
use bantam_runtime::words::brief;
use serde_json::{Value, json};

use super::slots::millis;
use crate::app::{App, RETRY_LOADING_S};
use crate::auth::{asks_for_key, authorized};
use crate::error::ApiError;

/// 200 once requests are served, 503 with the reason before and after. Figures are for those who have the key.
pub(crate) async fn health(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    let (status, mut body) = state(&app.engine);
    if !authorized(&app.keys, &headers) {
        return bare(&app, &headers, status, &body);
    }
    if status == StatusCode::OK
        && let (Some(body), Value::Object(figures)) = (body.as_object_mut(), figures(&app.engine.status().await))
    {
        body.extend(figures);
    }
    Ok((status, Json(body)).into_response())
}

/// What those without the key are told: the status if probes are open, otherwise to send one.
fn bare(app: &App, headers: &HeaderMap, status: StatusCode, body: &Value) -> Result<Response, ApiError> {
    if !app.open_probes {
        return Err(asks_for_key(headers));
    }
    Ok((status, Json(json!({"status": body["status"]}))).into_response())
}

/// 200 while a request that comes now is taken, otherwise 503 with the time after which to ask again.
pub(crate) async fn ready(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    let (status, body) = state(&app.engine);
    let mut response = match authorized(&app.keys, &headers) {
        true => (status, Json(body)).into_response(),
        false => bare(&app, &headers, status, &body)?,
    };
    if status != StatusCode::OK {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_LOADING_S));
    }
    Ok(response)
}

fn state(engine: &Engine) -> (StatusCode, Value) {
    match engine.readiness() {
        Readiness::Ready(_) => (StatusCode::OK, json!({"status": "ok"})),
        Readiness::Loading(part) => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "loading", "progress": part})),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "draining"})),
        Readiness::Failed(why) => {
            let reason = without_paths(&brief(&why), &engine.config().model);
            (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "failed", "reason": reason}))
        }
    }
}

/// The text with the names of files in place of their paths, which are nobody's business who asks from elsewhere.
fn without_paths(text: &str, model: &Path) -> String {
    let folder = model.parent().filter(|folder| folder.components().next().is_some());
    let text = match folder {
        Some(folder) => text.replace(&format!("{}{}", folder.display(), std::path::MAIN_SEPARATOR), ""),
        None => text.to_owned(),
    };
    text.split(' ').map(file_name).collect::<Vec<_>>().join(" ")
}

/// A word without the folders of an absolute path in it.
fn file_name(word: &str) -> String {
    let start = word.find(|c: char| c.is_alphanumeric() || "/\\~.".contains(c)).unwrap_or(0);
    let (quote, path) = word.split_at(start);
    let drive = path.as_bytes().get(1) == Some(&b':') && path.as_bytes().get(2) == Some(&b'\\');
    let absolute = path.starts_with(['/', '~', '\\']) || drive;
    match path.rfind(['/', '\\']) {
        Some(separator) if absolute => format!("{quote}{}", &path[separator + 1..]),
        _ => word.to_owned(),
    }
}

fn figures(status: &Status) -> Value {
    let idle = status.slots.iter().filter(|slot| slot.state == SlotState::Idle).count();
    let state = &status.state;
    let found = (state.tokens_wanted > 0).then(|| state.tokens_reused as f64 / state.tokens_wanted as f64);
    json!({
        "slots_idle": idle,
        "slots_processing": status.slots.len() - idle,
        "requests_queued": status.queued,
        "queue": status.waiting(),
        "steps": status.steps,
        "step_running_ms": status.step_running.map(millis),
        "last_step_ms_ago": status.last_step.map(millis),
        "rows": status.rows,
        "prefill_tok_s": status.prefill_speed.map(rounded),
        "decode_tok_s": status.decode_speed.map(rounded),
        "max_step_sequences": status.max_step_sequences,
        "reused_tokens": status.reused_tokens,
        "prefix_hit_rate": found.map(rounded),
        "state_pages_used": state.pages_held + state.pages_cached,
        "state_bytes": state.bytes,
        "state_budget_bytes": state.budget,
        "kv_usage": rounded(state.usage),
    })
}

/// Four decimal places: more say nothing.
fn rounded(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_files_and_no_folders() {
        let model = Path::new("models/private/a.gguf");
        for (text, told) in [
            ("models/private/a.gguf: cannot be opened", "a.gguf: cannot be opened"),
            ("`/srv/models/b.gguf` is not a GGUF file", "`b.gguf` is not a GGUF file"),
            ("(~/x/c.gguf)", "(c.gguf)"),
            ("C:\\models\\d.gguf: too short", "d.gguf: too short"),
            ("tensor `a/b` needs 3 tok/s and/or --context", "tensor `a/b` needs 3 tok/s and/or --context"),
            ("", ""),
        ] {
            assert_eq!(without_paths(text, model), told);
        }
        assert_eq!(without_paths("a.gguf: no", Path::new("a.gguf")), "a.gguf: no");
        assert_eq!(without_paths("/my models/e.gguf: no", Path::new("/my models/e.gguf")), "e.gguf: no");
    }

    #[test]
    fn what_is_not_known_yet_is_null() {
        let figures = figures(&Status::default());
        for name in ["last_step_ms_ago", "prefill_tok_s", "decode_tok_s", "prefix_hit_rate"] {
            assert_eq!(figures[name], Value::Null, "{name}");
        }
        assert_eq!((&figures["queue"], &figures["kv_usage"]), (&json!(0), &json!(0.0)));
    }
}
