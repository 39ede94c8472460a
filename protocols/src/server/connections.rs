//! Connections: how many, how long a client may take to send a head, and how they end.
//!
//! There is a place for each of `--max-connections`. When all are taken, one that rests between two requests gives way.
//! If none rests, the new one comes to the counter: it is served one request there, which is refused unless it asks for
//! `/health`. Where the counter is full too, clients wait in the system's queue.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::Listener;
use super::activity::{Activity, Told};
use crate::error::ApiError;

/// Largest head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Connections at the counter.
const COUNTER: usize = 512;
/// Longest time for a head at the counter.
const COUNTER_HEAD: Duration = Duration::from_secs(2);
/// Longest time that a connection stays at the counter.
const COUNTER_STAY: Duration = Duration::from_secs(6);
/// Rest after which a connection may give way. Clients that send one request after the other do not rest as long.
const REST: Duration = Duration::from_secs(1);
/// Rest after the system refused a connection, which it does while it is out of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest time that answers have to reach their clients once the last request has ended.
const LINGER: Duration = Duration::from_secs(5);

/// Who answers on connections that have a place, and who at the counter.
pub(super) struct Routers {
    pub(super) all: Router,
    pub(super) counter: Router,
}

/// The connections of a server.
pub(super) struct Connections {
    routers: Routers,
    http: http1::Builder,
    counter_http: http1::Builder,
    places: Arc<Semaphore>,
    counter: Arc<Semaphore>,
    /// What those that have a place are doing.
    open: Vec<Weak<Activity>>,
}

impl Connections {
    pub(super) fn new(routers: Routers, most: usize, head_timeout: Duration) -> Self {
        let http = |head_timeout| {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_header_size(MAX_HEAD_BYTES);
            http
        };
        let mut counter_http = http(head_timeout.min(COUNTER_HEAD));
        counter_http.keep_alive(false);
        Connections {
            routers,
            http: http(head_timeout),
            counter_http,
            places: Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))),
            counter: Arc::new(Semaphore::new(COUNTER)),
            open: Vec::new(),
        }
    }

    /// Accepts until told to stop, then waits a little for the connections to end.
    pub(super) async fn run(mut self, listener: Listener, stopped: watch::Receiver<bool>) {
        let mut running = JoinSet::new();
        let mut stop = pin!(told_to_stop(stopped.clone()));
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = running.join_next() => {}
                accepted = accept(&listener, &self.counter) => match accepted {
                    Ok((stream, at_counter)) => self.take(stream, at_counter, &mut running, &stopped),
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

    fn take(
        &mut self,
        stream: TcpStream,
        at_counter: OwnedSemaphorePermit,
        running: &mut JoinSet<()>,
        stopped: &watch::Receiver<bool>,
    ) {
        // Tokens are small and each is to arrive at once.
        let _ = stream.set_nodelay(true);
        self.open.retain(|activity| activity.strong_count() > 0);
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        if place.is_none() && !self.one_gives_way() {
            let service = TowerToHyperService::new(self.routers.counter.clone());
            let served = converse(self.counter_http.clone(), stream, service, stopped.clone());
            running.spawn(async move {
                let _ = tokio::time::timeout(COUNTER_STAY, served).await;
                drop(at_counter);
            });
            return;
        }
        let activity = Activity::new();
        self.open.push(Arc::downgrade(&activity));
        let places = Arc::clone(&self.places);
        let (http, router, stopped) = (self.http.clone(), self.routers.all.clone(), stopped.clone());
        running.spawn(async move {
            // The one that gives way is about to end.
            let place = match place {
                Some(place) => Some(place),
                None => places.acquire_owned().await.ok(),
            };
            drop(at_counter);
            tokio::select! {
                () = activity.told_to_go() => {}
                () = converse(http, stream, observed(router, &activity), stopped) => {}
            }
            drop(place);
        });
    }

    /// Lets the connection go that has rested longest, if any has for long enough.
    fn one_gives_way(&self) -> bool {
        let rested = |activity: &Weak<Activity>| {
            let activity = activity.upgrade()?;
            activity.resting().filter(|rest| *rest >= REST).map(|rest| (rest, activity))
        };
        let mut resting: Vec<_> = self.open.iter().filter_map(rested).collect();
        resting.sort_by_key(|(rest, _)| std::cmp::Reverse(*rest));
        resting.iter().any(|(_, activity)| activity.let_go())
    }
}

/// The next connection, once the counter has room for it should it find no place.
async fn accept(
    listener: &Listener,
    counter: &Arc<Semaphore>,
) -> Result<(TcpStream, OwnedSemaphorePermit), std::io::Error> {
    let at_counter = Arc::clone(counter).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.socket.accept().await?;
    Ok((stream, at_counter))
}

/// The router's answers, with a note of when there is something to answer.
fn observed(
    router: Router,
    activity: &Arc<Activity>,
) -> impl Service<hyper::Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + Send {
    let router = TowerToHyperService::new(router);
    let activity = Arc::clone(activity);
    service_fn(move |request: hyper::Request<Incoming>| {
        let busy = activity.begin();
        let answer = router.call(request);
        async move {
            let Some(busy) = busy else { return std::future::pending().await };
            let response: Response = answer.await?;
            Ok(response.map(|body| Body::new(Told::new(body, busy))))
        }
    })
}

/// Serves one connection to its end; on `stopped`, to the end of the request under way.
async fn converse<S>(http: http1::Builder, stream: TcpStream, service: S, stopped: watch::Receiver<bool>)
where
    S: Service<hyper::Request<Incoming>, Response = Response, Error = Infallible>,
{
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
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
