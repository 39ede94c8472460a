//! Answers under way, by the names that clients know them by: `POST …/{id}/stop_thinking`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bantam_runtime::engine::StopThinking;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;

/// What of each answer under way can be ended by others. Touched when an answer begins and ends, never in between.
#[derive(Debug, Default)]
pub(crate) struct Live(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Of the next one that is entered.
    number: u64,
    /// By number, with their names, which several may share.
    answers: BTreeMap<u64, (String, StopThinking)>,
}

/// An answer's place among them, until it is dropped.
pub(crate) struct Entry {
    live: Arc<Live>,
    number: u64,
}

impl Live {
    /// Enters an answer.
    pub(crate) fn enter(live: &Arc<Live>, id: &str, stop: StopThinking) -> Entry {
        let mut known = live.lock();
        let number = known.number;
        known.number += 1;
        known.answers.insert(number, (id.to_owned(), stop));
        Entry { live: Arc::clone(live), number }
    }

    /// Ends the thinking of the answers of this name. False if there are none.
    pub(crate) fn stop_thinking(&self, id: &str) -> bool {
        let known = self.lock();
        let mut named = known.answers.values().filter(|(name, _)| name == id).peekable();
        let found = named.peek().is_some();
        named.for_each(|(_, stop)| stop.stop());
        found
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.live.lock().answers.remove(&self.number);
    }
}

/// Ends the thinking of a running answer, which then goes on to its end.
pub(crate) async fn stop_thinking(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(id) = id.map_err(|_| ApiError::bad_request("The answer's name in the path is not UTF-8"))?;
    if app.live.stop_thinking(&id) {
        return Ok(Json(json!({ "id": id, "thinking_stopped": true })));
    }
    let message = format!("No answer of the name `{id}` is under way; the first event of a stream has its name");
    Err(ApiError::new(StatusCode::NOT_FOUND, message).code("answer_not_found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_known_while_they_are_under_way() {
        let live = Arc::default();
        let [one, other] = [(); 2].map(|()| Live::enter(&live, "a", StopThinking::default()));
        assert!(live.stop_thinking("a") && !live.stop_thinking("b"));
        drop(one);
        assert!(live.stop_thinking("a"));
        drop(other);
        assert!(!live.stop_thinking("a"));
    }
}
