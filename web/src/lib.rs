//! The chat page, embedded in the binary.
//!
//! Everything under `static/` is served under its own name, `index.html` at `/`. The page loads nothing from elsewhere
//! and runs no script but its own; the policy that is sent with every file holds browsers to that.

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::{EmbeddedFile, RustEmbed};

#[derive(RustEmbed)]
#[folder = "static/"]
struct Static;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Routes of the page and of its files. None needs a key: they hold nothing that is not in the source.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Static::iter().fold(Router::new(), |router, name| {
        let path = if name == "index.html" { "/".to_owned() } else { format!("/{name}") };
        router.route(&path, get(move |headers: HeaderMap| async move { serve(&name, &headers) }))
    })
}

fn serve(name: &str, request: &HeaderMap) -> Response {
    let Some(file) = Static::get(name) else { return StatusCode::NOT_FOUND.into_response() };
    let tag = tag(&file);
    if request.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
    }
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type(name))),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // A new version of the server has new files under the same names.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, [(header::ETAG, tag)], file.data).into_response()
}

/// Names the content, so that a browser that has it is not sent it again.
fn tag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn get(path: &str, known: Option<&str>) -> Response {
        let mut request = Request::get(path);
        if let Some(known) = known {
            request = request.header(header::IF_NONE_MATCH, known);
        }
        router::<()>().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    async fn text(path: &str) -> String {
        let bytes = to_bytes(get(path, None).await.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn every_file_is_served_with_its_type_and_the_policy() {
        for name in Static::iter() {
            let path = if name == "index.html" { "/".to_owned() } else { format!("/{name}") };
            let response = get(&path, None).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            assert_ne!(response.headers()[header::CONTENT_TYPE], "application/octet-stream", "{path}");
            assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
            assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        }
    }

    #[tokio::test]
    async fn a_browser_that_has_a_file_is_not_sent_it_again() {
        let tag = get("/", None).await.headers()[header::ETAG].to_str().unwrap().to_owned();
        assert_eq!(get("/", Some(&tag)).await.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(get("/", Some("\"other\"")).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn the_page_keeps_to_its_own_policy() {
        let page = text("/").await;
        for name in ["app.js", "style.css", "icon.svg"] {
            assert!(page.contains(&format!("\"{name}\"")), "{name}");
        }
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains("onclick="));
        for name in ["/app.js", "/markdown.js"] {
            let script = text(name).await;
            assert!(!script.contains("innerHTML") && !script.contains("eval("), "{name}");
        }
    }
}
