//! The routes, and what every request passes on its way to them.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use super::ServeError;
use super::connections::Routers;
use super::host::check_host;
use crate::app::App;
use crate::auth::require_key;
use crate::error::ApiError;
use crate::log::log_requests;
use crate::transcript::transcribe;
use crate::{anthropic, inside, limits, live, llama, metrics, openai, openapi, responses};

/// The routes of connections that have a place, and those of connections that have none.
pub(super) fn routers(app: &App, cors_origin: &str) -> Result<Routers, ServeError> {
    let cors = cors(cors_origin)?;
    let with_cors = |router: Router| match cors.clone() {
        Some(cors) => router.layer(cors),
        None => router,
    };
    Ok(Routers { all: with_cors(all(app)), counter: with_cors(counter(app)) })
}

/// All routes. The page is open; the others ask for the key, the probes by themselves.
fn all(app: &App) -> Router {
    let open = Router::new()
        .route("/health", get(llama::health::health))
        .route("/v1/health", get(llama::health::health))
        .route("/ready", get(llama::health::ready))
        .merge(bantam_web::router());
    let keyed = Router::new()
        .route("/v1/chat/completions", post(openai::chat::chat_completions))
        .route("/v1/chat/completions/{id}/stop_thinking", post(live::stop_thinking))
        .route("/v1/messages/{id}/stop_thinking", post(live::stop_thinking))
        .route("/v1/responses/{id}/stop_thinking", post(live::stop_thinking))
        .route("/v1/completions", post(openai::completions::completions))
        .route("/v1/messages", post(anthropic::messages::create))
        .route("/v1/messages/count_tokens", post(anthropic::messages::count_tokens))
        .route("/v1/responses", post(responses::create::create))
        .route("/v1/responses/input_tokens", post(responses::create::input_tokens))
        .route("/v1/responses/{id}", get(responses::stored::retrieve).delete(responses::stored::delete))
        .route("/v1/responses/{id}/input_items", get(responses::stored::input_items))
        .route("/v1/responses/{id}/cancel", post(responses::stored::cancel))
        .route("/v1/models", get(openai::models::list))
        .route("/v1/models/{*id}", get(openai::models::one))
        .route("/v1/me", get(openai::models::me))
        .route("/openapi.json", get(openapi::openapi))
        .route("/props", get(llama::props::props))
        .route("/slots", get(llama::slots::slots))
        .route("/queue", get(llama::slots::queue))
        .route("/metrics", get(metrics::metrics))
        .route("/actors", get(inside::actors))
        .route("/memory", get(inside::memory))
        .route("/graph", get(inside::graph))
        .route("/experts", get(llama::experts::experts))
        .route("/tokenize", post(llama::text::tokenize))
        .route("/detokenize", post(llama::text::detokenize))
        .route("/apply-template", post(llama::text::apply_template))
        .merge(of_llama())
        .fallback(no_route)
        .layer(from_fn_with_state(Arc::clone(app), require_key));
    passing(keyed.merge(open).method_not_allowed_fallback(no_method), app)
}

/// What llama.cpp's tools ask for besides: its own protocol, other routes' names without a version, and what is not done.
fn of_llama() -> Router<App> {
    let mut routes = Router::new()
        .route("/completion", post(llama::completion::completion))
        .route("/completions", post(llama::completion::completion))
        .route("/infill", post(llama::completion::infill))
        .route("/chat/completions", post(openai::chat::chat_completions))
        .route("/responses", post(responses::create::create))
        .route("/models", get(openai::models::list))
        .route("/v1/chat/completions/control", post(llama::others::control))
        .route("/v1/chat/completions/input_tokens", post(llama::others::input_tokens))
        .route("/lora-adapters", get(llama::others::adapters).post(llama::others::set_adapters))
        .route("/slots/{id}", post(llama::others::slot_action));
    for path in llama::others::EMBEDDING_ROUTES {
        routes = routes.route(path, post(llama::others::no_embeddings));
    }
    for path in llama::others::RERANKING_ROUTES {
        routes = routes.route(path, post(llama::others::no_reranking));
    }
    routes
}

/// What is answered while the server has as many connections as it may: how it is, and nothing else. It is not ready then.
fn counter(app: &App) -> Router {
    let metrics = get(metrics::metrics).layer(from_fn_with_state(Arc::clone(app), require_key));
    let routes = Router::new()
        .route("/health", get(llama::health::health))
        .route("/ready", get(full))
        .route("/metrics", metrics)
        .fallback(too_many_connections);
    passing(routes, app)
}

/// Puts before these routes what every request passes.
fn passing(routes: Router<App>, app: &App) -> Router {
    routes
        // The handlers read bodies themselves, up to the limit of this server.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(Arc::clone(app), transcribe))
        .layer(from_fn_with_state(Arc::clone(app), check_host))
        .layer(from_fn(llama::in_llama_form))
        .layer(from_fn(anthropic::in_anthropics_form))
        .layer(from_fn_with_state(Arc::clone(app), log_requests))
        .layer(from_fn(never_sniff))
        .with_state(Arc::clone(app))
}

/// Said to those who find no place.
const FULL: &str = "The server has as many connections as --max-connections allows; try again in 1 s";

async fn too_many_connections(request: Request) -> ApiError {
    limits::discard(request).await;
    ApiError::too_many(FULL, 1)
}

async fn full() -> ApiError {
    ApiError::unavailable(FULL, 1)
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    let message = format!("There is no route `{method} {}`", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, message).code("route_not_found")
}

async fn no_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("`{}` does not answer to {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed")
}

/// A bug met by one request ends that request; its text goes to standard error, not to the client.
fn panicked(_: Box<dyn Any + Send>) -> Response {
    ApiError::internal("The server met a fault of its own while it served this request").into_response()
}

async fn never_sniff(request: Request, next: axum::middleware::Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Which pages of other origins may call the API: `*`, a list, or none.
fn cors(origins: &str) -> Result<Option<CorsLayer>, ServeError> {
    let names: Vec<_> = origins.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let allowed = match names.as_slice() {
        [] => return Ok(None),
        ["*"] => AllowOrigin::any(),
        names => AllowOrigin::list(names.iter().map(|name| origin(name)).collect::<Result<Vec<_>, _>>()?),
    };
    let exposed = [header::RETRY_AFTER, HeaderName::from_static("x-request-id"), HeaderName::from_static("request-id")];
    Ok(Some(
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods(AllowMethods::mirror_request())
            // A wildcard would leave out `authorization`.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(exposed),
    ))
}

/// Whether `--cors-origin` may have this value.
///
/// # Errors
/// What in it is no origin.
pub fn check_origins(origins: &str) -> Result<(), ServeError> {
    cors(origins).map(|_| ())
}

fn origin(name: &str) -> Result<HeaderValue, ServeError> {
    let is_origin = name
        .parse::<Uri>()
        .is_ok_and(|uri| uri.scheme().is_some() && uri.authority().is_some() && !name.ends_with('/'));
    let value = HeaderValue::from_str(name).ok().filter(|_| is_origin);
    value.ok_or_else(|| ServeError::CorsOrigin(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_a_star_a_list_or_none() {
        assert!(cors("*").unwrap().is_some());
        assert!(cors("http://localhost:3000, https://example.org").unwrap().is_some());
        assert!(cors(" ").unwrap().is_none());
        for wrong in ["localhost", "http://example.org/", "*,http://a"] {
            assert!(matches!(cors(wrong), Err(ServeError::CorsOrigin(_))), "{wrong}");
        }
    }
}
