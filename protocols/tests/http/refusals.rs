//! What is refused, and in which words.

use bantam_gguf::{GgufFile, writer::GgufWriter};
use serde_json::{Value, json};

use crate::client::{raw, send};
use crate::server::{Server, model, until};

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
        (with("n", json!(0)), "n"),
        (with("stream", json!("yes")), "stream"),
        (with("max_tokens", json!(0)), "max_tokens"),
        (with("temperature", json!(-1)), "temperature"),
        (with("top_p", json!(1.5)), "top_p"),
        (with("repetition_penalty", json!(0)), "repetition_penalty"),
        (with("stop", json!([1])), "stop[0]"),
        (with("logit_bias", json!({"a": 1})), "logit_bias.a"),
        (with("tools", json!([{"type": "function"}])), "tools[0].function"),
        (with("tool_choice", json!("required")), "tool_choice"),
        (with("response_format", json!({"type": "poem"})), "response_format.type"),
        (with("guided_json", json!({"type": "poem"})), "response_format.json_schema.schema"),
        (with("chat_template_kwargs", json!([])), "chat_template_kwargs"),
        (with("chat_template_kwargs", json!({"messages": []})), "chat_template_kwargs.messages"),
        (with("chat_template_kwargs", json!({"enable_thinking": 5})), "chat_template_kwargs.enable_thinking"),
        (with("n_predict", json!("four")), "n_predict"),
        (with("top_n_sigma", json!(1.5)), "top_n_sigma"),
        (with("skip_special_tokens", json!(false)), "skip_special_tokens"),
        (with("logit_bias", json!({"448": 1})), "logit_bias.448"),
        (user(&json!([{"type": "scent"}])), "messages[0].content[0].type"),
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
async fn what_the_route_has_for_a_prompt_is_named_where_it_is_too_long() {
    let server = Server::with(|engine, _| engine.context = 16).await;
    let text = "a ".repeat(200);
    for (path, body, field) in [
        ("/v1/completions", json!({"prompt": text}), "prompt"),
        ("/v1/chat/completions", user(&json!(text)), "messages"),
    ] {
        let error = server.post(path, &body).await.json()["error"].clone();
        assert_eq!((&error["code"], &error["param"]), (&json!("context_length_exceeded"), &json!(field)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(&format!("in the {field}, ")), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_of_a_request_comes_back_at_length() {
    let server = Server::start().await;
    let long = "x".repeat(1 << 20);
    for body in [
        json!({"messages": [{"role": long, "content": "x"}]}),
        json!({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": long}),
        json!({"messages": [{"role": "user", "content": [{"type": long}]}]}),
    ] {
        let reply = server.post("/v1/chat/completions", &body).await;
        assert_eq!(reply.status, 400);
        assert!(reply.body.len() < 1000 && reply.body.contains('…'), "{} bytes", reply.body.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_told_in_the_system_message_where_the_template_knows_none() {
    let (folder, file) = with_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    let server = Server::with(|engine, _| engine.model = file).await;
    let ask = |more: Value| {
        let mut body = user(&json!("x"));
        body["max_tokens"] = json!(1);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let prompt = server.post("/apply-template", &ask(json!({"tools": [tool]}))).await.json()["prompt"].clone();
    assert!(prompt.as_str().unwrap().contains("<tools>\n{\"name\":\"f\"}\n</tools>"), "{prompt}");
    for harmless in [
        json!({"tools": [tool]}),
        json!({"tools": []}),
        json!({"tools": [tool], "tool_choice": "none"}),
        json!({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": true}}),
    ] {
        assert_eq!(server.post("/v1/chat/completions", &ask(harmless)).await.status, 200);
    }
    drop(folder);
}

/// The model with another chat template.
fn with_template(template: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let file = GgufFile::open(model()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter().filter(|(key, _)| *key != "tokenizer.chat_template") {
        writer.key(key, value.clone());
    }
    writer.key("tokenizer.chat_template", template);
    for tensor in file.tensors() {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape, file.tensor_bytes(tensor).unwrap());
    }
    writer.write(std::fs::File::create(&path).unwrap()).unwrap();
    (folder, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_in_a_path_that_is_no_text_is_an_error_like_others() {
    let server = Server::start().await;
    let reply = server.get("/v1/models/%ff").await;
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    until("the log says so", || async { server.log().contains("not UTF-8") }).await;
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
async fn a_key_is_asked_for_everywhere_but_at_the_page() {
    let server = Server::with(|_, config| config.api_keys = vec!["secret".into()]).await;
    for path in ["/v1/models", "/props", "/slots", "/queue", "/metrics", "/health", "/ready", "/nothing"] {
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
}

#[tokio::test(flavor = "multi_thread")]
async fn open_probes_say_that_the_server_is_up_and_no_more() {
    let server = Server::with(|_, config| {
        (config.api_keys, config.open_probes) = (vec!["secret".into()], true);
    })
    .await;
    for path in ["/ready", "/health"] {
        assert_eq!(server.get(path).await.json(), json!({"status": "ok"}), "{path}");
    }
    let known = send(server.address, "GET", "/health", &[("x-api-key", "secret")], b"").await.json();
    assert!(known.as_object().unwrap().len() > 1, "{known}");
    assert_eq!(server.get("/slots").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_other_machines_are_refused_on_the_loopback_address() {
    let server = Server::with(|_, config| config.allowed_hosts = vec!["box".into()]).await;
    let by = |host: &'static str| {
        let request = format!("GET /v1/models HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        async move { String::from_utf8(raw(server.address, request.as_bytes()).await).unwrap() }
    };
    for host in ["127.0.0.1:8000", "localhost", "[::1]:8000", "box:8000"] {
        assert!(by(host).await.starts_with("HTTP/1.1 200"), "{host}");
    }
    for host in ["example.org", "box.example.org:8000"] {
        let reply = by(host).await;
        assert!(reply.starts_with("HTTP/1.1 403") && reply.contains("host_not_allowed"), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_names_its_request_and_failures_do_in_the_log() {
    let server = Server::start().await;
    let (one, other) = (server.get("/v1/models").await, server.get("/v1/nothing").await);
    let id = |reply: &crate::client::Reply| reply.header("x-request-id").unwrap().to_owned();
    assert!(id(&one).starts_with("req_") && id(&one) != id(&other));
    assert_eq!(other.header("request-id"), Some(id(&other).as_str()));
    until("the log names it", || async { server.log().contains(&id(&other)) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_answers_to_its_aliases() {
    let server = Server::with(|_, config| {
        (config.strict_model, config.model_aliases) = (true, vec!["gpt-x".into()]);
    })
    .await;
    let asked = |model: &str| json!({"model": model, "prompt": "a", "max_tokens": 1});
    for (model, status) in [("local", 200), ("gpt-x", 200), ("other", 404)] {
        assert_eq!(server.post("/v1/completions", &asked(model)).await.status, status, "{model}");
        assert_eq!(server.get(&format!("/v1/models/{model}")).await.status, status, "{model}");
    }
    let listed = server.get("/v1/models").await.json();
    let ids: Vec<_> = listed["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["local", "gpt-x"]);
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
