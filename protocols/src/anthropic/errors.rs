//! Errors in Anthropic's form, for whoever speaks its protocol, whatever part of the server they come from.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::log::Arrival;

/// Whether a client of Anthropic's protocol asks, on a route that others have too.
pub(crate) fn speaks_it(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

/// Tells refusals of requests of this protocol in its form.
pub(crate) async fn in_anthropics_form(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let own = path == "/v1/messages" || path.starts_with("/v1/messages/") || speaks_it(request.headers());
    let id = request.extensions().get::<Arrival>().map(Arrival::id).unwrap_or_default();
    let response = next.run(request).await;
    match response.extensions().get::<ApiError>().filter(|_| own).cloned() {
        Some(error) => retold(response, &error, &id),
        None => response,
    }
}

/// The same response with this protocol's status and body.
fn retold(response: Response, error: &ApiError, id: &str) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.status = status(error.status);
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = Json(body(error, id)).into_response().into_body();
    Response::from_parts(parts, body)
}

/// `overloaded_error` has a number of its own, by which clients know that it is worth trying again.
fn status(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => StatusCode::from_u16(529).unwrap_or(status),
        other => other,
    }
}

/// The body of a response, or the data of a stream's last event.
pub(super) fn body(error: &ApiError, id: &str) -> Value {
    let told = json!({"type": kind(error.status), "message": message(error)});
    json!({"type": "error", "error": told, "request_id": id})
}

fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

/// Agents know a full window by these words alone, and read from them by how much to shorten the conversation. One token
/// of the window is the answer's.
fn message(error: &ApiError) -> String {
    let number = |name| error.details.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    match (error.code, number("n_prompt_tokens"), number("n_ctx")) {
        (Some("context_length_exceeded"), Some(prompt), Some(context)) => {
            format!("prompt is too long: {prompt} tokens > {} maximum", context.saturating_sub(1))
        }
        _ => error.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use bantam_runtime::engine::Refusal;

    use super::*;

    #[test]
    fn every_status_has_its_type() {
        let cases = [
            (400, "invalid_request_error", 400),
            (401, "authentication_error", 401),
            (403, "permission_error", 403),
            (404, "not_found_error", 404),
            (405, "invalid_request_error", 405),
            (408, "invalid_request_error", 408),
            (413, "request_too_large", 413),
            (429, "rate_limit_error", 429),
            (500, "api_error", 500),
            (503, "overloaded_error", 529),
            (504, "timeout_error", 504),
        ];
        for (given, kind, told) in cases {
            let error = ApiError::new(StatusCode::from_u16(given).unwrap(), "why");
            let body = body(&error, "req_1");
            let expected = json!({"type": "error", "error": {"type": kind, "message": "why"}, "request_id": "req_1"});
            assert_eq!((body, status(error.status).as_u16()), (expected, told));
        }
    }

    #[test]
    fn a_full_window_is_told_in_the_words_that_agents_know() {
        let full = Refusal::ContextExceeded { prompt_tokens: 9001, max_tokens: 100, context: 8192 };
        let error = ApiError::refused(full, "messages");
        assert_eq!(message(&error), "prompt is too long: 9001 tokens > 8191 maximum");
    }
}
