//! What a client may take up.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{raw, request, send};
use crate::server::{Server, until};

/// A generation that goes on until it is stopped.
fn endless() -> Vec<u8> {
    let body = json!({"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true}).to_string();
    request("POST", "/v1/completions", &[], body.as_bytes())
}

/// Starts an endless generation and waits for the first piece.
async fn started(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&endless()).await.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("data: ") {
        assert_ne!(socket.read_buf(&mut seen).await.unwrap(), 0);
    }
    socket
}

pub(crate) async fn idle(server: &Server) -> bool {
    server.get("/slots").await.json().as_array().unwrap().iter().all(|slot| slot["state"] == "idle")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_slot() {
    let server = Server::with(|engine, _| engine.parallel = 1).await;
    let socket = started(&server).await;
    assert!(!idle(&server).await);
    drop(socket);
    until("the slot is idle again", || idle(&server)).await;
    until("the log says so", || async { server.log().contains("  gone  ") }).await;
    let next = server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).await;
    assert_eq!(next.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_limit_are_told_to_come_back() {
    let server = Server::with(|engine, _| (engine.parallel, engine.concurrency) = (1, 2)).await;
    let (_one, mut two) = (started(&server).await, TcpStream::connect(server.address).await.unwrap());
    two.write_all(&endless()).await.unwrap();
    until("the second one is queued", || async { server.engine.status().await.queued == 1 }).await;
    let reply = server.post("/v1/completions", &json!({"prompt": "a"})).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_in_the_queue_touches_nobody_else() {
    let server = Server::with(|engine, _| engine.parallel = 1).await;
    let body = json!({"prompt": "a", "max_tokens": 600, "ignore_eos": true, "temperature": 0});
    let alone = server.post("/v1/completions", &body).await.json()["choices"][0]["text"].clone();
    let (running, ()) = tokio::join!(server.post("/v1/completions", &body), async {
        let mut queued = TcpStream::connect(server.address).await.unwrap();
        queued.write_all(&endless()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    });
    assert_eq!(running.json()["choices"][0]["text"], alone);
    until("all is idle", || idle(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_routes_answer_at_once_while_tokens_are_computed() {
    let server = Server::with(|engine, _| engine.parallel = 1).await;
    let _running = started(&server).await;
    for path in ["/health", "/ready", "/slots", "/queue", "/metrics"] {
        let asked = Instant::now();
        assert_eq!(server.get(path).await.status, 200);
        assert!(asked.elapsed() < Duration::from_millis(500), "{path} took {:?}", asked.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_limit_are_refused_whatever_they_announce() {
    let server = Server::with(|_, config| config.max_body_bytes = 1000).await;
    let fits = json!({"prompt": "a".repeat(900), "max_tokens": 1}).to_string();
    assert_eq!(send(server.address, "POST", "/v1/completions", &[], fits.as_bytes()).await.status, 200);
    let large = json!({"prompt": "a".repeat(2000)}).to_string();
    let reply = send(server.address, "POST", "/v1/completions", &[], large.as_bytes()).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (413, &json!("request_too_large")));
    let chunked = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
         {:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    let answer = raw(server.address, chunked.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 413"));
    let silent = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n";
    let asked = Instant::now();
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(silent).await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert!(asked.elapsed() < Duration::from_secs(5), "answered after {:?}", asked.elapsed());
    let waits = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\n\
        content-length: 5000\r\n\r\n";
    assert!(raw(server.address, waits).await.starts_with(b"HTTP/1.1 413"));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_are_given_up() {
    let server = Server::with(|_, config| config.request_timeout = Duration::from_millis(300)).await;
    let head = b"POST /v1/completions HTTP/1.1\r\nhos";
    assert!(raw(server.address, head).await.starts_with(b"HTTP/1.1 408"));
    let body = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{\"prompt\"";
    let answer = String::from_utf8(raw(server.address, body).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("did not arrive within"), "{answer}");
    assert!(raw(server.address, b"").await.is_empty(), "a connection that says nothing is closed without a word");
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_have_a_size() {
    let server = Server::start().await;
    let head = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(70_000));
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    // The server may close before it has taken everything.
    let _ = socket.write_all(head.as_bytes()).await;
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
}

/// Opens a connection and begins a request on it.
async fn sending(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let begun = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{\"prompt\"";
    socket.write_all(begun).await.unwrap();
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_on_connections_beyond_the_limit_are_told_to_come_back() {
    let server = Server::with(|_, config| config.max_connections = 2).await;
    let held = [sending(&server).await, sending(&server).await];
    // Long, so that the client is still sending when it is refused.
    let body = json!({"prompt": "a".repeat(5 << 20)});
    let reply = server.post("/v1/completions", &body).await;
    let error = &reply.json()["error"];
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
    assert_eq!((&error["type"], &error["code"]), (&json!("rate_limit_error"), &json!("rate_limit_exceeded")));
    assert!(error["message"].as_str().unwrap().contains("--max-connections"));
    assert_eq!((reply.header("connection"), reply.header("access-control-allow-origin")), (Some("close"), Some("*")));
    until("the log says so", || async { server.log().contains("  429  ") }).await;
    for path in ["/health", "/metrics"] {
        assert_eq!(server.get(path).await.status, 200, "how the server is can be asked at any time");
    }
    let ready = server.get("/ready").await;
    assert_eq!((ready.status, ready.header("retry-after")), (503, Some("1")));
    drop(held);
    until("there is room again", || async { server.get("/v1/models").await.status == 200 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_rest_give_way() {
    let server = Server::with(|_, config| config.max_connections = 1).await;
    let pause = || tokio::time::sleep(Duration::from_millis(1100));
    let mut socket = sending(&server).await;
    pause().await;
    assert_eq!(server.get("/v1/models").await.status, 429, "it is in the middle of a request");
    socket.write_all(&[b' '; 41]).await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
    assert_eq!(server.get("/v1/models").await.status, 429, "it has not rested for long enough");
    assert_eq!(server.get("/health").await.status, 200);
    pause().await;
    assert_eq!(server.get("/v1/models").await.status, 200);
    socket.read_to_end(&mut Vec::new()).await.unwrap();
    let _silent = TcpStream::connect(server.address).await.unwrap();
    pause().await;
    assert_eq!(server.get("/v1/models").await.status, 200, "those that never said anything give way too");
}

/// Ten times what the server takes at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_answered_to_the_last_request() {
    const BURST: usize = 640;
    let server = Server::with(|engine, _| engine.concurrency = 64).await;
    let body = json!({"prompt": "a", "max_tokens": 64, "ignore_eos": true}).to_string();
    let ask = || send(server.address, "POST", "/v1/completions", &[], body.as_bytes());
    let replies = futures::future::join_all((0..BURST).map(|_| ask())).await;
    let served = replies.iter().filter(|reply| reply.status == 200).count();
    assert!(served >= 64, "{served}");
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (429, &json!("rate_limit_error")));
        assert!(reply.header("retry-after").is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_there_in_time_is_not_waited_for() {
    let server = Server::with(|engine, _| engine.parallel = 1).await;
    let _running = started(&server).await;
    let body = json!({"prompt": "a", "max_tokens": 1, "deadline_ms": 50});
    let reply = server.post("/v1/completions", &body).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (504, &json!("deadline_exceeded")));
}
