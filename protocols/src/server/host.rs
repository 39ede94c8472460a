//! Who may be addressed: a page that has a name of its own point to this machine must not talk to a server that only
//! this machine is to reach.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::error::ApiError;

/// Refuses requests to a server on the loopback address that call it by a name which is not this machine's.
pub(super) async fn check_host(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(allowed) = &app.allowed_hosts else { return next.run(request).await };
    let named = request.headers().get(header::HOST).map(|value| value.to_str().ok());
    match named {
        // What is no browser may leave it out.
        None => next.run(request).await,
        Some(Some(host)) if is_local(host, allowed) => next.run(request).await,
        Some(_) => {
            let message = "This server listens on the loopback address and takes requests to that only; if another name \
                           for it is yours, give it with --allowed-hosts";
            ApiError::new(StatusCode::FORBIDDEN, message).code("host_not_allowed").into_response()
        }
    }
}

/// Whether a `Host` header names this machine, or is one of the allowed ones; the port does not matter.
fn is_local(host: &str, allowed: &[String]) -> bool {
    let authority = format!("http://{host}").parse::<Uri>().ok();
    if host.contains('@') {
        return false;
    }
    let Some(name) = authority.as_ref().and_then(Uri::host) else { return false };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback())
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || allowed.iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in
            ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.1.2.3", "[::1]:80", "[::1]", "app.localhost:1"]
        {
            assert!(is_local(host, &[]), "{host}");
        }
        for host in
            ["example.org", "localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "", "a b", "@localhost"]
        {
            assert!(!is_local(host, &[]), "{host}");
        }
        assert!(is_local("Box:8000", &["box".into()]));
    }
}
