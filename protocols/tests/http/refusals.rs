//! What is refused, and in which words.

use serde_json::{Value, json};

use crate::client::send;
use crate::server::{Server, until};

fn user(content: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_body_is_a_400_that_names_it() {
    let server = Server::start().await;
    let with = |key: &str, value: Value| {
        let mut body = user(&json!("x"));
        body[key] = value;
        body
    };
    let cases = [
        (with("model", json!(1)), "model"),
        (with("n", json!(2)), "n"),
        (with("stream", json!("yes")), "stream"),
        (with("max_tokens", json!(0)), "max_tokens"),
        (with("temperature", json!(-1)), "temperature"),
        (with("top_p", json!(1.5)), "top_p"),
        (with("repetition_penalty", json!(0)), "repetition_penalty"),
        (with("stop", json!([1])), "stop[0]"),
        (with("logit_bias", json!({"a": 1})), "logit_bias.a"),
        (with("tools", json!([{"type": "function"}])), "tools[0].function"),
        (with("tool_choice", json!("required")), "tool_choice"),
        (with("response_format", json!({"type": "json_object"})), "response_format"),
        (with("chat_template_kwargs", json!([])), "chat_template_kwargs"),
        (user(&json!([{"type": "image_url"}])), "messages[0].content[0].type"),
        (user(&json!({})), "messages[0].content"),
        (json!({"messages": "x"}), "messages"),
        (json!({}), "messages"),
    ];
    for (body, param) in cases {
        let reply = server.post("/v1/chat/completions", &body).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
        let named = error["message"].as_str().unwrap();
        assert!(named.contains(param), "{named}");
    }
    let beyond = server.post("/v1/completions", &json!({"prompt": [0, 448]})).await;
    assert_eq!((beyond.status, &beyond.json()["error"]["param"]), (400, &json!("prompt")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_window_is_refused_with_its_numbers_before_any_work() {
    let server = Server::with(|engine, _| engine.context = 64).await;
    let fits = json!({"prompt": vec![5; 63], "max_tokens": 10});
    assert_eq!(server.post("/v1/completions", &fits).await.json()["usage"]["completion_tokens"], 1);
    let reply = server.post("/v1/completions", &json!({"prompt": vec![5; 64], "max_tokens": 10})).await;
    let error = &reply.json()["error"];
    assert_eq!((reply.status, &error["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(64), &json!(64)));
    assert!(error["message"].as_str().unwrap().contains("maximum context length is 64 tokens"));
    until("the log says so", || async { server.log().contains("  400  ") }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_is_answered_unless_the_server_is_strict() {
    let body = json!({"model": "gpt-9", "prompt": "a", "max_tokens": 1});
    let lenient = Server::start().await;
    let reply = lenient.post("/v1/completions", &body).await;
    assert_eq!((reply.status, &reply.json()["model"]), (200, &json!("local")));
    let strict = Server::with(|_, config| config.strict_model = true).await;
    let reply = strict.post("/v1/completions", &body).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &json!("model_not_found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_and_methods_that_are_not_there_say_so() {
    let server = Server::start().await;
    let reply = server.get("/v1/nothing").await;
    assert_eq!(reply.status, 404);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("GET /v1/nothing"));
    for (method, path, allowed) in [("GET", "/v1/chat/completions", "POST"), ("DELETE", "/health", "GET,HEAD")] {
        let reply = send(server.address, method, path, &[], b"").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allowed)));
        assert_eq!(reply.json()["error"]["code"], "method_not_allowed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_json_is_told_by_line_and_column() {
    let server = Server::start().await;
    let reply = send(server.address, "POST", "/v1/completions", &[], b"{\n \"prompt\": }").await;
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("line 2 column"));
    for body in [&b""[..], b"\xff", b"[[[", &[b'['; 100_000]] {
        let reply = send(server.address, "POST", "/v1/chat/completions", &[], body).await;
        assert_eq!(reply.status, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_asked_for_everywhere_but_at_the_page_and_health() {
    let server = Server::with(|_, config| config.api_keys = vec!["secret".into()]).await;
    for path in ["/v1/models", "/props", "/slots", "/nothing"] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (401, &json!("invalid_api_key")), "{path}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        assert!(!reply.body.contains("secret"));
    }
    for header in [("authorization", "Bearer secret"), ("x-api-key", "secret")] {
        assert_eq!(send(server.address, "GET", "/v1/models", &[header], b"").await.status, 200);
    }
    assert_eq!(send(server.address, "GET", "/v1/models", &[("x-api-key", "other")], b"").await.status, 401);
    assert_eq!(server.get("/").await.status, 200);
    assert_eq!(server.get("/health").await.json(), json!({"status": "ok"}), "figures are for those with the key");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_key_is_none_and_opens_nothing() {
    let unset = Server::with(|_, config| config.api_keys = vec![String::new()]).await;
    assert_eq!(unset.get("/v1/models").await.status, 200);
    let set = Server::with(|_, config| config.api_keys = vec![String::new(), "secret".into()]).await;
    for header in [("x-api-key", ""), ("authorization", "Bearer ")] {
        assert_eq!(send(set.address, "GET", "/v1/models", &[header], b"").await.status, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_may_ask_before_they_send_a_key() {
    let server = Server::with(|_, config| config.api_keys = vec!["secret".into()]).await;
    let headers = [
        ("origin", "http://localhost:3000"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let reply = send(server.address, "OPTIONS", "/v1/chat/completions", &headers, b"").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("*")));
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization,content-type"));
}
