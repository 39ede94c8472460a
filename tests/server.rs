//! The server as a process: starting, refusing, streaming, being left by its clients, and ending.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use bantam_gguf::{GgufFile, writer::GgufWriter};
use serde_json::{Value, json};
use support::{Server, command, fail, model, wait_for};

/// A model file whose own words try to move the cursor, and whose recommended temperature is no number.
fn hostile_metadata(to: &std::path::Path) {
    let file = GgufFile::open(model("llama-dense")).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter().filter(|(key, _)| *key != "general.name") {
        writer.key(key, value.clone());
    }
    writer.key("general.name", "bad\u{1b}[2Jname\r\nlistening on http://1.2.3.4");
    writer.key("general.sampling.temp", f32::NAN);
    for tensor in file.tensors() {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape, file.tensor_bytes(tensor).unwrap());
    }
    writer.write(std::fs::File::create(to).unwrap()).unwrap();
}

#[test]
fn what_a_file_says_of_itself_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hostile.gguf");
    hostile_metadata(&file);
    let server = Server::spawn(command().arg("serve").arg(&file).args(["--port", "0"]));
    let warning = server.line_with("general.sampling.temp");
    assert!(warning.contains("hostile.gguf") && warning.contains("NaN"), "{warning}");
    let ready = server.line_with("listening on http://127.0.0.1:");
    assert!(ready.contains("bad\\u{1b}[2Jname\\r\\nlistening") && !ready.contains('\u{1b}'), "{ready}");
}

fn chat(content: &str, max_tokens: u32, stream: bool) -> Value {
    json!({
        "model": "local", "messages": [{ "role": "user", "content": content }], "max_tokens": max_tokens,
        "temperature": 0, "stream": stream,
    })
}

/// Slots that do something.
fn busy_slots(server: &Server) -> usize {
    let (status, slots) = server.get("/slots");
    assert_eq!(status, 200, "{slots}");
    slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).count()
}

/// Opens a connection, sends a streaming request and reads the beginning of its answer.
fn begin_stream(server: &Server, body: &Value) -> (TcpStream, String) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port().parse().unwrap())).unwrap();
    stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut seen = String::new();
    while !seen.contains("data:") {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "closed after {seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    (stream, seen)
}

#[test]
fn a_ready_server_answers_whole_and_streamed_alike() {
    let server = Server::start(&[&model("llama-dense")]);
    assert_eq!(server.get("/health").0, 200);
    let (status, whole) = server.post("/v1/chat/completions", &chat("Hello", 12, false));
    assert_eq!(status, 200, "{whole}");
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let lines: Vec<String> = server.stream("/v1/chat/completions", &chat("Hello", 12, true)).collect();
    let data: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.last(), Some(&"[DONE]"));
    let parts = data[..data.len() - 1].iter().map(|data| serde_json::from_str::<Value>(data).unwrap());
    let streamed: String =
        parts.filter_map(|part| part["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect();
    assert_eq!(streamed, text);
}

#[test]
fn the_same_prompt_again_comes_out_of_the_cache_with_the_same_answer() {
    let server = Server::start(&[&model("llama-dense")]);
    let ask = || server.post("/v1/chat/completions", &chat(&"A long question. ".repeat(10), 12, false)).1;
    let (first, second) = (ask(), ask());
    assert_eq!(first["choices"][0]["message"], second["choices"][0]["message"]);
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(&first), 0);
    assert!(cached(&second) > 0, "{second}");
}

