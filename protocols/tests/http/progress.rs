//! How far a long prompt is, in each protocol's stream.

use std::time::Duration;

use serde_json::{Value, json};

use crate::script::Acting;
use crate::server::Server;

/// Between two words about it, as the server has it.
const EVERY: Duration = Duration::from_millis(500);
const TOKEN: Duration = Duration::from_millis(2);

/// A conversation that takes several times that long to read, and of which nothing was read before.
fn body(path: &str, begins: &str, more: &Value) -> Value {
    let letters = 4 * (EVERY.as_millis() / TOKEN.as_millis()) as usize;
    let text = format!("{begins} {}", "hello ".repeat(letters / "hello ".len()));
    let mut body = match path {
        "/v1/responses" => json!({"input": text, "max_output_tokens": 16}),
        _ => json!({"messages": [{"role": "user", "content": text}], "max_tokens": 16}),
    };
    body["stream"] = true.into();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn server() -> Server {
    let acting = Acting::of("qwen3-dense", |engine| engine.context = 4096).await;
    acting.read_slowly(TOKEN);
    Server::around(acting.engine, |_| {}).await
}

/// The events of a stream, each with the name that it has before its data.
async fn stream(server: &Server, path: &str, body: &Value) -> Vec<(Option<String>, Value)> {
    let reply = server.post(path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let events = reply.body.split("\n\n").map(|event| {
        let line = |key: &str| event.lines().find_map(|line| line.strip_prefix(key));
        (line("event: ").map(str::to_owned), line("data: ").and_then(|data| serde_json::from_str(data).ok()))
    });
    events.filter_map(|(name, data)| Some((name, data?))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_how_far_its_prompt_is_where_that_is_asked_for() {
    for (path, name) in [
        ("/v1/chat/completions", None),
        ("/v1/messages", Some("ping")),
        ("/v1/responses", Some("response.in_progress")),
    ] {
        let server = server().await;
        let told = stream(&server, path, &body(path, "Well,", &json!({"prefill_progress": true}))).await;
        let progress: Vec<_> = told.iter().filter(|(_, data)| !data["prompt_progress"].is_null()).collect();
        assert!(progress.len() >= 2, "{path}: {told:?}");
        let figures = |key: &str| -> Vec<u64> {
            progress.iter().map(|(_, data)| data["prompt_progress"][key].as_u64().unwrap()).collect()
        };
        let (total, processed) = (figures("total"), figures("processed"));
        assert!(total.iter().all(|tokens| *tokens == total[0] && *tokens > 100), "{path}: {total:?}");
        assert!(processed.is_sorted() && processed.last() > processed.first(), "{path}: {processed:?}");
        assert!(processed.iter().all(|tokens| *tokens <= total[0]), "{path}: {processed:?}");
        assert_eq!(figures("cache"), vec![0; progress.len()]);
        for (named, data) in &progress {
            assert_eq!(named.as_deref(), name);
            assert_eq!(data["type"].as_str(), name, "the data says again what it is");
        }
        // Nothing comes before what begins a stream, and nothing of this once the answer has begun.
        let first = told.iter().position(|(_, data)| !data["prompt_progress"].is_null()).unwrap();
        match path {
            "/v1/messages" => assert_eq!(told[0].1["type"], "message_start"),
            "/v1/responses" => {
                assert_eq!(told[0].1["type"], "response.created");
                let numbers: Vec<_> = told.iter().map(|(_, data)| data["sequence_number"].as_u64().unwrap()).collect();
                assert_eq!(numbers, (0..told.len() as u64).collect::<Vec<_>>(), "they are counted with the others");
            }
            _ => assert_eq!(first, 0),
        }

        let again = stream(&server, path, &body(path, "Once more,", &json!({}))).await;
        assert!(again.iter().all(|(_, data)| data["prompt_progress"].is_null()), "{path}: {again:?}");
        let refused = server.post(path, &body(path, "", &json!({"prefill_progress": "yes"}))).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.contains("`prefill_progress` must be a boolean"), "{}", refused.body);
    }
}
