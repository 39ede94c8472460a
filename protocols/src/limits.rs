//! What a client may take up: bytes of a body, and time to send it.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt;
use serde_json::Value;

use crate::app::App;
use crate::error::ApiError;

/// A too long body is read on up to this many times the limit, and dropped: a client that is still sending does not
/// read its answer.
const DISCARD_FACTOR: usize = 4;

/// Most bytes read of a body that nobody wants.
const MAX_DISCARDED: usize = 64 << 20;
/// Longest time that such a body is read, and waited for where all of it is.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// A request's body as JSON, whatever its content type says.
pub(crate) struct JsonBody(pub(crate) Value);

impl FromRequest<App> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        if let Some(encoding) = parts.headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
            let encoding = String::from_utf8_lossy(encoding.as_bytes());
            let message = format!("The request body is compressed (`{encoding}`); this server takes it as it is");
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).code("unsupported_encoding"));
        }
        let read = read(&parts.headers, body, app.max_body_bytes);
        let bytes = tokio::time::timeout(app.request_timeout, read).await.map_err(|_| {
            let seconds = app.request_timeout.as_secs();
            ApiError::new(StatusCode::REQUEST_TIMEOUT, format!("The request body did not arrive within {seconds} s"))
        })??;
        parse(&bytes).map(JsonBody)
    }
}

fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Err(ApiError::bad_request("The request body is empty; it must be a JSON object"));
    }
    let parsed = serde_json::from_slice(bytes).or_else(|error| match mended(bytes) {
        Some(mended) => serde_json::from_slice(&mended),
        None => Err(error),
    });
    parsed.map_err(|error| {
        ApiError::bad_request(format!("The request body is not valid JSON: {error}")).code("invalid_json")
    })
}

/// The text with a replacement character for each half of a character; `None` if there is none. Clients that cut texts at
/// some length cut characters beyond the first plane in two, and send the half as an escape in every request from then on.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| -> Option<u16> {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut at, mut halves) = (0, Vec::new());
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        at += found;
        at += match unit(at) {
            Some(0xd800..0xdc00) if matches!(unit(at + 6), Some(0xdc00..0xe000)) => 12,
            Some(0xd800..0xe000) => {
                halves.push(at);
                6
            }
            _ => 2,
        };
    }
    let mut mended = bytes.to_vec();
    for at in &halves {
        mended.get_mut(at + 2..at + 6)?.copy_from_slice(b"fffd");
    }
    (!halves.is_empty()).then_some(mended)
}

async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|n| n > limit) {
        // Who waits for consent sends nothing; others are answered at once, and what they send meanwhile is read.
        if !headers.contains_key(header::EXPECT) {
            tokio::spawn(drain(body, limit.saturating_mul(DISCARD_FACTOR)));
        }
        return Err(too_large(limit));
    }
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut seen) = (Vec::new(), 0_usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiError::bad_request("The request body broke off"))?;
        seen = seen.saturating_add(chunk.len());
        if seen <= limit {
            bytes.extend_from_slice(&chunk);
        } else {
            bytes = Vec::new();
            if seen > limit.saturating_mul(DISCARD_FACTOR) {
                break;
            }
        }
    }
    if seen > limit { Err(too_large(limit)) } else { Ok(bytes.into()) }
}

/// Reads a body that nobody wants, for a while: a client that is still sending does not read its answer.
pub(crate) async fn discard(request: Request) {
    if !request.headers().contains_key(header::EXPECT) {
        let _ = tokio::time::timeout(DISCARD_TIME, drain(request.into_body(), MAX_DISCARDED)).await;
    }
}

/// Reads up to so many bytes and drops them, as long as they keep coming.
async fn drain(body: Body, most: usize) {
    let mut chunks = body.into_data_stream();
    let mut seen = 0_usize;
    while let Ok(Some(Ok(chunk))) = tokio::time::timeout(DISCARD_TIME, chunks.next()).await {
        seen = seen.saturating_add(chunk.len());
        if seen > most {
            break;
        }
    }
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("The request body is larger than the {} that this server takes", size(limit));
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("request_too_large")
}

fn size(bytes: usize) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_json_is_named_by_line_and_column() {
        let error = parse(b"{\n  \"a\": ture\n}").unwrap_err();
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        assert!(error.message.contains("line 2 column"), "{}", error.message);
        assert!(parse(b" \n").unwrap_err().message.contains("is empty"));
        assert!(parse(&[b'[', 0xff, b']']).is_err());
    }

    #[test]
    fn half_a_character_is_an_unknown_one() {
        let text = |json: &str| parse(json.as_bytes()).map(|value| value[0].as_str().unwrap().to_owned());
        assert_eq!(text(r#"["a\ud83d"]"#).unwrap(), "a\u{fffd}");
        assert_eq!(text(r#"["\udc14\ud83d\ud83d\udc14\n"]"#).unwrap(), "\u{fffd}\u{fffd}\u{1f414}\n");
        assert_eq!(text(r#"["\\ud83d\ud83d"]"#).unwrap(), "\\ud83d\u{fffd}");
        assert_eq!(text("\u{feff}[\"a\"]").unwrap(), "a");
        for broken in [r#"["\ud83"]"#, r#"["\ud83d"#, r#"["\ux"]"#, "[\\"] {
            assert!(text(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn nesting_has_an_end() {
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[tokio::test]
    async fn bodies_are_taken_up_to_the_limit_exactly() {
        let none = HeaderMap::new();
        assert_eq!(read(&none, Body::from(vec![1; 8]), 8).await.unwrap().len(), 8);
        let error = read(&none, Body::from(vec![1; 9]), 8).await.unwrap_err();
        assert_eq!(error.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(error.message.contains("8 bytes"));
        assert!(too_large(16 << 20).message.contains("16 MiB"));
    }
}