#[test]
fn many_clients_at_once_get_what_each_would_get_alone() {
    let server = Server::start(&[&model("llama-dense"), "--parallel", "3"]);
    let ask = |n: usize| {
        let (status, answer) = server.post("/v1/chat/completions", &chat(&format!("Question {n}"), 24, false));
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let alone: Vec<String> = (0..6).map(ask).collect();
    let together: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6).map(|n| scope.spawn(move || ask(n))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
}

#[test]
fn a_port_in_use_ends_the_second_server_at_once() {
    let server = Server::start(&[&model("llama-dense")]);
    let error = fail(1, &["serve", &model("llama-dense"), "--port", server.port()]);
    assert!(error.contains(server.port()) && error.contains("--port"), "{error}");
}

#[test]
fn a_terminated_server_ends_its_answers_and_exits_with_0() {
    let mut server = Server::start(&[&model("llama-dense")]);
    let mut long = endless();
    long["max_tokens"] = json!(2000);
    let (mut stream, mut seen) = begin_stream(&server, &long);
    assert!(!seen.contains("[DONE]"), "over before the signal: {seen}");
    server.signal("TERM");
    stream.read_to_string(&mut seen).unwrap();
    assert!(seen.contains("[DONE]"), "the answer was cut: {seen}");
    assert_eq!(server.exit_status().code(), Some(0));
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let mut server = Server::start(&[&model("llama-dense")]);
    let (stream, _) = begin_stream(&server, &endless());
    server.signal("INT");
    server.line_with("stopping");
    server.signal("INT");
    server.line_with("error: ");
    assert_eq!(server.exit_status().code(), Some(1));
    drop(stream);
}

#[test]
fn an_idle_server_stops_without_delay() {
    let mut server = Server::start(&[&model("llama-dense")]);
    server.signal("TERM");
    assert_eq!(server.exit_status().code(), Some(0));
}

/// A request that goes on as long as the window allows.
fn endless() -> Value {
    let mut body = chat("Hello", 100_000, true);
    body["ignore_eos"] = json!(true);
    body.as_object_mut().unwrap().remove("max_tokens");
    body
}

#[test]
fn a_client_that_goes_away_frees_its_slot() {
    let server = Server::start(&[&model("llama-dense"), "--parallel", "1"]);
    let (stream, _) = begin_stream(&server, &endless());
    wait_for("a busy slot", || (busy_slots(&server) == 1).then_some(()));
    drop(stream);
    wait_for("the slot to be free", || (busy_slots(&server) == 0).then_some(()));
    assert_eq!(server.post("/v1/chat/completions", &chat("Hello", 4, false)).0, 200);
}

#[test]
fn flags_can_come_from_the_environment_and_the_command_line_wins() {
    let mut by_environment = command();
    by_environment
        .args(["serve", &model("llama-dense"), "--model-name", "flag"])
        .env("BANTAM_PORT", "0")
        .env("BANTAM_MODEL_NAME", "environment")
        .env("BANTAM_API_KEY", "secret")
        .env("BANTAM_STRICT_MODEL", "1");
    let mut server = Server::spawn(&mut by_environment);
    let line = server.line_with("listening on ");
    server.url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    assert_eq!((server.get("/health").0, server.get("/v1/models").0), (401, 401));
    let mut models =
        ureq::get(format!("{}/v1/models", server.url)).header("authorization", "Bearer secret").call().unwrap();
    assert!(models.body_mut().read_to_string().unwrap().contains("\"flag\""));
}

#[test]
fn a_bad_value_in_the_environment_is_named() {
    let output = command().args(["serve", &model("llama-dense")]).env("BANTAM_PARALLEL", "many").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(support::stderr(&output).lines().last().unwrap().contains("--parallel"));
}

#[test]
fn a_key_that_is_empty_does_not_open_the_server() {
    for key in ["", " ", ",", "a,"] {
        let mut serve = command();
        let output = serve.args(["serve", &model("llama-dense"), "--port", "0"]).env("BANTAM_API_KEY", key).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{key:?}");
        let error = support::stderr(&output).lines().last().unwrap().to_owned();
        assert!(error.contains("--api-key") && error.contains("BANTAM_API_KEY"), "{error}");
    }
    let server = Server::start(&[&model("llama-dense"), "--api-key", " a ,b"]);
    for (key, status) in [("a", 200), ("b", 200), ("c", 401)] {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let asked = agent.get(format!("{}/v1/models", server.url)).header("authorization", format!("Bearer {key}"));
        assert_eq!(asked.call().unwrap().status(), status, "{key}");
    }
}

#[test]
fn variables_that_are_empty_are_not_set_and_switches_are_on_or_off() {
    let mut serve = command();
    serve.args(["serve", &model("llama-dense"), "--port", "0"]).env("BANTAM_PARALLEL", "").env("BANTAM_QUIET", "");
    Server::spawn(&mut serve).line_with("listening on ");
    let mut serve = command();
    let output = serve.args(["serve", &model("llama-dense")]).env("BANTAM_QUIET", "maybe").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(support::stderr(&output).lines().last().unwrap().contains("--quiet"));
}

#[test]
fn no_memory_for_the_cache_is_told_with_the_flag_that_helps() {
    let error = fail(1, &["serve", &model("llama-dense"), "--port", "0", "--cache", "100000000"]);
    let told = ["kept prefixes", "GiB", "--cache ", "makes it fit"];
    assert!(told.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn without_a_cache_any_one_may_use_the_context_and_all_are_answered() {
    let arguments = ["--cache", "off", "--scratch-context", "1", "--context", "256", "--parallel", "4"];
    let server = Server::start(&[&[model("llama-dense").as_str()], arguments.as_slice()].concat());
    let ask = |n: usize| {
        let mut body = chat(&format!("Question {n}"), 150, false);
        body["ignore_eos"] = json!(true);
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["usage"]["completion_tokens"], 150, "{answer}");
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let alone: Vec<String> = (0..4).map(ask).collect();
    let together: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|n| scope.spawn(move || ask(n))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
}

#[test]
fn a_cache_that_cannot_be_is_wrong_usage() {
    for (arguments, named) in [
        (["--cache", "much", "--port", "0"], "--cache"),
        (["--cache", "0", "--port", "0"], "--cache"),
        (["--cache", "off", "--cache-dir", "there"], "--cache-dir"),
    ] {
        let error = fail(2, &[&["serve", model("llama-dense").as_str()], arguments.as_slice()].concat());
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_its_field() {
    let server = Server::start(&[&model("llama-dense"), "--context", "128"]);
    let mut cold = chat("Hello", 4, false);
    cold["temperature"] = json!("cold");
    let (status, answer) = server.post("/v1/chat/completions", &cold);
    assert_eq!(status, 400, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("temperature"), "{answer}");
    let (status, answer) = server.post("/v1/chat/completions", &chat(&"long ".repeat(500), 4, false));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")), "{answer}");
    assert_eq!(server.get("/health").0, 200);
}

#[test]
fn what_flags_set_is_what_requests_get() {
    let server = Server::start(&[&model("llama-dense"), "--max-tokens", "3", "--temperature", "0"]);
    let mut body = chat("Hello", 0, false);
    body.as_object_mut().unwrap().retain(|key, _| key != "max_tokens" && key != "temperature");
    body["ignore_eos"] = json!(true);
    let ask = || server.post("/v1/chat/completions", &body).1;
    let (first, second) = (ask(), ask());
    assert_eq!(first["usage"]["completion_tokens"], 3, "{first}");
    assert_eq!(first["choices"][0]["message"], second["choices"][0]["message"], "not greedy");
}
