//! OpenAI's Responses, as clients find them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Reply, Streaming, send};
use crate::script::Acting;
use crate::server::{Server, until};

fn body() -> Value {
    json!({"model": "local", "input": "tell a question", "instructions": "Be brief.", "max_output_tokens": 24, "temperature": 0})
}

fn with(fields: &Value) -> Value {
    let mut body = body();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn create(server: &Server, fields: &Value) -> Value {
    let reply = server.post("/v1/responses", &with(fields)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// Events of a stream, each with its name, which its data must repeat.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")), "{}", reply.body);
    let names = reply.body.lines().filter_map(|line| line.strip_prefix("event: "));
    let events: Vec<Value> = reply.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    assert!(names.eq(events.iter().map(|event| event["type"].as_str().unwrap())), "{}", reply.body);
    events
}

fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap().iter();
    let parts = items.filter_map(|item| item["content"].as_array()).flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

async fn delete(server: &Server, path: &str) -> Reply {
    send(server.address, "DELETE", path, &[], b"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_says_the_same_whole_and_streamed_and_as_a_chat() {
    let server = Server::start().await;
    let told = create(&server, &json!({})).await;
    assert_eq!((&told["object"], &told["model"]), (&json!("response"), &json!("local")));
    assert!(!text(&told).is_empty());
    let streamed = events(&server.post("/v1/responses", &with(&json!({"stream": true}))).await);
    assert_eq!(
        (&streamed[0]["type"], &streamed[0]["response"]["status"]),
        (&json!("response.created"), &json!("in_progress"))
    );
    let last = &streamed.last().unwrap()["response"];
    assert_eq!((text(last), &last["status"]), (text(&told), &told["status"]));
    let deltas = streamed.iter().filter(|event| event["type"] == "response.output_text.delta");
    assert_eq!(deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), text(&told));

    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "tell a question"}]);
    let chat = json!({"messages": messages, "max_tokens": 24, "temperature": 0});
    let chat = server.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(chat["choices"][0]["message"]["content"], text(&told));
    let usage = &told["usage"];
    assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
    let counted = server.post("/v1/responses/input_tokens", &body()).await.json();
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": usage["input_tokens"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_comes_back() {
    let server = Server::start().await;
    let tools = json!([{"type": "web_search"}]);
    let asked = json!({
        "metadata": {"a": "b"}, "tools": tools, "tool_choice": "auto", "parallel_tool_calls": false, "user": "u",
        "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}, "truncation": "auto", "top_p": 0.5,
    });
    let told = create(&server, &asked).await;
    for key in ["metadata", "tools", "tool_choice", "parallel_tool_calls", "user", "truncation", "top_p"] {
        assert_eq!(told[key], asked[key], "{key}");
    }
    assert_eq!(told["reasoning"], json!({"effort": "low", "summary": null}));
    assert_eq!(told["text"], json!({"format": {"type": "text"}, "verbosity": "low"}));
    assert_eq!((&told["instructions"], &told["max_output_tokens"]), (&json!("Be brief."), &json!(24)));
    assert_eq!((&told["store"], &told["background"], &told["error"]), (&json!(true), &json!(false), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_from_what_is_kept() {
    let server = Server::start().await;
    let first = create(&server, &json!({})).await;
    let id = first["id"].as_str().unwrap();
    let go_on = json!({"input": "go on", "previous_response_id": id});
    let second = create(&server, &go_on).await;
    let item = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    let question = json!({"role": "user", "content": "tell a question"});
    let whole = create(&server, &json!({"input": [question, item, {"role": "user", "content": "go on"}]})).await;
    assert_eq!((text(&second), &second["usage"]["input_tokens"]), (text(&whole), &whole["usage"]["input_tokens"]));
    assert!(whole["usage"]["input_tokens_details"]["cached_tokens"].as_u64() > Some(0));

    let path = format!("/v1/responses/{id}");
    assert_eq!(server.get(&path).await.json(), first);
    let items = server.get(&format!("{path}/input_items?order=asc&limit=1")).await.json();
    assert_eq!((&items["object"], &items["has_more"]), (&json!("list"), &json!(false)));
    assert_eq!(items["data"][0]["content"], json!([{"type": "input_text", "text": "tell a question"}]));
    assert_eq!(items["first_id"], items["data"][0]["id"]);
    assert_eq!(server.post(&format!("{path}/cancel"), &json!({})).await.status, 400);
    assert_eq!(delete(&server, &path).await.json(), json!({"id": id, "object": "response", "deleted": true}));
    for reply in [server.get(&path).await, delete(&server, &path).await] {
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (404, &json!("invalid_request_error")));
    }
    let lost = server.post("/v1/responses", &with(&go_on)).await;
    assert_eq!((lost.status, &lost.json()["error"]["code"]), (400, &json!("previous_response_not_found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_kept_is_not() {
    let server = Server::start().await;
    let told = create(&server, &json!({"store": false})).await;
    assert_eq!(server.get(&format!("/v1/responses/{}", told["id"].as_str().unwrap())).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_outlives_the_server_where_the_cache_does() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Server::with(|engine, _| engine.cache_dir = Some(directory.path().to_owned()));
    let server = start().await;
    let told = create(&server, &json!({})).await;
    server.stop().await.unwrap().unwrap();

    let server = start().await;
    let id = told["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/responses/{id}")).await.json(), told);
    let second = create(&server, &json!({"input": "go on", "previous_response_id": id})).await;
    assert!(second["usage"]["input_tokens"].as_u64() > told["usage"]["input_tokens"].as_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_in_the_background_are_asked_for_and_cancelled() {
    let server = Server::start().await;
    let asked = json!({"background": true, "max_output_tokens": 3000});
    let begun = create(&server, &asked).await;
    assert_eq!((&begun["status"], &begun["output"]), (&json!("in_progress"), &json!([])));
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    let cancelled = server.post(&format!("{path}/cancel"), &json!({})).await.json();
    assert_eq!((&cancelled["id"], &cancelled["status"]), (&begun["id"], &json!("cancelled")));
    let idle = |slots: Value| slots.as_array().unwrap().iter().all(|slot| slot["is_processing"] == false);
    until("nothing is running", || async { idle(server.get("/slots").await.json()) }).await;
    assert_eq!(server.get(&path).await.json()["status"], "cancelled");

    let begun = create(&server, &json!({"background": true})).await;
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    until("it has ended", || async { server.get(&path).await.json()["status"] != "in_progress" }).await;
    assert!(!text(&server.get(&path).await.json()).is_empty());
}

/// The part of a stream behind event number `after`.
fn behind(events: &[Value], after: u64) -> Vec<Value> {
    events.iter().filter(|event| event["sequence_number"].as_u64() > Some(after)).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_lost_is_gone_on_with() {
    let server = Server::start().await;
    let streamed = events(&server.post("/v1/responses", &with(&json!({"stream": true}))).await);
    let path = format!("/v1/responses/{}", streamed[0]["response"]["id"].as_str().unwrap());
    assert_eq!(events(&server.get(&format!("{path}?stream=true")).await), streamed);
    let after = streamed.len() as u64 / 2;
    let rest = server.get(&format!("{path}?stream=true&starting_after={after}")).await;
    assert_eq!(events(&rest), behind(&streamed, after));
    assert_eq!(server.get(&format!("{path}?stream=false")).await.json(), streamed.last().unwrap()["response"]);

    // Of what was told as a whole there are no such numbers.
    let whole = create(&server, &json!({})).await;
    let path = format!("/v1/responses/{}?stream=true", whole["id"].as_str().unwrap());
    let told = events(&server.get(&path).await);
    assert_eq!((&told[0]["type"], &told[0]["response"]["status"]), (&json!("response.created"), &json!("in_progress")));
    assert_eq!(told.last().unwrap()["response"], whole);
    let delta = told.iter().find(|event| event["type"] == "response.output_text.delta").unwrap();
    assert_eq!(delta["delta"], text(&whole));
    let refused = server.get(&format!("{path}&starting_after=3")).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("starting_after")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_in_the_background_goes_on_without_its_stream() {
    let server = Server::start().await;
    let asked = with(&json!({"background": true, "stream": true, "max_output_tokens": 200}));
    let mut lost = Streaming::post(server.address, "/v1/responses", &asked).await;
    let begun = lost.event().await;
    assert_eq!((&begun["type"], &begun["response"]["background"]), (&json!("response.created"), &json!(true)));
    drop(lost);
    let path = format!("/v1/responses/{}", begun["response"]["id"].as_str().unwrap());
    let rest = events(&server.get(&format!("{path}?stream=true&starting_after=0")).await);
    let numbers: Vec<_> = rest.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=rest.len() as u64).collect::<Vec<_>>());
    let last = &rest.last().unwrap()["response"];
    assert_ne!(last["status"], "cancelled", "nobody broke it off");
    assert_eq!(&server.get(&path).await.json(), last);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_a_stream_is_told_when_its_client_leaves() {
    let acting = Acting::of("qwen3-dense", |engine| engine.context = 4096).await;
    acting.say(&"all that is said and done is that ".repeat(40));
    acting.speak_slowly(Duration::from_millis(20));
    let server = Server::around(acting.engine, |_| {}).await;
    let asked = json!({"input": "x", "stream": true, "reasoning": {"effort": "none"}});
    let mut client = Streaming::post(server.address, "/v1/responses", &asked).await;
    let id = client.event().await["response"]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/responses/{id}?stream=true");
    let mut follower = Streaming::get(server.address, &path).await;
    assert_eq!(follower.event().await["response"]["id"], json!(id));
    drop(client);
    let mut last = json!(null);
    while let Some(event) = follower.next().await {
        last = event;
    }
    assert_eq!((&last["type"], &last["code"]), (&json!("error"), &json!("server_error")), "{last}");
    assert_eq!(server.get(&path).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_agents_send_is_taken() {
    let server = Server::start().await;
    let input = json!([
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}], "phase": "commentary"},
        {"type": "never_heard_of", "payload": 5},
        {"role": "user", "content": "and now?"},
    ]);
    let asked = json!({
        "input": input, "store": false, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
        "tools": [{"type": "web_search"}, {"type": "local_shell"}, {"type": "namespace", "name": "n", "tools": []}],
        "reasoning": {"effort": "medium", "summary": "auto"}, "client_metadata": {"a": "b"}, "tool_choice": "auto",
    });
    assert!(!text(&create(&server, &asked).await).is_empty());
    for empty in [json!({"input": [], "stream": false}), json!({"input": []})] {
        let told = create(&server, &empty).await;
        assert_eq!((&told["status"], &told["output"]), (&json!("completed"), &json!([])));
    }
    let streamed = events(&server.post("/v1/responses", &with(&json!({"input": [], "stream": true}))).await);
    assert_eq!(streamed.last().unwrap()["type"], "response.completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_named_by_the_fields_of_this_route() {
    let server = Server::with(|engine, _| engine.context = 64).await;
    let cases = [
        (json!({"input": [{"role": "robot", "content": "x"}]}), "input[0].role"),
        (json!({"input": "a ".repeat(200)}), "input"),
        (json!({"temperature": -1}), "temperature"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"background": true, "store": false}), "background"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
    ];
    for (fields, param) in cases {
        let reply = server.post("/v1/responses", &with(&fields)).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
    assert_eq!(server.get("/v1/responses/x/input_items").await.status, 404);
    assert_eq!(server.get("/v1/responses/x?stream=true").await.status, 404);
    for (options, param) in [("stream=yes", "stream"), ("stream=true&starting_after=-1", "starting_after")] {
        let reply = server.get(&format!("/v1/responses/x?{options}")).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_named_by_the_fields_of_this_route() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
    let cases = [
        (json!({"tools": [{"type": "function", "name": "f", "parameters": schema}]}), "tools[0].parameters"),
        (json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}), "text.format.schema"),
    ];
    for (fields, param) in cases {
        let reply = server.post("/v1/responses", &with(&fields)).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
}
