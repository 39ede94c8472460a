//! The layer that gives every other request its row: refusals with their reason, and on `--verbose` everything.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::row::{Ending, Row, time_of_day};
use crate::app::App;
use crate::error::Reason;

/// When a request came in, before its body was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival(pub(crate) Instant);

/// Beside a response whose row another one writes (`super::PendingRow`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedElsewhere;

/// Notes the arrival, and writes the row once the response is there.
pub(crate) async fn log_requests(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let arrival = Arrival(Instant::now());
    let endpoint = request.uri().path().to_owned();
    request.extensions_mut().insert(arrival);
    let mut response = next.run(request).await;
    let elsewhere = response.extensions().get::<LoggedElsewhere>().is_some();
    let status = response.status().as_u16();
    let ending = match response.extensions_mut().remove::<Reason>() {
        Some(Reason(why)) => {
            app.requests.answered_with_error(status);
            Ending::Refused(status, why)
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
            note: None,
            total: arrival.0.elapsed(),
        });
    }
    response
}
