//! The layer that gives every other request its row: refusals with their reason, and on `--verbose` everything.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use super::row::{Ending, Row, time_of_day};
use crate::app::App;
use crate::error::ApiError;

/// When a request came in, before its body was read, and the name that it has in the log and in its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    id: u64,
}

impl Arrival {
    /// Of a request that comes in now.
    pub(crate) fn now() -> Self {
        Arrival { at: Instant::now(), id: uuid::Uuid::new_v4().as_u64_pair().0 }
    }

    /// The request's name.
    pub(crate) fn id(&self) -> String {
        format!("req_{:016x}", self.id)
    }
}

/// Headers under which clients look for the name of their request.
const ID_HEADERS: [HeaderName; 2] = [HeaderName::from_static("x-request-id"), HeaderName::from_static("request-id")];

/// Beside a response whose row another one writes (`super::PendingRow`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedElsewhere;

/// Notes the arrival, and writes the row once the response is there.
pub(crate) async fn log_requests(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let arrival = Arrival::now();
    let endpoint = request.uri().path().to_owned();
    request.extensions_mut().insert(arrival);
    let mut response = next.run(request).await;
    let elsewhere = response.extensions().get::<LoggedElsewhere>().is_some();
    let status = response.status().as_u16();
    let ending = match response.extensions_mut().remove::<ApiError>() {
        Some(error) => {
            app.requests.answered_with_error(status);
            Ending::Refused(status, error.message)
        }
        None => Ending::Answered(status),
    };
    if !elsewhere && (ending.is_failure() || app.log.is_verbose()) {
        app.log.row(&Row {
            time: time_of_day(),
            endpoint,
            prompt_tokens: None,
            cached_tokens: None,
            first_token: None,
            completion_tokens: None,
            decode: None,
            ending,
            note: Some(arrival.id()),
            total: arrival.at.elapsed(),
        });
    }
    if let Ok(id) = HeaderValue::from_str(&arrival.id()) {
        ID_HEADERS.iter().for_each(|name| drop(response.headers_mut().insert(name, id.clone())));
    }
    response
}
