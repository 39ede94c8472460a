//! What each family says, in each protocol: reasoning, text and a call in the family's own marks, told whole and streamed.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::request;
use crate::script::Acting;
use crate::server::Server;

/// A call between tags of functions and parameters.
const FUNCTION_TAGS: &str = "<tool_call>\n<function=look>\n<parameter=at>\nhere\n</parameter>\n<parameter=n>\n2\n\
                             </parameter>\n</function>\n</tool_call>";
/// The same as an object.
const HERMES: &str = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"here\", \"n\": 2}}\n</tool_call>";

/// Checkpoints, and what they say to call the tool `look` with `at` "here" and `n` 2.
fn turns() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let key_values = |tag: &str, break_: &str| {
        format!(
            "<{tag}tool_call>look{break_}<{tag}arg_key>at</{tag}arg_key>{break_}<{tag}arg_value>here</{tag}arg_value>{break_}\
             <{tag}arg_key>n</{tag}arg_key>{break_}<{tag}arg_value>2</{tag}arg_value>{break_}</{tag}tool_call>"
        )
    };
    let d = "｜DSML｜";
    let dsml = format!(
        "\n\n<{d}tool_calls>\n<{d}invoke name=\"look\">\n<{d}parameter name=\"at\" string=\"true\">here</{d}parameter>\n\
         <{d}parameter name=\"n\" string=\"false\">2</{d}parameter>\n</{d}invoke>\n</{d}tool_calls>"
    );
    let atem = "<atem:function_calls>\n<atem:invoke name=\"look\">\n<atem:parameter name=\"at\">here</atem:parameter>\n\
                <atem:parameter name=\"n\">2</atem:parameter>\n</atem:invoke>\n</atem:function_calls>";
    let distilled = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{\"at\": \"here\", \"n\": 2}\n\
                     ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    vec![
        ("qwen3-dense", format!("<think>\nHm.\n</think>\n\nSee:\n{HERMES}"), "Hm.", "See:"),
        ("qwen2-dense", format!("Hm.\n</think>\n\nSee:{distilled}"), "Hm.", "See:"),
        ("qwen35-dense", format!("Hm.\n</think>\n\nSee:\n{FUNCTION_TAGS}"), "Hm.", "See:"),
        ("qwen4exp-dense", format!("Hm.\n</think>\n\nSee:\n{FUNCTION_TAGS}"), "Hm.", "See:"),
        ("nemotron_h_moe-nano", format!("Hm.\n</think>\nSee:\n{FUNCTION_TAGS}"), "Hm.", "See:"),
        ("bailingmoe3-tiny", format!("Hm.</think>See:\n{}", key_values("", "\n")), "Hm.", "See:"),
        ("laguna-perhead", format!("Hm.</think>See:{}", key_values("", "")), "Hm.", "See:"),
        ("deepseek4-within", format!("Hm.</think>See:{dsml}"), "Hm.", "See:"),
        (
            "gemma4-dense",
            "<|channel>thought\nHm.<channel|>See:<|tool_call>call:look{at:<|\"|>here<|\"|>,n:2}<tool_call|>".into(),
            "Hm.",
            "See:",
        ),
        (
            "k2-horizon-dense",
            format!("Hm.\n</ifm|think>\nSee:\n<ifm|tool_calls>\n{}\n</ifm|tool_calls>", key_values("ifm|", "\n")),
            "Hm.",
            "See:",
        ),
        (
            "muse-glimmer-dense",
            format!(
                " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>See:<|eom|><|start|>assistant \
                 to=look<|message|>{atem}"
            ),
            "Hm.",
            "See:",
        ),
        ("llama-dense", "{\"name\": \"look\", \"parameters\": {\"at\": \"here\", \"n\": 2}}".into(), "", ""),
        ("gemma3-dense", format!("See:\n{HERMES}"), "", "See:"),
    ]
}

/// The turns, once as the models like and once held to the declarations: what a model was taught to write is allowed.
fn freely_and_held() -> impl Iterator<Item = (&'static str, String, &'static str, &'static str, bool)> {
    let both = |(model, says, reasoning, content): (_, String, _, _)| {
        [false, true].map(|held| (model, says.clone(), reasoning, content, held))
    };
    turns().into_iter().flat_map(both)
}

fn schema() -> Value {
    json!({
        "type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}, "required": ["at", "n"],
    })
}

fn chat() -> Value {
    json!({
        "messages": [{"role": "user", "content": "Where?"}], "temperature": 0, "reasoning_effort": "high",
        "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": schema()}}],
    })
}

