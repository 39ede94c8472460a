//! Connections: how many, how long a client may take to send a head, and how they end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::Listener;
use crate::error::ApiError;

/// Largest head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Connections beyond the limit that are told so; further ones are closed without a word.
const MAX_TURNED_AWAY: usize = 32;
/// Longest time that telling them may take.
const TURN_AWAY: Duration = Duration::from_secs(2);
/// Rest after the system refused a connection, which it does while it is out of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest time that answers have to reach their clients once the last request has ended.
const LINGER: Duration = Duration::from_secs(5);

/// The connections of a server.
pub(super) struct Connections {
    router: Router,
    http: http1::Builder,
    places: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
}

impl Connections {
    pub(super) fn new(router: Router, most: usize, head_timeout: Duration) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_header_size(MAX_HEAD_BYTES);
        Connections {
            router,
            http,
            places: Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))),
            turned_away: Arc::new(Semaphore::new(MAX_TURNED_AWAY)),
        }
    }

    /// Accepts until told to stop, then waits a little for the connections to end.
    pub(super) async fn run(self, listener: Listener, stopped: watch::Receiver<bool>) {
        let mut running = JoinSet::new();
        let mut stop = pin!(told_to_stop(stopped.clone()));
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = running.join_next() => {}
                accepted = listener.socket.accept() => match accepted {
                    Ok((stream, _)) => self.take(stream, &mut running, &stopped),
                    Err(error) => {
                        tracing::warn!("a connection could not be accepted: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        let all = async { while running.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LINGER, all).await;
    }

    fn take(&self, stream: TcpStream, running: &mut JoinSet<()>, stopped: &watch::Receiver<bool>) {
        // Tokens are small and each is to arrive at once.
        let _ = stream.set_nodelay(true);
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            let served = converse(self.http.clone(), stream, self.router.clone(), stopped.clone());
            running.spawn(async move {
                served.await;
                drop(place);
            });
        } else if let Ok(place) = Arc::clone(&self.turned_away).try_acquire_owned() {
            let turned_away = turn_away(self.http.clone(), stream);
            running.spawn(async move {
                let _ = tokio::time::timeout(TURN_AWAY, turned_away).await;
                drop(place);
            });
        }
    }
}

/// Serves one connection to its end; on `stopped`, to the end of the request under way.
async fn converse(http: http1::Builder, stream: TcpStream, router: Router, stopped: watch::Receiver<bool>) {
    let mut connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = told_to_stop(stopped) => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    // A connection that rested between two requests is closed without a word, as clients expect.
    if ended.is_err_and(|error| error.is_timeout()) {
        let parts = connection.into_parts();
        if !parts.read_buf.is_empty() {
            let _ = parts.io.into_inner().write_all(head_timeout().as_bytes()).await;
        }
    }
}

/// The answer to a head that began to arrive but did not end in time; there is no request yet that a handler could answer.
fn head_timeout() -> String {
    let error = ApiError::new(StatusCode::REQUEST_TIMEOUT, "The head of the request did not arrive in time");
    let body = error.body().to_string();
    format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        error.status,
        body.len()
    )
}

/// Waits for the word to stop; a server that is gone has given it.
async fn told_to_stop(mut stopped: watch::Receiver<bool>) {
    drop(stopped.wait_for(|stop| *stop).await);
}

/// Answers one request with the refusal.
async fn turn_away(mut http: http1::Builder, stream: TcpStream) {
    let refuse = |_| async { Ok::<Response, Infallible>(too_many_connections()) };
    let service = hyper::service::service_fn(refuse);
    let _ = http.keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
}

fn too_many_connections() -> Response {
    let refused = ApiError::unavailable("The server has as many connections as --max-connections allows", 1);
    let mut response = refused.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
