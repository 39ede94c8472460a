//! The server's life: bind, listen while the model loads, say when it is ready, serve, drain, end.

mod activity;
mod bind;
mod connections;
mod host;
mod routes;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bantam_runtime::engine::{Engine, EngineError, ModelInfo};
use bantam_runtime::words::printable;
use tokio::sync::watch;

pub use bind::{BindError, Listener, bind};
pub use routes::check_origins;

use crate::app::AppState;
use crate::config::ServerConfig;
use crate::log::Log;
use crate::metrics::Requests;
use crate::normalize::Normalizer;
use crate::responses::Archive;
use connections::Connections;

/// Why a server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The model cannot be served.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The log's thread cannot be started.
    #[error("the log cannot be started: {0}")]
    Log(std::io::Error),
    /// A step does not end.
    #[error("{0}: the process ends, for whatever watches it to start it again")]
    Hung(String),
    /// `--cors-origin` is not a list of origins.
    #[error(
        "`{0}` is not an origin; --cors-origin takes `*` or a list such as `http://localhost:3000,https://example.org`"
    )]
    CorsOrigin(String),
}

/// How long the server still answers when it can serve nothing any more.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until `shutdown` completes: `/health` says 503 from now on, and once the model is loaded one line tells the
/// address. Then new requests are refused, those under way end, and this returns.
///
/// # Errors
/// If the model cannot be loaded, or the configuration not be used.
pub async fn serve(
    engine: Engine,
    config: ServerConfig,
    listener: Listener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = listener.address;
    // An empty key is one that was not set; nobody is to get in with it.
    let keys: Vec<_> = config.api_keys.into_iter().filter(|key| !key.trim().is_empty()).collect();
    let log = Arc::new(Log::start(config.log).map_err(ServeError::Log)?);
    if !address.ip().is_loopback() && keys.is_empty() {
        log.line(format!("warning: everybody who can reach {address} can use this server; set a key with --api-key"));
    }
    let archive = engine.config().cache_dir.as_deref().map(Archive::open);
    let responses = Arc::new(archive.as_ref().map(Archive::read).unwrap_or_default());
    let app = Arc::new(AppState {
        engine: engine.clone(),
        log: Arc::clone(&log),
        requests: Arc::new(Requests::new()),
        keys,
        open_probes: config.open_probes,
        allowed_hosts: address.ip().is_loopback().then_some(config.allowed_hosts),
        model_aliases: config.model_aliases,
        live: Arc::default(),
        responses: Arc::clone(&responses),
        normalizer: Normalizer::new(config.normalize, config.total_tokens),
        transcripts: config.transcripts,
        strict_model: config.strict_model,
        max_body_bytes: config.max_body_bytes,
        request_timeout: config.request_timeout,
        sse_keepalive: config.sse_keepalive,
    });
    let routers = routes::routers(&app, &config.cors_origin)?;
    let (stop, stopped) = watch::channel(false);
    let save_every = engine.config().cache_save_every;
    let saving = archive.map(|archive| tokio::spawn(archive.keep(responses, save_every, stopped.clone())));
    let connections = Connections::new(routers, config.max_connections, config.request_timeout);
    let accepting = tokio::spawn(connections.run(listener, stopped));

    let outcome = lifetime(&engine, &log, address, shutdown).await;

    // Nobody listens only if the accepting task is gone, which is what is asked for.
    let _ = stop.send(true);
    let _ = accepting.await;
    if let Some(saving) = saving {
        let _ = saving.await;
    }
    log.flush().await;
    outcome
}

/// From now to the end of the last request.
async fn lifetime(
    engine: &Engine,
    log: &Log,
    address: SocketAddr,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let mut shutdown = std::pin::pin!(shutdown);
    tokio::select! {
        model = engine.ready() => announce(log, address, &*model?),
        () = &mut shutdown => {
            engine.shutdown().await;
            return Ok(());
        }
    }
    tokio::select! {
        () = shutdown => {
            engine.shutdown().await;
            Ok(())
        }
        why = engine.hung() => {
            let why = why?;
            log.line(format!("{}: no request can be served any more", printable(&why)));
            // Whoever asks for health is told why.
            tokio::time::sleep(GRACE).await;
            Err(ServeError::Hung(why))
        }
    }
}

fn announce(log: &Log, address: SocketAddr, model: &ModelInfo) {
    let title = model.title.as_deref().unwrap_or(&model.architecture);
    let title = printable(title);
    log.line(format!("{title} is ready: listening on http://{address} (chat page; API under /v1)"));
    let past_turns = model.template_capabilities.as_ref().and_then(|template| template.past_turns.drift());
    if let Some(drift) = past_turns.filter(|_| log.is_verbose()) {
        log.line(format!("the chat template {drift}: what the next request begins with is computed after each turn"));
    }
    log.header();
}
