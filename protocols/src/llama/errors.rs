//! Errors in llama.cpp's form, on the routes that are its own: `code` is the status.

use axum::Json;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;

/// Routes of which every error has this form.
const ROUTES: [&str; 3] = ["/completion", "/completions", "/infill"];

/// Tells refusals of requests of this protocol in its form.
pub(crate) async fn in_llama_form(request: Request, next: Next) -> Response {
    let own = ROUTES.contains(&request.uri().path());
    let response = next.run(request).await;
    match response.extensions().get::<ApiError>().filter(|_| own).cloned() {
        Some(error) => {
            let (mut parts, _) = response.into_parts();
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Json(body(&error)).into_response().into_body())
        }
        None => response,
    }
}

/// The body of a response, or the data of a stream's last event.
pub(super) fn body(error: &ApiError) -> Value {
    let mut told = json!({"code": error.status.as_u16(), "message": error.message, "type": kind(error)});
    if let Some(param) = &error.param {
        told["param"] = json!(param);
    }
    for (name, number) in &error.details {
        told[*name] = json!(number);
    }
    json!({ "error": told })
}

fn kind(error: &ApiError) -> &'static str {
    match error.status {
        _ if error.code == Some("context_length_exceeded") => "exceed_context_size_error",
        _ if error.code == Some("not_supported") => "not_supported_error",
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "unavailable_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use bantam_runtime::engine::Refusal;

    use super::*;

    #[test]
    fn the_code_is_the_status() {
        let cases = [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (404, "not_found_error"),
            (413, "invalid_request_error"),
            (429, "unavailable_error"),
            (500, "server_error"),
            (503, "unavailable_error"),
        ];
        for (status, kind) in cases {
            let error = ApiError::new(StatusCode::from_u16(status).unwrap(), "why").param("prompt");
            let told = json!({"error": {"code": status, "message": "why", "type": kind, "param": "prompt"}});
            assert_eq!(body(&error), told);
        }
    }

    #[test]
    fn a_full_window_tells_its_numbers() {
        let full = Refusal::ContextExceeded { prompt_tokens: 9001, max_tokens: 100, context: 8192 };
        let told = body(&ApiError::refused(full, "prompt"))["error"].clone();
        assert_eq!((&told["type"], &told["code"]), (&json!("exceed_context_size_error"), &json!(400)));
        assert_eq!((&told["n_prompt_tokens"], &told["n_ctx"]), (&json!(9001), &json!(8192)));
    }
}
