//! The chat UI, embedded in the binary.
//!
//! Everything under `dist/`, which Vite builds from `app/`, is served under its own name, `index.html` at `/`. The page
//! loads nothing from elsewhere and runs no script but its own; the policy that is sent with every file holds browsers to
//! that.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::{EmbeddedFile, RustEmbed};

#[derive(RustEmbed)]
#[folder = "dist/"]
struct Built;

/// The same files as gzip, as far as that makes them smaller.
#[derive(RustEmbed)]
#[folder = "$OUT_DIR/gzip/"]
struct Gzipped;

const POLICY: &str = concat!(
    "default-src 'none'; script-src 'self'; style-src 'self' '",
    env!("BANTAM_PAGE_STYLE"),
    "'; img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; font-src 'self'; manifest-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
);

/// The folder of files whose names hold a hash of what is in them.
const HASHED: &str = "assets/";

/// Routes of the page and of its files. None needs a key: they hold nothing that is not in the source.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Built::iter().fold(Router::new(), |router, name| {
        let path = path(&name);
        router.route(&path, get(move |headers: HeaderMap| async move { serve(&name, &headers) }))
    })
}

fn path(name: &str) -> String {
    if name == "index.html" { "/".to_owned() } else { format!("/{name}") }
}

fn serve(name: &str, request: &HeaderMap) -> Response {
    let Some(file) = Built::get(name) else { return StatusCode::NOT_FOUND.into_response() };
    let gzipped = Gzipped::get(name).filter(|_| takes_gzip(request));
    let tag = tag(&file, gzipped.is_some());
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type(name))),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static(caching(name))),
        (header::VARY, HeaderValue::from_name(header::ACCEPT_ENCODING)),
    ];
    let tagged: [(HeaderName, String); 1] = [(header::ETAG, tag.clone())];
    if knows(request, &tag) {
        return (StatusCode::NOT_MODIFIED, headers, tagged).into_response();
    }
    match gzipped {
        Some(packed) => (headers, tagged, [(header::CONTENT_ENCODING, "gzip")], packed.data).into_response(),
        None => (headers, tagged, file.data).into_response(),
    }
}

/// A name with a hash is never another file; behind the others a new version of the server has new ones.
fn caching(name: &str) -> &'static str {
    if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" }
}

/// Names the content as it is sent, so that a browser that has it is not sent it again.
fn tag(file: &EmbeddedFile, gzipped: bool) -> String {
    let hash = file.metadata.sha256_hash();
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}{}\"", if gzipped { "-gzip" } else { "" })
}

/// The items of a header that is a list, in all its lines.
fn items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

fn knows(request: &HeaderMap, tag: &str) -> bool {
    items(request, header::IF_NONE_MATCH).any(|known| known == "*" || known.trim_start_matches("W/") == tag)
}

fn takes_gzip(request: &HeaderMap) -> bool {
    items(request, header::ACCEPT_ENCODING).any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()).unwrap_or(1.0);
        name.trim().eq_ignore_ascii_case("gzip") && weight > 0.0
    })
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("webmanifest") => "application/manifest+json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("wasm") => "application/wasm",
        Some("txt") => "text/plain; charset=utf-8",
        _ => UNKNOWN,
    }
}

const UNKNOWN: &str = "application/octet-stream";

#[cfg(test)]
mod tests;
