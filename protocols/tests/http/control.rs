//! The routes beside generation.

use serde_json::{Value, json};

use crate::server::{Server, until};

#[tokio::test(flavor = "multi_thread")]
async fn models_tell_the_window_that_a_request_gets() {
    let server = Server::with(|engine, _| engine.context = 1000).await;
    let list = server.get("/v1/models").await.json();
    let model = &list["data"][0];
    assert_eq!((&list["object"], &model["id"], &model["object"]), (&json!("list"), &json!("local"), &json!("model")));
    assert_eq!((&model["context_length"], &model["meta"]["n_ctx_train"]), (&json!(1000), &json!(4096)));
    assert_eq!(&server.get("/v1/models/local").await.json(), model);
    let missing = server.get("/v1/models/some/other").await;
    assert_eq!((missing.status, &missing.json()["error"]["code"]), (404, &json!("model_not_found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_tell_each_default_and_where_it_came_from() {
    let server = Server::with(|engine, _| engine.sampling.temperature = Some(0.25)).await;
    let props = server.get("/props").await.json();
    assert_eq!(props["sampling"]["temperature"], json!({"value": 0.25, "from": "server flag"}));
    assert_eq!(props["sampling"]["top_k"], json!({"value": 40, "from": "built-in"}));
    assert_eq!(
        (&props["context"], &props["max_tokens"], &props["total_slots"]),
        (&json!(4096), &json!(4096), &json!(4))
    );
    assert_eq!(props["model"]["architecture"], "llama");
    assert!(props["chat_template"].as_str().unwrap().contains("bos_token"));
    assert_eq!(props["capabilities"]["chat"], true);
    // What the page goes by: nothing that is loaded today sees, hears or makes images.
    assert_eq!(props["modalities"], json!({"vision": false, "audio": false, "image_output": false}));
    assert_eq!((&props["chat_template_error"], &props["chat_template_caps"]["system"]), (&json!(null), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_listed() {
    let server = Server::with(|engine, _| engine.parallel = 3).await;
    let slots = server.get("/slots").await.json();
    assert_eq!(slots.as_array().unwrap().len(), 3);
    assert_eq!(
        (&slots[2]["id"], &slots[2]["state"], &slots[2]["is_processing"]),
        (&json!(2), &json!("idle"), &json!(false))
    );
}

/// The number of this name, wherever it stands.
fn number(json: &Value, name: &str) -> Option<u64> {
    let fields = json.as_object()?;
    fields.get(name).and_then(Value::as_u64).or_else(|| fields.values().find_map(|inner| number(inner, name)))
}

/// Each row is counted once for each of the experts that it used. In the last layer only rows whose logits are wanted
/// are computed, so the first mixture is the one that has them all.
#[tokio::test(flavor = "multi_thread")]
async fn experts_add_up_to_the_rows_and_what_each_used() {
    let moe = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/qwen3moe-a/model.gguf");
    let server = Server::with(|engine, _| engine.model = moe.into()).await;
    let props = server.get("/props").await.json();
    let used = number(&props["model"]["config"], "used").unwrap();
    let prompt: Vec<u32> = (5..45).collect();
    let body = json!({"prompt": prompt, "max_tokens": 20, "ignore_eos": true});
    assert_eq!(server.post("/v1/completions", &body).await.status, 200);
    let rows = server.engine.status().await.rows;
    assert!(rows >= 59, "{rows}");
    let expected = rows * used;
    until("all is counted", || async { server.get("/experts").await.json()[0]["rows"] == expected }).await;
    let mixtures = server.get("/experts").await.json();
    for mixture in mixtures.as_array().unwrap() {
        let each: Vec<u64> = serde_json::from_value(mixture["rows_per_expert"].clone()).unwrap();
        assert_eq!(mixture["rows"], each.iter().sum::<u64>());
        assert!(each.iter().filter(|rows| **rows > 0).count() > 1, "{each:?}");
    }
    assert_eq!(Server::start().await.get("/experts").await.json(), json!([]), "a model without experts");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_survives_tokenizing() {
    let server = Server::start().await;
    let text = "tomorrow: ünïcödé 🐔\n<|eot_id|>";
    let ids = server.post("/tokenize", &json!({"content": text})).await.json();
    let back = server.post("/detokenize", &ids).await.json();
    assert_eq!(back["content"], text);

    let plain = server.post("/tokenize", &json!({"content": text, "parse_special": false})).await.json();
    assert!(plain["tokens"].as_array().unwrap().len() > ids["tokens"].as_array().unwrap().len());
    let framed = server.post("/tokenize", &json!({"content": text, "add_special": true})).await.json();
    assert_eq!(framed["tokens"].as_array().unwrap()[1..], ids["tokens"].as_array().unwrap()[..]);

    let pieces = server.post("/tokenize", &json!({"content": "a🐔", "with_pieces": true})).await.json();
    let pieces = pieces["tokens"].as_array().unwrap().clone();
    assert_eq!(pieces[0]["piece"], "a");
    assert!(pieces[1]["piece"].is_array(), "a part of a character is told by its bytes");

    let marked = server.post("/tokenize", &json!({"content": "a<|eot_id|>", "with_pieces": true})).await.json();
    assert_eq!((&marked["tokens"][0]["special"], &marked["tokens"][1]["special"]), (&json!(null), &json!(true)));
    assert_eq!(marked["tokens"][1]["piece"], "<|eot_id|>");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_template_can_be_seen() {
    let server = Server::start().await;
    let part = |text: &str| json!({"type": "text", "text": text});
    let developer = json!({"role": "developer", "content": "Be brief."});
    let body = json!({"messages": [developer, {"role": "user", "content": [part("a"), part("question?")]}]});
    let rendered = server.post("/apply-template", &body).await.json();
    let prompt = rendered["prompt"].as_str().unwrap();
    assert!(prompt.contains("Be brief.<|eot_id|>") && prompt.contains("\n\na\nquestion?<|eot_id|>"), "{prompt}");
    assert!(prompt.ends_with("<|start_header_id|>assistant<|end_header_id|>\n\n"), "{prompt}");
    let used =
        server.post("/v1/chat/completions", &json!({"messages": body["messages"], "max_tokens": 1})).await.json();
    assert_eq!(used["usage"]["prompt_tokens"], rendered["n_tokens"]);
    assert_eq!(rendered["tokens"], Value::Null);
}

/// The spelling of a control token within a message is text, and is told as such.
#[tokio::test(flavor = "multi_thread")]
async fn the_tokens_of_a_prompt_can_be_seen() {
    let server = Server::start().await;
    let body = json!({"messages": [{"role": "user", "content": "say <|eot_id|> twice"}], "with_pieces": true});
    let rendered = server.post("/apply-template", &body).await.json();
    let tokens = rendered["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), rendered["n_tokens"]);
    let bytes = |piece: &Value| match piece.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => serde_json::from_value(piece.clone()).unwrap(),
    };
    let text: Vec<u8> = tokens.iter().flat_map(|token| bytes(&token["piece"])).collect();
    assert_eq!(String::from_utf8(text).unwrap(), rendered["prompt"].as_str().unwrap());
    let is_end = |token: &&Value| token["piece"] == "<|eot_id|>" && token["special"] == true;
    let spelled = rendered["prompt"].as_str().unwrap().matches("<|eot_id|>").count();
    assert_eq!(tokens.iter().filter(is_end).count(), spelled - 1, "the client's is text");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_there() {
    let server = Server::start().await;
    let page = server.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
}
