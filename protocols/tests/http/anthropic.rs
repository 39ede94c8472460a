//! Anthropic's protocol, as clients find it.

use serde_json::{Value, json};

use crate::client::{Reply, send};
use crate::script::Acting;
use crate::server::{Server, until};

fn body() -> Value {
    json!({
        "model": "claude", "max_tokens": 24, "temperature": 0, "system": "Be brief.",
        "messages": [{"role": "user", "content": "tell a question"}],
    })
}

fn with(fields: &Value) -> Value {
    let mut body = body();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn whole(server: &Server, body: &Value) -> Value {
    let reply = server.post("/v1/messages", body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// Events of a stream, each with its name, which its data must repeat.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    let names = reply.body.lines().filter_map(|line| line.strip_prefix("event: "));
    let events: Vec<Value> = reply.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    assert!(names.eq(events.iter().map(|event| event["type"].as_str().unwrap())), "{}", reply.body);
    events
}

fn text(message: &Value) -> String {
    message["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_begun_is_gone_on_with_in_every_protocol() {
    let server = Server::start().await;
    let user = json!({"role": "user", "content": "tell a question"});
    let begun = "Why is <|im_end|> it";
    let messages = json!([user, {"role": "assistant", "content": begun}]);
    let ask = |body: Value| {
        let server = &server;
        async move { server.post("/apply-template", &body).await.json()["prompt"].as_str().unwrap().to_owned() }
    };
    let thinking = json!({"enable_thinking": false});
    let plain = ask(json!({"messages": [user], "chat_template_kwargs": thinking})).await;
    let prompt =
        ask(json!({"messages": messages, "continue_final_message": true, "chat_template_kwargs": thinking})).await;
    assert_eq!(prompt, format!("{plain}{begun}"), "nothing stands behind what was begun");

    let body = json!({"model": "x", "max_tokens": 12, "temperature": 0, "messages": messages, "thinking": {"type": "disabled"}});
    let message = whole(&server, &body).await;
    let chat = json!({
        "messages": messages, "max_tokens": 12, "temperature": 0, "continue_final_message": true, "enable_thinking": false,
    });
    let chat = server.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(chat["choices"][0]["message"]["content"], text(&message));
    assert_eq!(
        message["usage"]["input_tokens"].as_u64().unwrap()
            + message["usage"]["cache_read_input_tokens"].as_u64().unwrap(),
        chat["usage"]["prompt_tokens"].as_u64().unwrap()
    );
    let counted = server.post("/v1/messages/count_tokens", &body).await.json();
    assert_eq!(counted["input_tokens"], chat["usage"]["prompt_tokens"]);

    for messages in [json!([user]), json!([user, {"role": "assistant", "content": ""}])] {
        let reply =
            server.post("/v1/chat/completions", &json!({"messages": messages, "continue_final_message": true})).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("messages")), "{}", reply.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_says_the_same_whole_and_streamed_and_as_a_chat() {
    let server = Server::start().await;
    let told = whole(&server, &body()).await;
    assert_eq!(
        (&told["type"], &told["role"], &told["model"]),
        (&json!("message"), &json!("assistant"), &json!("local"))
    );
    assert!(!text(&told).is_empty());

    let streamed = events(&server.post("/v1/messages", &with(&json!({"stream": true}))).await);
    let pieces: String = streamed.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(pieces, text(&told));
    assert_eq!(streamed[0]["type"], "message_start");
    let [.., delta, stop] = streamed.as_slice() else { panic!("{streamed:?}") };
    assert_eq!(delta["delta"]["stop_reason"], told["stop_reason"]);
    assert_eq!(stop["type"], "message_stop");

    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "tell a question"}]);
    let chat = json!({"messages": messages, "max_tokens": 24, "temperature": 0, "enable_thinking": false});
    let chat = server.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(chat["choices"][0]["message"]["content"], text(&told));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_tells_apart_what_the_cache_had() {
    let server = Server::start().await;
    let first = whole(&server, &body()).await["usage"].clone();
    assert_eq!((&first["cache_read_input_tokens"], &first["cache_creation_input_tokens"]), (&json!(0), &json!(0)));
    let counted = server.post("/v1/messages/count_tokens", &body()).await.json();
    assert_eq!(counted, json!({"input_tokens": first["input_tokens"]}));

    let again = whole(&server, &body()).await["usage"].clone();
    let number = |usage: &Value, key: &str| usage[key].as_u64().unwrap();
    let cached = number(&again, "cache_read_input_tokens");
    assert!(cached > 0, "{again}");
    assert_eq!(number(&again, "input_tokens") + cached, number(&first, "input_tokens"));

    let streamed = events(&server.post("/v1/messages", &with(&json!({"stream": true}))).await);
    assert_eq!(streamed[0]["message"]["usage"]["cache_read_input_tokens"], cached);
    assert_eq!(streamed[streamed.len() - 2]["usage"], again);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_stops_is_told_and_not_part_of_the_answer() {
    let server = Server::start().await;
    let all = text(&whole(&server, &body()).await);
    let stop: String = all.chars().skip(4).take(3).collect();
    let told = whole(&server, &with(&json!({"stop_sequences": ["never to be found", stop]}))).await;
    assert_eq!((&told["stop_reason"], &told["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    assert_eq!(text(&told), all.split_once(&stop).unwrap().0);
    let streamed =
        events(&server.post("/v1/messages", &with(&json!({"stream": true, "stop_sequences": [stop]}))).await);
    let delta = &streamed[streamed.len() - 2]["delta"];
    assert_eq!(delta, &json!({"stop_reason": "stop_sequence", "stop_sequence": stop}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_agents_send_is_taken() {
    let server = Server::start().await;
    let cached = json!({"type": "ephemeral", "ttl": "1h"});
    let history = json!([
        {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": cached}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "I look."},
        ]},
        {"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": "http://localhost/a.png"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "some text"}},
            {"type": "text", "text": "and now?"},
        ]},
    ]);
    let asked = with(&json!({
        "messages": history, "thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"},
        "metadata": {"user_id": "u"}, "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "tools": [{"type": "web_search_20250305", "name": "web_search"}], "tool_choice": {"type": "auto"},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": cached}], "never_heard_of": {"a": 1},
    }));
    let headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "claude-code-20250219,other-2026-01-01")];
    let sent = asked.to_string();
    let reply = send(server.address, "POST", "/v1/messages?beta=true", &headers, sent.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(reply.header("request-id").unwrap().starts_with("req_"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_the_form_of_the_protocol() {
    let server = Server::with(|engine, config| {
        engine.context = 64;
        config.api_keys = vec!["secret".into()];
        config.strict_model = true;
        config.max_body_bytes = 4096;
    })
    .await;
    let key = ("x-api-key", "secret");
    let local = |fields: Value| {
        let mut body = with(&fields);
        body["model"] = "local".into();
        body.to_string()
    };
    let long = json!([{"role": "user", "content": "a ".repeat(100)}]);
    let huge = local(json!({"system": "a".repeat(5000)}));
    let (post, get) = ("POST", "GET");
    let cases = [
        (post, "/v1/messages", vec![key], "{".to_owned(), 400, "invalid_request_error", "not valid JSON"),
        (
            post,
            "/v1/messages",
            vec![key],
            local(json!({"max_tokens": null})),
            400,
            "invalid_request_error",
            "`max_tokens`",
        ),
        (
            post,
            "/v1/messages",
            vec![key],
            local(json!({"temperature": -1})),
            400,
            "invalid_request_error",
            "`temperature`",
        ),
        (
            post,
            "/v1/messages",
            vec![key],
            local(json!({"messages": long})),
            400,
            "invalid_request_error",
            "prompt is too long: ",
        ),
        (post, "/v1/messages", vec![key], body().to_string(), 404, "not_found_error", "`claude`"),
        (post, "/v1/messages", vec![key], huge, 413, "request_too_large", "larger than"),
        (post, "/v1/messages", vec![], local(json!({})), 401, "authentication_error", "API key"),
        (get, "/v1/messages", vec![key], String::new(), 405, "invalid_request_error", "does not answer to GET"),
        (get, "/v1/messages/batches", vec![key], String::new(), 404, "not_found_error", "no route"),
        (
            post,
            "/v1/messages/count_tokens",
            vec![key],
            "{}".to_owned(),
            400,
            "invalid_request_error",
            "`messages` is required",
        ),
        (
            get,
            "/v1/models/x",
            vec![key, ("anthropic-version", "2023-06-01")],
            String::new(),
            404,
            "not_found_error",
            "`x`",
        ),
    ];
    for (method, path, headers, sent, status, kind, words) in cases {
        let reply = send(server.address, method, path, &headers, sent.as_bytes()).await;
        let told = reply.json();
        assert_eq!(
            (reply.status, &told["type"], &told["error"]["type"]),
            (status, &json!("error"), &json!(kind)),
            "{told}"
        );
        assert!(told["error"]["message"].as_str().unwrap().contains(words), "{told}");
        assert_eq!(reply.header("request-id"), told["request_id"].as_str());
    }
    until("the log has the refusals", || async { server.log().contains("  404  ") }).await;
    let others = send(server.address, "GET", "/v1/models/x", &[key], b"").await.json();
    assert!(others["error"].get("code").is_some(), "{others}");
}

#[tokio::test(flavor = "multi_thread")]
async fn thoughts_that_are_omitted_are_not_lost() {
    let acting = Acting::of("qwen3-dense", |engine| engine.context = 4096).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    let asked = |display: &str, messages: &Value| json!({"model": "x", "max_tokens": 64, "messages": messages, "thinking": {"type": "adaptive", "display": display}});
    let question = json!([{"role": "user", "content": "Well?"}]);
    let mut turns = Vec::new();
    for display in ["summarized", "omitted"] {
        acting.say("<think>\nHm. Hm.\n</think>\n\nYes.");
        turns.push(whole(&server, &asked(display, &question)).await["content"].clone());
    }
    let [shown, omitted] = turns.as_slice() else { panic!("{turns:?}") };
    assert_eq!((&shown[0]["thinking"], &omitted[0]["thinking"]), (&json!("Hm. Hm."), &json!("")));
    assert_eq!((&shown[1], &omitted[1]["text"]), (&omitted[1], &json!("Yes.")));

    acting.say("<think>\nHm. Hm.\n</think>\n\nYes.");
    let mut streamed = asked("omitted", &question);
    streamed["stream"] = true.into();
    let streamed = events(&server.post("/v1/messages", &streamed).await);
    let deltas: Vec<_> = streamed.iter().filter(|event| event["index"] == 0).map(|event| &event["delta"]).collect();
    assert_eq!(deltas[1], &json!({"type": "signature_delta", "signature": omitted[0]["signature"]}), "{streamed:?}");

    // With a call behind it the turn's thinking is part of the next prompt: the same one, told or not.
    let mut counts = Vec::new();
    for thought in [&shown[0], &omitted[0], &json!({"type": "thinking", "thinking": "", "signature": "x"})] {
        let turn = json!({"role": "assistant", "content": [thought, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]});
        let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "4"}]});
        let body = asked("omitted", &json!([question[0], turn, result]));
        counts.push(server.post("/v1/messages/count_tokens", &body).await.json()["input_tokens"].as_u64().unwrap());
    }
    assert!(counts[0] == counts[1] && counts[1] > counts[2], "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_the_protocol_finds_its_list_of_models() {
    let server = Server::start().await;
    let version = [("anthropic-version", "2023-06-01")];
    let list = send(server.address, "GET", "/v1/models?limit=1000", &version, b"").await.json();
    let model = &list["data"][0];
    assert_eq!((&model["type"], &model["id"]), (&json!("model"), &json!("local")));
    assert_eq!(
        (&list["has_more"], &list["first_id"], &list["last_id"]),
        (&json!(false), &json!("local"), &json!("local"))
    );
    assert!(model["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(&send(server.address, "GET", "/v1/models/local", &version, b"").await.json(), model);
    assert_eq!(server.get("/v1/models").await.json()["object"], "list");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_named_by_the_fields_of_the_protocol() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
    let cases = [
        (json!({"tools": [{"name": "f", "input_schema": schema}]}), "`tools[0].input_schema`"),
        (
            json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
            "`output_config.format.schema`",
        ),
    ];
    for (fields, field) in cases {
        let reply = server.post("/v1/messages", &with(&fields)).await;
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(reply.status == 400 && message.starts_with(field), "{}", reply.body);
    }
}
