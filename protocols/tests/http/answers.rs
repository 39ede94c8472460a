//! What successful generations answer with.

use bantam_protocols::TranscriptConfig;
use serde_json::{Value, json};

use crate::server::{Server, until};

fn chat() -> Value {
    json!({
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "tell a question"}],
        "max_tokens": 24, "temperature": 0, "ignore_eos": true,
    })
}

fn completion() -> Value {
    json!({"prompt": "tomorrow morning", "max_tokens": 24, "temperature": 0, "ignore_eos": true})
}

fn with(mut body: Value, fields: &Value) -> Value {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// The chunks of a stream that ended well.
async fn stream(server: &Server, path: &str, body: Value) -> Vec<Value> {
    let reply = server.post(path, &with(body, &json!({"stream": true}))).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    let events = reply.events();
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
}

async fn whole(server: &Server, path: &str, body: &Value) -> Value {
    let reply = server.post(path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_says_the_same_whole_and_streamed() {
    let server = Server::start().await;
    let told = whole(&server, "/v1/chat/completions", &chat()).await;
    assert_eq!((&told["object"], &told["model"]), (&json!("chat.completion"), &json!("local")));
    assert_eq!(told["choices"][0]["message"]["role"], "assistant");
    assert_eq!(told["choices"][0]["finish_reason"], "length");
    assert_eq!(told["usage"]["completion_tokens"], 24);

    let chunks = stream(&server, "/v1/chat/completions", chat()).await;
    let text: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(told["choices"][0]["message"]["content"], text.as_str());
    assert!(!text.is_empty());
    let finishes: Vec<_> = chunks.iter().filter_map(|c| c["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(finishes, ["length"]);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(chunks.iter().all(|c| c["id"] == chunks[0]["id"] && c.get("usage").is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_says_the_same_whole_and_streamed() {
    let server = Server::start().await;
    let told = whole(&server, "/v1/completions", &completion()).await;
    let chunks = stream(&server, "/v1/completions", completion()).await;
    let text: String = chunks.iter().filter_map(|c| c["choices"][0]["text"].as_str()).collect();
    assert_eq!(told["choices"][0]["text"], text.as_str());
    assert!(!text.is_empty());

    let tokens = server.post("/tokenize", &json!({"content": "tomorrow morning", "add_special": true})).await.json();
    let by_tokens = whole(&server, "/v1/completions", &with(completion(), &json!({"prompt": tokens["tokens"]}))).await;
    assert_eq!(by_tokens["choices"][0]["text"], text.as_str());
    let echoed = whole(&server, "/v1/completions", &with(completion(), &json!({"echo": true}))).await;
    assert_eq!(echoed["choices"][0]["text"], format!("tomorrow morning{text}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_has_the_same_fields_everywhere_and_counts_what_the_cache_had() {
    for (path, body) in [("/v1/chat/completions", chat()), ("/v1/completions", completion())] {
        let server = Server::start().await;
        let first = whole(&server, path, &body).await["usage"].clone();
        assert_eq!(first["prompt_tokens_details"], json!({"cached_tokens": 0}));
        let again = whole(&server, path, &body).await["usage"].clone();
        let cached = again["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        let prompt = again["prompt_tokens"].as_u64().unwrap();
        assert!(cached > 0 && cached < prompt, "{again}");

        let asked = json!({"stream_options": {"include_usage": true}});
        let chunks = stream(&server, path, with(body, &asked)).await;
        let (last, others) = chunks.split_last().unwrap();
        assert!(others.iter().all(|c| c.get("usage") == Some(&json!(null))));
        assert_eq!((&last["usage"], &last["choices"]), (&again, &json!([])));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sampling_options_reach_the_sampler() {
    let server = Server::start().await;
    let text = |fields: Value| {
        let server = &server;
        async move { whole(server, "/v1/completions", &with(completion(), &fields)).await["choices"][0]["text"].clone() }
    };
    let letter = server.post("/tokenize", &json!({"content": "b"})).await.json()["tokens"][0].to_string();
    let biased = text(json!({"logit_bias": {&letter: 100}})).await;
    assert_eq!(biased, "b".repeat(24));
    let seeded = |seed: i64| text(json!({"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed}));
    assert_eq!(seeded(7).await, seeded(7).await);
    assert_ne!(seeded(7).await, seeded(8).await);
    let punished = text(json!({"logit_bias": {letter: 100}, "presence_penalty": 2, "frequency_penalty": 2})).await;
    assert_eq!(punished, biased, "a bias of 100 outweighs penalties");
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_texts_end_the_answer_and_are_not_part_of_it() {
    let server = Server::start().await;
    let all = whole(&server, "/v1/completions", &completion()).await["choices"][0]["text"].as_str().unwrap().to_owned();
    let stop: String = all.chars().skip(8).take(3).collect();
    let body = with(completion(), &json!({"stop": ["never to be found", stop]}));
    let cut = whole(&server, "/v1/completions", &body).await;
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    let (before, _) = all.split_once(&stop).unwrap();
    assert_eq!(cut["choices"][0]["text"], before);
    let chunks = stream(&server, "/v1/completions", body).await;
    let text: String = chunks.iter().filter_map(|c| c["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn end_tokens_stop_unless_they_are_ignored() {
    let server = Server::start().await;
    let props = server.get("/props").await.json();
    let end = props["end_tokens"][0].to_string();
    let body = with(completion(), &json!({"logit_bias": {end: 100}, "ignore_eos": false}));
    let ended = whole(&server, "/v1/completions", &body).await;
    assert_eq!((&ended["choices"][0]["finish_reason"], &ended["choices"][0]["text"]), (&json!("stop"), &json!("")));
    assert_eq!(ended["usage"]["completion_tokens"], 0);
    let ignored = whole(&server, "/v1/completions", &with(body, &json!({"ignore_eos": true}))).await;
    assert_eq!(ignored["choices"][0]["finish_reason"], "length");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_are_told_for_every_token() {
    let server = Server::start().await;
    let body = with(chat(), &json!({"logprobs": true, "top_logprobs": 3}));
    let told = whole(&server, "/v1/chat/completions", &body).await["choices"][0]["logprobs"]["content"].clone();
    let tokens = told.as_array().unwrap();
    assert_eq!(tokens.len(), 24);
    for token in tokens {
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 3);
        let best = &token["top_logprobs"][0];
        assert_eq!(token["bytes"], best["bytes"], "greedy takes the likeliest");
        assert_eq!(token["logprob"], best["logprob"]);
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
    }
    let chunks = stream(&server, "/v1/chat/completions", body).await;
    let streamed: Vec<_> =
        chunks.iter().filter_map(|c| c["choices"][0]["logprobs"]["content"].as_array()).flatten().collect();
    assert_eq!(streamed, tokens.iter().collect::<Vec<_>>());

    let told = whole(&server, "/v1/completions", &with(completion(), &json!({"logprobs": 2}))).await;
    let told = &told["choices"][0]["logprobs"];
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(told[list].as_array().unwrap().len(), 24, "{list}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_at_once_answer_as_they_do_alone() {
    let server = Server::with(|engine, _| engine.parallel = 4).await;
    let body = |i: usize| {
        let user = json!({"role": "user", "content": format!("question {i}")});
        with(chat(), &json!({"messages": [user], "max_tokens": 96}))
    };
    let text = |told: &Value| told["choices"][0]["message"]["content"].clone();
    let mut alone = Vec::new();
    for i in 0..4 {
        alone.push(text(&whole(&server, "/v1/chat/completions", &body(i)).await));
    }
    let bodies: Vec<_> = (0..4).map(body).collect();
    let together = futures::future::join_all(bodies.iter().map(|b| whole(&server, "/v1/chat/completions", b))).await;
    assert_eq!(together.iter().map(text).collect::<Vec<_>>(), alone);
    let health = server.get("/health").await.json();
    assert!(health["max_step_sequences"].as_u64().unwrap() >= 2, "{health}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_answers_differ_by_seed_and_the_first_is_the_one_alone() {
    let server = Server::start().await;
    let body = with(completion(), &json!({"temperature": 1.5, "seed": 3}));
    let alone = whole(&server, "/v1/completions", &body).await["choices"][0]["text"].clone();
    let several = whole(&server, "/v1/completions", &with(body.clone(), &json!({"n": 3}))).await;
    let texts: Vec<_> = several["choices"].as_array().unwrap().iter().map(|choice| choice["text"].clone()).collect();
    assert_eq!((texts.len(), &texts[0]), (3, &alone));
    assert!(texts[0] != texts[1] && texts[1] != texts[2]);
    assert_eq!(several["usage"]["completion_tokens"], 72);
    let prompts = with(completion(), &json!({"prompt": ["tomorrow morning", "a"], "n": 2, "temperature": 0}));
    let both = whole(&server, "/v1/completions", &prompts).await;
    let texts: Vec<_> = both["choices"].as_array().unwrap().iter().map(|choice| choice["text"].clone()).collect();
    assert!(texts[0] == texts[1] && texts[2] == texts[3] && texts[0] != texts[2], "{texts:?}");
    let chunks = stream(&server, "/v1/chat/completions", with(chat(), &json!({"n": 2}))).await;
    let of = |index: usize| -> String {
        let choices = chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|choice| choice["index"] == index);
        choices.filter_map(|choice| choice["delta"]["content"].as_str()).collect()
    };
    assert!(!of(0).is_empty() && of(0) == of(1));
    let refused = server.post("/v1/completions", &with(completion(), &json!({"n": 100}))).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_has_what_was_sent_what_was_seen_and_what_came_back() {
    for prompts in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("transcripts");
        let config = TranscriptConfig { directory: directory.clone(), prompts };
        let server = Server::with(|_, server| server.transcripts = Some(config)).await;
        let told = whole(&server, "/v1/chat/completions", &chat()).await;
        let rendered = server.post("/apply-template", &chat()).await.json()["prompt"].clone();
        stream(&server, "/v1/chat/completions", chat()).await;
        server.post("/v1/chat/completions", &json!({"messages": 3})).await;
        let read = || -> Vec<Value> {
            let files = std::fs::read_dir(&directory).into_iter().flatten().map(|file| file.unwrap().path());
            files.filter_map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).ok()).collect()
        };
        until("both are written", || async { read().len() == 2 }).await;
        let transcripts = read();
        let one = transcripts.iter().find(|transcript| transcript["answer"].is_object()).unwrap();
        assert_eq!((&one["request"], &one["answer"], &one["status"]), (&chat(), &told, &json!(200)));
        match prompts {
            true => assert_eq!(one["prompts"], json!([rendered])),
            false => assert_eq!(one["prompts"][0]["bytes"], rendered.as_str().unwrap().len()),
        }
        let other = transcripts.iter().find(|transcript| transcript["answer"].is_string()).unwrap();
        assert!(other["answer"].as_str().unwrap().ends_with("data: [DONE]\n\n"));
    }
}
