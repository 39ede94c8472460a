//! Every file of the page is served as it must be, and the page keeps to its own policy.

use std::io::Read;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use tower::ServiceExt;

use super::*;

async fn get(path: &str, headers: &[(HeaderName, &str)]) -> Response {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(name, *value));
    router::<()>().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

async fn bytes(response: Response) -> Vec<u8> {
    to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()
}

/// All files with their content, those that are text as such.
fn texts() -> impl Iterator<Item = (String, String)> {
    Built::iter().filter_map(|name| {
        let text = String::from_utf8(Built::get(&name)?.data.into_owned()).ok()?;
        Some((name.into_owned(), text))
    })
}

#[tokio::test]
async fn every_file_is_served_with_its_type_and_the_policy() {
    for name in Built::iter() {
        let response = get(&path(&name), &[]).await;
        assert_eq!(response.status(), StatusCode::OK, "{name}");
        assert_ne!(response.headers()[header::CONTENT_TYPE], UNKNOWN, "{name}");
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert!(response.headers().get(header::CONTENT_ENCODING).is_none());
        assert_eq!(bytes(response).await, Built::get(&name).unwrap().data.as_ref(), "{name}");
    }
}

#[tokio::test]
async fn what_is_sent_as_gzip_is_the_same_file() {
    let mut smaller = 0;
    for name in Built::iter() {
        let response = get(&path(&name), &[(header::ACCEPT_ENCODING, "br, gzip;q=0.8")]).await;
        assert_eq!(response.headers()[header::VARY], "accept-encoding");
        if response.headers().get(header::CONTENT_ENCODING).is_none() {
            continue;
        }
        let mut plain = Vec::new();
        GzDecoder::new(bytes(response).await.as_slice()).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, Built::get(&name).unwrap().data.as_ref(), "{name}");
        smaller += 1;
    }
    assert!(smaller > 0, "scripts are worth it");
}

#[test]
fn gzip_is_for_those_who_take_it() {
    let takes = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
        takes_gzip(&headers)
    };
    for value in ["gzip", "GZIP", "br, gzip", "deflate, gzip;q=0.5", "gzip ; q=1"] {
        assert!(takes(value), "{value}");
    }
    for value in ["", "br", "identity", "gzip;q=0", "gzip; q=0.0", "xgzip"] {
        assert!(!takes(value), "{value}");
    }
}

#[tokio::test]
async fn a_browser_that_has_a_file_is_not_sent_it_again() {
    for encoding in ["identity", "gzip"] {
        let known = |tag: &str| {
            let tag = tag.to_owned();
            async move { get("/", &[(header::ACCEPT_ENCODING, encoding), (header::IF_NONE_MATCH, &tag)]).await.status() }
        };
        let first = get("/", &[(header::ACCEPT_ENCODING, encoding)]).await;
        assert_eq!(first.headers()[header::CACHE_CONTROL], "no-cache");
        let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
        assert_eq!(known(&tag).await, StatusCode::NOT_MODIFIED);
        assert_eq!(known(&format!("\"other\", W/{tag}")).await, StatusCode::NOT_MODIFIED);
        assert_eq!(known("\"other\"").await, StatusCode::OK);
    }
}

#[tokio::test]
async fn only_names_with_a_hash_are_kept_for_good() {
    for name in Built::iter() {
        let response = get(&path(&name), &[]).await;
        let kept = response.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable");
        assert_eq!(kept, name.starts_with(HASHED), "{name}");
        // Hashes have 8 letters, of which one may be the hyphen that stands before them too.
        let hash = name.rsplit_once('.').and_then(|(stem, _)| stem.len().checked_sub(9).map(|at| stem.as_bytes()[at]));
        assert!(!kept || hash == Some(b'-'), "{name} has no hash");
    }
}

#[test]
fn the_page_keeps_to_its_own_policy() {
    for (name, page) in texts().filter(|(name, _)| name.ends_with(".html")) {
        assert!(!page.contains(" style="), "{name}: styles are files, or what the policy names");
        for element in page.split("<style").skip(1) {
            let style = element.split_once('>').and_then(|(_, rest)| rest.split_once("</style>")).unwrap().0;
            let hash = BASE64_STANDARD.encode(Sha256::digest(style));
            assert!(POLICY.contains(&format!("'sha256-{hash}'")), "{name}: a style that the policy does not name");
        }
        assert!(!page.contains(" onclick=") && !page.contains("<script>"), "{name}: scripts are files");
        for attribute in ["src=\"", "href=\""] {
            for target in page.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()) {
                let file = target.trim_start_matches("./").trim_start_matches('/');
                assert!(Built::get(file).is_some(), "{name} names {target}");
            }
        }
    }
}

/// Nothing is fetched from other hosts: styles name no address at all.
#[test]
fn styles_load_nothing_from_elsewhere() {
    for (name, style) in texts().filter(|(name, _)| name.ends_with(".css") || name.ends_with(".html")) {
        assert!(!style.contains("@import"), "{name}");
        for target in style.split("url(").skip(1) {
            let target = target.trim_start_matches(['"', '\'']);
            assert!(!target.starts_with("http") && !target.starts_with("//"), "{name}: {target:.60}");
        }
    }
}

/// A first visit to the chat loads the page, and what it names as needed at once.
#[test]
fn the_first_visit_loads_little() {
    let size = |name: &str| Gzipped::get(name).or_else(|| Built::get(name)).map_or(0, |file| file.data.len());
    let page = String::from_utf8(Built::get("index.html").unwrap().data.into_owned()).unwrap();
    let named = Built::iter().filter(|name| page.contains(&**name));
    let total: usize = size("index.html") + named.map(|name| size(&name)).sum::<usize>();
    assert!(total < 400 << 10, "{total} bytes");
}