fn messages() -> Value {
    json!({
        "messages": [{"role": "user", "content": "Where?"}], "temperature": 0, "max_tokens": 500,
        "tools": [{"name": "look", "description": "Looks.", "input_schema": schema()}],
        "thinking": {"type": "enabled", "budget_tokens": 200},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_family_thinks_speaks_and_calls_in_openais_words() {
    for (model, says, reasoning, content, held) in freely_and_held() {
        let acting = Acting::of(model, |config| config.rules.calls = held).await;
        let server = Server::around(acting.engine.clone(), |_| {}).await;
        acting.say(&says);
        let reply = server.post("/v1/chat/completions", &chat()).await;
        assert_eq!(reply.status, 200, "{model}: {}", reply.body);
        let choice = reply.json()["choices"][0].clone();
        let message = &choice["message"];
        assert_eq!(message["reasoning_content"].as_str().unwrap_or_default(), reasoning, "{model}: {message}");
        assert_eq!(message["content"].as_str().unwrap_or_default(), content, "{model}: {message}");
        let call = &message["tool_calls"][0]["function"];
        assert_eq!(call["name"], "look", "{model}: {message}");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments, json!({"at": "here", "n": 2}), "{model}");
        assert_eq!(choice["finish_reason"], "tool_calls", "{model}");
        let thought = reply.json()["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
        assert_eq!(thought > 0, !reasoning.is_empty(), "{model}");

        acting.say(&says);
        let mut streamed = chat();
        streamed["stream"] = json!(true);
        let reply = server.post("/v1/chat/completions", &streamed).await;
        let chunks: Vec<Value> = reply.events().iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
        let joined = |key: &str| deltas().filter_map(|delta| delta[key].as_str()).collect::<String>();
        assert_eq!((joined("reasoning_content").as_str(), joined("content").as_str()), (reasoning, content), "{model}");
        let pieces: Vec<_> = deltas().filter_map(|delta| delta["tool_calls"][0].as_object()).collect();
        let arguments: String = pieces.iter().filter_map(|piece| piece["function"]["arguments"].as_str()).collect();
        assert_eq!(arguments, call["arguments"].as_str().unwrap(), "{model}");
        assert!(pieces.len() > 2, "{model}: arguments are streamed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_family_thinks_speaks_and_calls_in_anthropics_words() {
    for (model, says, reasoning, content, held) in freely_and_held() {
        let acting = Acting::of(model, |config| config.rules.calls = held).await;
        let server = Server::around(acting.engine.clone(), |_| {}).await;
        acting.say(&says);
        let reply = server.post("/v1/messages", &messages()).await;
        assert_eq!(reply.status, 200, "{model}: {}", reply.body);
        let told = reply.json();
        let blocks = told["content"].as_array().unwrap();
        let of = |kind: &str| blocks.iter().find(|block| block["type"] == kind);
        assert_eq!(
            of("thinking").map_or("", |block| block["thinking"].as_str().unwrap()),
            reasoning,
            "{model}: {told}"
        );
        assert_eq!(of("text").map_or("", |block| block["text"].as_str().unwrap()), content, "{model}: {told}");
        let call = of("tool_use").unwrap_or_else(|| panic!("{model}: {told}"));
        assert_eq!((&call["name"], &call["input"]), (&json!("look"), &json!({"at": "here", "n": 2})), "{model}");
        assert_eq!(told["stop_reason"], "tool_use", "{model}");
    }
}

/// A question to a model that thinks for ever.
async fn endless(server: &Server, acting: &Acting, more: &Value) -> Value {
    acting.say(&"Hm. ".repeat(200));
    let mut body = chat();
    body.as_object_mut().unwrap().remove("tools");
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let reply = server.post("/v1/chat/completions", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_ends_at_its_limit_and_the_answer_goes_on() {
    for model in ["qwen35-dense", "k2-horizon-dense", "muse-glimmer-dense"] {
        let acting = Acting::of(model, |_| {}).await;
        let server = Server::around(acting.engine.clone(), |_| {}).await;
        let begun = if model.starts_with("muse") { " to=self<|message|>" } else { "" };
        acting.say(&format!("{begun}{}", "Hm. ".repeat(200)));
        let mut body = chat();
        body.as_object_mut().unwrap().remove("tools");
        body["reasoning_budget_tokens"] = json!(20);
        body["max_tokens"] = json!(120);
        let told = server.post("/v1/chat/completions", &body).await.json();
        let message = &told["choices"][0]["message"];
        let thought = told["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
        assert!((20..60).contains(&thought), "{model}: {told}");
        assert!(message["content"].as_str().unwrap().contains("Hm."), "{model}: {told}");
        assert!(message["reasoning_content"].as_str().unwrap().contains("Hm."), "{model}: {told}");
        assert_eq!(told["choices"][0]["finish_reason"], "length", "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_limit_thinking_goes_on_to_the_end() {
    let acting = Acting::of("qwen35-dense", |_| {}).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    let told = endless(&server, &acting, &json!({"max_tokens": 120})).await;
    assert_eq!(told["usage"]["completion_tokens_details"]["reasoning_tokens"], 120);
    assert_eq!(told["choices"][0]["message"]["content"], "");
    let bounded = Acting::of("qwen35-dense", |config| config.thinking_budget = Some(10)).await;
    let server = Server::around(bounded.engine.clone(), |_| {}).await;
    let told = endless(&server, &bounded, &json!({"max_tokens": 120})).await;
    assert!(told["choices"][0]["message"]["content"].as_str().unwrap().contains("Hm."), "the server's limit: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_must_be_is_made_and_no_second_where_one_is_allowed() {
    let acting = Acting::of("qwen3-dense", |_| {}).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    let ask = |more: Value| {
        let mut body = chat();
        body["reasoning_effort"] = json!("none");
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    acting.say(&format!("{HERMES}\n{HERMES}"));
    let both = server.post("/v1/chat/completions", &ask(json!({}))).await.json();
    assert_eq!(both["choices"][0]["message"]["tool_calls"].as_array().map(Vec::len), Some(2), "{both}");
    acting.say(&format!("{HERMES}\n{HERMES}"));
    let one = server.post("/v1/chat/completions", &ask(json!({"parallel_tool_calls": false}))).await.json();
    assert_eq!(one["choices"][0]["message"]["tool_calls"].as_array().map(Vec::len), Some(1), "{one}");
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "look"}})] {
        acting.say("<think>No.");
        let told =
            server.post("/v1/chat/completions", &ask(json!({"tool_choice": choice, "max_tokens": 300}))).await.json();
        assert_eq!(told["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "look", "{told}");
        assert_eq!(told["usage"]["completion_tokens_details"]["reasoning_tokens"], 0, "thinking is off: {told}");
    }
    acting.say(HERMES);
    let told = server.post("/v1/chat/completions", &ask(json!({"tool_choice": "none"}))).await.json();
    assert_eq!(told["choices"][0]["message"]["content"], HERMES, "without tools it is text: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cut_off_ends_with_length() {
    let acting = Acting::of("qwen35-dense", |_| {}).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    let says = format!("</think>\n\n{}", FUNCTION_TAGS.replace("here", &"here and there ".repeat(40)));
    for path in ["/v1/chat/completions", "/v1/messages"] {
        acting.say(&says);
        let mut body = if path.ends_with("messages") { messages() } else { chat() };
        body["max_tokens"] = json!(90);
        let reply = server.post(path, &body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let told = reply.json();
        let reason =
            if path.ends_with("messages") { &told["stop_reason"] } else { &told["choices"][0]["finish_reason"] };
        assert!(reason == "length" || reason == "max_tokens", "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_end_the_thinking_of_an_answer_under_way() {
    let acting = Acting::of("qwen35-dense", |_| {}).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    acting.say(&"Hm. ".repeat(3000));
    let mut body = chat();
    body.as_object_mut().unwrap().remove("tools");
    (body["stream"], body["max_tokens"]) = (json!(true), json!(3500));
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let headers = [("content-type", "application/json")];
    socket.write_all(&request("POST", "/v1/chat/completions", &headers, body.to_string().as_bytes())).await.unwrap();
    let mut seen = Vec::new();
    let id = loop {
        assert_ne!(socket.read_buf(&mut seen).await.unwrap(), 0);
        let text = String::from_utf8_lossy(&seen).into_owned();
        // All of it: what is read may end anywhere.
        if let Some((id, _)) = text.split_once("\"id\":\"").and_then(|(_, rest)| rest.split_once('"')) {
            break id.to_owned();
        }
    };
    let path = format!("/v1/chat/completions/{id}/stop_thinking");
    assert_eq!(server.post(&path, &json!({})).await.status, 200);
    socket.read_to_end(&mut seen).await.unwrap();
    let text = String::from_utf8_lossy(&seen);
    assert!(text.contains("\"content\":\"H\""), "the answer goes on");
    assert_eq!(server.post(&path, &json!({})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_family_thinks_speaks_and_calls_in_the_words_of_responses() {
    for (model, says, reasoning, content, held) in freely_and_held() {
        let acting = Acting::of(model, |config| config.rules.calls = held).await;
        let server = Server::around(acting.engine.clone(), |_| {}).await;
        acting.say(&says);
        let tool = json!({"type": "function", "name": "look", "description": "Looks.", "parameters": schema()});
        let body = json!({"input": "Where?", "temperature": 0, "reasoning": {"effort": "high"}, "tools": [tool]});
        let reply = server.post("/v1/responses", &body).await;
        assert_eq!(reply.status, 200, "{model}: {}", reply.body);
        let told = reply.json();
        let items = told["output"].as_array().unwrap();
        let of = |kind: &str| items.iter().find(|item| item["type"] == kind);
        let text = |kind: &str| of(kind).map_or("", |item| item["content"][0]["text"].as_str().unwrap());
        assert_eq!((text("reasoning"), text("message")), (reasoning, content), "{model}: {told}");
        let call = of("function_call").unwrap_or_else(|| panic!("{model}: {told}"));
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert_eq!((&call["name"], &arguments), (&json!("look"), &json!({"at": "here", "n": 2})), "{model}");
        assert_eq!(told["status"], "completed", "{model}");
    }
}
