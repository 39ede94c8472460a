//! From the first connection to the last.

use bantam_protocols::ServeError;
use serde_json::json;

use crate::client::send;
use crate::server::{Server, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_the_address_a_header_and_a_row_per_generation() {
    let server = Server::start().await;
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 3, "ignore_eos": true})).await;
    server.get("/health").await;
    server.get("/nothing").await;
    until("the rows are written", || async { server.log().lines().count() >= 4 }).await;
    let log = server.log();
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].contains(&format!("listening on http://{}", server.address)), "{log}");
    assert!(lines[1].starts_with("time      endpoint"), "{log}");
    let words: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!((words[1], words[5], words[7]), ("/v1/completions", "3", "length"), "{log}");
    assert!(lines[3].contains("/nothing") && lines[3].contains("404"), "{log}");
    assert_eq!(lines.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_model_loads_health_says_so_and_nothing_hangs() {
    let server = Server::loading(|_, _| {}).await;
    let health = server.get("/health").await;
    if health.status == 503 {
        assert_eq!(health.json()["status"], "loading");
        assert!(!health.body.contains("listening"));
    }
    until("it is ready", || async { server.get("/health").await.status == 200 }).await;
    assert_eq!(server.get("/v1/models").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_cannot_be_loaded_ends_the_server_with_the_reason() {
    let server = Server::loading(|engine, _| engine.model = "no/such/model.gguf".into()).await;
    let error = server.end().await.unwrap_err();
    assert!(matches!(error, ServeError::Engine(_)));
    assert!(error.to_string().contains("no/such/model.gguf"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shutting_down_lets_streams_end_and_refuses_new_ones() {
    let server = Server::start().await;
    let address = server.address;
    let engine = server.engine.clone();
    let body = json!({"prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true});
    let streaming = {
        let body = body.clone();
        tokio::spawn(async move { send(address, "POST", "/v1/completions", &[], body.to_string().as_bytes()).await })
    };
    until("the stream runs", || async { engine.status().await.slots.iter().any(|slot| slot.generated > 0) }).await;
    let ended = server.stop();
    until("the server drains", || async { send(address, "GET", "/health", &[], b"").await.status == 503 }).await;
    let refused = send(address, "POST", "/v1/completions", &[], body.to_string().as_bytes()).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("service_unavailable")));
    assert_eq!(streaming.await.unwrap().events().last().unwrap(), "[DONE]");
    ended.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_beyond_this_machine_without_a_key_is_warned_of_once() {
    let warned = |log: &str| log.matches("warning: everybody who can reach").count();
    let local = Server::start().await;
    assert_eq!(warned(&local.log()), 0);
    assert_eq!(warned(&open_to_all(Vec::new()).await), 1);
    assert_eq!(warned(&open_to_all(vec!["secret".into()]).await), 0);
}

/// The log of a server that listens on all addresses of this machine.
async fn open_to_all(keys: Vec<String>) -> String {
    let server = Server::listening("0.0.0.0", |_, config| config.api_keys = keys).await;
    until("it listens", || async { server.log().contains("listening on http://0.0.0.0:") }).await;
    server.log()
}
