//! The key that a request must carry where the server has one.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::error::ApiError;

/// Refuses requests without one of the server's keys.
pub(crate) async fn require_key(State(app): State<App>, request: Request, next: Next) -> Response {
    if authorized(&app.keys, request.headers()) {
        return next.run(request).await;
    }
    asks_for_key(request.headers()).into_response()
}

/// What those are told who have no valid key.
pub(crate) fn asks_for_key(headers: &HeaderMap) -> ApiError {
    let how = "send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
    let message = if presented(headers).is_some() {
        format!("The API key is not valid; {how}")
    } else {
        format!("This server asks for an API key; {how}")
    };
    ApiError::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key")
}

/// Whether these headers carry one of the keys, or none is asked for.
pub(crate) fn authorized(keys: &[String], headers: &HeaderMap) -> bool {
    if keys.is_empty() {
        return true;
    }
    let Some(given) = presented(headers) else { return false };
    // Every key is compared in full, so that the time taken tells nothing about them.
    let equal = |key: &String| key.as_bytes().ct_eq(given);
    keys.iter().map(equal).fold(subtle::Choice::from(0), |any, one| any | one).into()
}

fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes().trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        authorized(&["first".into(), "second".into()], &headers)
    }

    #[test]
    fn each_key_opens_by_either_header() {
        for key in ["first", "second"] {
            assert!(check("authorization", &format!("Bearer {key}")));
            assert!(check("authorization", &format!("bearer  {key} ")));
            assert!(check("x-api-key", key));
        }
    }

    #[test]
    fn nothing_else_opens() {
        for value in ["Bearer", "Bearer ", "Bearer firs", "Bearer firstx", "Basic first", "first", "Bearer FIRST"] {
            assert!(!check("authorization", value), "{value:?}");
        }
        assert!(!check("x-api-key", ""));
        assert!(!authorized(&["first".into()], &HeaderMap::new()));
    }

    #[test]
    fn without_keys_everything_is_open() {
        assert!(authorized(&[], &HeaderMap::new()));
    }
}
