//! llama.cpp's own protocol: `/completion`, `/infill`, and what its tools ask for besides.

use serde_json::{Value, json};

use crate::script::Acting;
use crate::server::Server;

#[allow(clippy::needless_pass_by_value, reason = "prompts are made where they are asked with")]
fn greedy(prompt: Value, fields: &Value) -> Value {
    let mut body = json!({"prompt": prompt, "n_predict": 12, "temperature": 0, "ignore_eos": true});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn told(server: &Server, path: &str, body: &Value) -> Value {
    let reply = server.post(path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

async fn refused(server: &Server, path: &str, body: &Value) -> Value {
    let reply = server.post(path, body).await;
    assert_eq!(reply.status, 400, "{body}: {}", reply.body);
    let error = reply.json()["error"].clone();
    assert_eq!(error["code"], 400, "{error}");
    error
}

async fn pieces(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let reply = server.post(path, &body).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")), "{}", reply.body);
    reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

async fn ids(server: &Server, text: &str) -> Vec<u32> {
    let told = told(server, "/tokenize", &json!({"content": text})).await;
    serde_json::from_value(told["tokens"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_llama_cpps_fields() {
    let server = Server::start().await;
    let answer = told(&server, "/completion", &greedy(json!("tomorrow"), &json!({"stop": ["never this"]}))).await;
    for (field, value) in [
        ("index", json!(0)),
        ("stop", json!(true)),
        ("stop_type", json!("limit")),
        ("stopping_word", json!("")),
        ("truncated", json!(false)),
        ("tokens_predicted", json!(12)),
        ("tokens", json!([])),
        ("model", json!("local")),
        ("prompt", json!("tomorrow")),
        ("tokens_cached", json!(0)),
    ] {
        assert_eq!(answer[field], value, "{field}");
    }
    let settings = &answer["generation_settings"];
    for (field, value) in [("n_predict", json!(12)), ("temperature", json!(0.0)), ("stop", json!(["never this"]))] {
        assert_eq!(settings[field], value, "{field}");
    }
    assert_eq!((&settings["n_ctx"], &settings["ignore_eos"]), (&json!(4096), &json!(true)));
    let timings = &answer["timings"];
    assert_eq!((&timings["predicted_n"], &timings["cache_n"]), (&json!(12), &json!(0)));
    assert_eq!(timings["prompt_n"], answer["tokens_evaluated"]);
    assert!(timings["predicted_ms"].as_f64().unwrap() > 0.0 && timings["prompt_per_second"].as_f64().unwrap() > 0.0);
    let same = json!({"prompt": "tomorrow", "max_tokens": 12, "temperature": 0, "ignore_eos": true});
    let openai = told(&server, "/v1/completions", &same).await;
    assert_eq!(answer["content"], openai["choices"][0]["text"]);
    assert_eq!(answer["tokens_evaluated"], openai["usage"]["prompt_tokens"]);
    let older = told(&server, "/completions", &greedy(json!("tomorrow"), &json!({}))).await;
    assert_eq!(older["content"], answer["content"]);
    assert!(older["tokens_cached"].as_u64().unwrap() > 0, "the prefix is found again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_its_pieces_and_the_end() {
    let server = Server::start().await;
    let body = greedy(json!("tomorrow"), &json!({"return_tokens": true, "n_probs": 2, "timings_per_token": true}));
    let whole = told(&server, "/completion", &body).await;
    let told = pieces(&server, "/completion", &body).await;
    let (end, pieces) = told.split_last().unwrap();
    assert!(pieces.iter().all(|piece| piece["stop"] == false && piece["timings"]["predicted_n"].is_u64()));
    let text: String = pieces.iter().map(|piece| piece["content"].as_str().unwrap()).collect();
    let joined = |field: &str| pieces.iter().flat_map(|piece| piece[field].as_array().unwrap().clone()).collect();
    let (tokens, probabilities): (Value, Value) = (joined("tokens"), joined("completion_probabilities"));
    assert_eq!((&json!(text), &tokens), (&whole["content"], &whole["tokens"]));
    assert_eq!(probabilities, whole["completion_probabilities"]);
    let first = &probabilities[0];
    assert_eq!((first["id"].clone(), first["top_logprobs"].as_array().unwrap().len()), (tokens[0].clone(), 2));
    assert!(first["logprob"].as_f64().unwrap() <= 0.0 && first["bytes"].is_array() && first["token"].is_string());
    assert_eq!((&end["stop"], &end["content"], &end["tokens"]), (&json!(true), &json!(""), &json!([])));
    for field in ["stop_type", "tokens_predicted", "tokens_evaluated", "truncated", "stopping_word", "prompt"] {
        assert_eq!(end[field], whole[field], "{field}");
    }
    assert_eq!(tokens.as_array().unwrap().len(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_texts_tokens_both_and_several() {
    let server = Server::start().await;
    let content = |answer: &Value| answer["content"].clone();
    let text = told(&server, "/completion", &greedy(json!("tomorrow morning"), &json!({}))).await;
    let mut tokens = ids(&server, "tomorrow morning").await;
    let bare = told(&server, "/completion", &greedy(json!(tokens), &json!({}))).await;
    let bos = text["tokens_evaluated"].as_u64().unwrap() - bare["tokens_evaluated"].as_u64().unwrap();
    assert_eq!(bos, 1, "a text begins with the token that begins texts");
    let rest: Vec<Value> = tokens.split_off(1).into_iter().map(Value::from).collect();
    let first = told(&server, "/detokenize", &json!({"tokens": tokens})).await["content"].clone();
    let mixed: Vec<Value> = [first].into_iter().chain(rest).collect();
    let mixed = told(&server, "/completion", &greedy(json!(mixed), &json!({}))).await;
    assert_eq!((content(&mixed), &mixed["tokens_evaluated"]), (content(&text), &text["tokens_evaluated"]));

    let several = json!(["tomorrow morning", {"prompt_string": "a question"}, [5, "tell"]]);
    let answers = told(&server, "/completion", &greedy(several.clone(), &json!({}))).await;
    let answers = answers.as_array().unwrap();
    assert_eq!((answers.len(), content(&answers[0]), &answers[1]["prompt"]), (3, content(&text), &json!("a question")));
    let indices: Vec<_> = answers.iter().map(|answer| answer["index"].clone()).collect();
    assert_eq!(indices, [0, 1, 2]);
    let told = pieces(&server, "/completion", &greedy(several, &json!({}))).await;
    for (index, answer) in answers.iter().enumerate() {
        let of_it = || told.iter().filter(|piece| piece["index"] == index);
        let text: String = of_it().map(|piece| piece["content"].as_str().unwrap()).collect();
        assert_eq!((json!(text), of_it().filter(|piece| piece["stop"] == true).count()), (content(answer), 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn biases_rule_tokens_out_by_id_and_by_text() {
    let server = Server::start().await;
    let free = told(&server, "/completion", &greedy(json!("tomorrow"), &json!({"return_tokens": true}))).await;
    // One that is a text by itself, and no other's.
    let mut found = None;
    for token in free["tokens"].as_array().unwrap() {
        let text = told(&server, "/detokenize", &json!({"tokens": [token]})).await["content"].clone();
        let text = text.as_str().unwrap().to_owned();
        if json!(ids(&server, &text).await) == json!([token]) {
            found = Some((token.as_u64().unwrap(), text));
            break;
        }
    }
    let (first, text) = found.expect("a token that is a text by itself");
    let text = text.as_str();
    for bias in [
        json!([[first, false]]),
        json!([[first, -1e9]]),
        json!([[text, false]]),
        json!({first.to_string(): false}),
        json!({text: -1e9}),
    ] {
        let body = greedy(json!("tomorrow"), &json!({"return_tokens": true, "logit_bias": bias}));
        let held = told(&server, "/completion", &body).await;
        assert!(!held["tokens"].as_array().unwrap().contains(&json!(first)), "{bias} {text:?}");
    }
    let wanted = ids(&server, "a").await[0];
    let body = greedy(json!("tomorrow"), &json!({"logit_bias": [["a", 1e9]], "return_tokens": true, "n_predict": 2}));
    assert_eq!(told(&server, "/completion", &body).await["tokens"], json!([wanted, wanted]));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_end_by_words_by_the_model_and_by_limits() {
    let acting = Acting::of("qwen3-dense", |_| {}).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    let ended =
        |answer: Value| (answer["content"].clone(), answer["stop_type"].clone(), answer["stopping_word"].clone());
    acting.say("one two three");
    let answer = told(&server, "/completion", &json!({"prompt": "x"})).await;
    assert_eq!(ended(answer), (json!("one two three"), json!("eos"), json!("")));
    acting.say("one two three");
    let answer = told(&server, "/completion", &json!({"prompt": "x", "stop": ["", " th"]})).await;
    assert_eq!(ended(answer), (json!("one two"), json!("word"), json!(" th")));
    acting.say("one two three");
    let answer = told(&server, "/completion", &json!({"prompt": "x", "n_predict": 0})).await;
    assert_eq!((&answer["tokens_predicted"], &answer["stop_type"]), (&json!(0), &json!("limit")));
    assert_eq!((&answer["content"], &answer["generation_settings"]["n_predict"]), (&json!(""), &json!(0)));
    acting.say("  if a:\n    b\nc = d");
    let body = json!({"prompt": "x", "n_indent": 2, "return_tokens": true});
    let answer = told(&server, "/completion", &body).await;
    assert_eq!(answer["tokens_predicted"], answer["tokens"].as_array().unwrap().len());
    assert_eq!(ended(answer), (json!("  if a:\n    b\n"), json!("limit"), json!("")));
    acting.say("  if a:\n    b\nc = d");
    let told = pieces(&server, "/completion", &body).await;
    let text: String = told.iter().map(|piece| piece["content"].as_str().unwrap()).collect();
    assert_eq!((text.as_str(), &told.last().unwrap()["has_new_line"]), ("  if a:\n    b\n", &json!(true)));
}

/// What is left out of an answer that takes too long is not computed either.
#[tokio::test(flavor = "multi_thread")]
async fn time_ends_an_answer_of_several_lines() {
    let acting = Acting::of("qwen3-dense", |_| {}).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    acting.speak_slowly(std::time::Duration::from_millis(20));
    acting.say(&"a\n".repeat(400));
    let body = json!({"prompt": "x", "t_max_predict_ms": 100, "response_fields": ["stop_type", "timings/predicted_n"]});
    let answer = told(&server, "/completion", &body).await;
    let predicted = answer["predicted_n"].as_u64().unwrap();
    assert!((1..400).contains(&predicted), "{answer}");
    assert_eq!(answer, json!({"stop_type": "limit", "predicted_n": predicted}));
    assert!(server.log().contains("length"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_hold_answers() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]});
    let body = json!({"prompt": "x", "json_schema": schema, "temperature": 0, "n_predict": 64});
    let answer = told(&server, "/completion", &body).await;
    assert_eq!(serde_json::from_str::<Value>(answer["content"].as_str().unwrap()).unwrap(), json!({"a": "b"}));
    let body = json!({"prompt": "x", "grammar": "root ::= \"yes\" | \"no\"", "n_predict": 64});
    let answer = told(&server, "/completion", &body).await;
    assert!(["yes", "no"].contains(&answer["content"].as_str().unwrap()), "{answer}");
    let free = json!({"prompt": "x", "grammar": "", "json_schema": null, "n_predict": 2});
    assert_eq!(told(&server, "/completion", &free).await["stop"], true);
    let unsupported = json!({"prompt": "x", "json_schema": {"type": "nothing"}});
    assert_eq!(refused(&server, "/completion", &unsupported).await["param"], "response_format.json_schema.schema");
}

#[tokio::test(flavor = "multi_thread")]
async fn infilling_puts_the_parts_in_their_marks() {
    let acting = Acting::of("qwen3-dense", |_| {}).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    acting.say("the middle");
    let body = json!({
        "input_prefix": "first\n", "prompt": "  se", "input_suffix": "\nthird", "stream": false, "n_predict": 32,
        "input_extra": [{"filename": "a.py", "text": "some <|fim_middle|> code", "time": 7}, {"text": "more"}],
        "samplers": ["top_k", "top_p", "infill"], "top_k": 40, "top_p": 0.99, "cache_prompt": true,
        "t_max_prompt_ms": 500, "t_max_predict_ms": 60000, "n_indent": 0, "stop": [],
        "response_fields": ["content", "prompt", "truncated"],
    });
    let answer = told(&server, "/infill", &body).await;
    let prompt = "<|repo_name|>myproject\n<|file_sep|>a.py\nsome <|fim_middle|> code<|file_sep|>tmp\nmore\
                  <|file_sep|>filename\n<|fim_prefix|>first\n  se<|fim_suffix|>\nthird<|fim_middle|>";
    assert_eq!(answer, json!({"content": "the middle", "prompt": prompt, "truncated": false}));
    let only = ids(&server, "<|fim_middle|>").await;
    assert_eq!(only.len(), 1, "the vocabulary has the mark");

    // As llama.vim warms the cache.
    let mut warm = body.clone();
    (warm["n_predict"], warm["response_fields"]) = (json!(0), json!([""]));
    assert_eq!(told(&server, "/infill", &warm).await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_nearest_to_the_place_is_kept() {
    let acting = Acting::of("qwen3-dense", |engine| engine.context = 128).await;
    let server = Server::around(acting.engine.clone(), |_| {}).await;
    acting.say("x");
    let (before, behind) = ("a".repeat(50_000) + "b", "c".to_owned() + &"d".repeat(50_000));
    let body = json!({"input_prefix": before, "input_suffix": behind, "n_predict": 16});
    let answer = told(&server, "/infill", &body).await;
    assert_eq!((&answer["truncated"], &answer["content"]), (&json!(true), &json!("x")));
    assert!(answer["tokens_evaluated"].as_u64().unwrap() <= 112, "{answer}");
    let prompt = answer["prompt"].as_str().unwrap();
    assert!(prompt.contains("ab<|fim_suffix|>cd"), "{prompt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vocabulary_without_marks_cannot_infill() {
    let server = Server::start().await;
    let error = refused(&server, "/infill", &json!({"input_prefix": "a", "input_suffix": "b"})).await;
    assert_eq!(error["type"], "not_supported_error");
    assert!(error["message"].as_str().unwrap().contains("/completion"), "{error}");
}

/// Every field with every wrong type: refused by its name, or passed over where it means nothing here.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_types_are_named() {
    let server = Server::start().await;
    let fields = [
        "prompt",
        "n_predict",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "seed",
        "stop",
        "n_probs",
        "stream",
        "cache_prompt",
        "id_slot",
        "return_tokens",
        "samplers",
        "logit_bias",
        "grammar",
        "json_schema",
        "timings_per_token",
        "repeat_penalty",
        "repeat_last_n",
        "presence_penalty",
        "frequency_penalty",
        "ignore_eos",
        "n_indent",
        "t_max_predict_ms",
        "response_fields",
        "typical_p",
        "mirostat",
        "dry_multiplier",
        "xtc_probability",
        "dynatemp_range",
        "lora",
        "n_cmpl",
        "model",
        "return_progress",
        "min_keep",
    ];
    let wrong = [json!({"no": "sense"}), json!([{"no": "sense"}]), json!("sense"), json!(true), json!(0.125), json!(7)];
    for field in fields {
        let mut named = 0;
        for value in &wrong {
            let mut body = json!({"prompt": "x", "n_predict": 1});
            body[field] = value.clone();
            let reply = server.post("/completion", &body).await;
            assert!([200, 400].contains(&reply.status), "{field} {value}: {}", reply.body);
            if reply.status == 400 {
                let error = reply.json()["error"].clone();
                let param = error["param"].as_str().unwrap_or_default();
                assert!(param.split(['.', '[']).next() == Some(field), "{field} {value}: {error}");
                named += 1;
            }
        }
        assert!(named >= 2, "{field}: {named}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_honoured_is_refused_and_the_rest_passed_over() {
    let server = Server::start().await;
    let cases = [
        (json!({"mirostat": 2}), "mirostat"),
        (json!({"typical_p": 0.5}), "typical_p"),
        (json!({"dry_multiplier": 0.8}), "dry_multiplier"),
        (json!({"xtc_probability": 0.5}), "xtc_probability"),
        (json!({"n_probs": 2, "post_sampling_probs": true}), "post_sampling_probs"),
        (json!({"n_probs": 129}), "n_probs"),
        (json!({"repeat_penalty": 0}), "repeat_penalty"),
        (json!({"lora": [{"id": 0, "scale": 1.0}]}), "lora"),
        (json!({"prompt": vec!["a"; 65]}), "prompt"),
        (json!({"logit_bias": [[5000, 1]]}), "logit_bias.5000"),
        (json!({"temperature": "hot"}), "temperature"),
    ];
    for (fields, param) in cases {
        let error = refused(&server, "/completion", &greedy(json!("x"), &fields)).await;
        assert_eq!((&error["param"], &error["type"]), (&json!(param), &json!("invalid_request_error")), "{error}");
    }
    let harmless = json!({
        "id_slot": -1, "cache_prompt": false, "n_keep": -1, "n_cache_reuse": 256, "typical_p": 1.0, "mirostat_tau": 5.0,
        "dry_base": 1.75, "dynatemp_exponent": 1.0, "top_p": 2, "top_k": -5, "temperature": -1, "seed": 4294967295_u32,
        "n_predict": 2, "speculative.n_max": 16, "xtc_threshold": 0.1, "post_sampling_probs": true, "unheard_of": {},
    });
    assert_eq!(told(&server, "/completion", &greedy(json!("x"), &harmless)).await["tokens_predicted"], 2);
    let long = json!({"prompt": vec![7; 5000]});
    let error = refused(&server, "/completion", &long).await;
    assert_eq!(error["type"], "exceed_context_size_error");
    assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(5000), &json!(4096)));
    let long = json!({"prompt": "ü".repeat(100_000)});
    assert_eq!(refused(&server, "/completion", &long).await["type"], "exceed_context_size_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_have_their_other_names() {
    let server = Server::start().await;
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2});
    assert_eq!(told(&server, "/chat/completions", &chat).await["object"], "chat.completion");
    assert_eq!(
        told(&server, "/responses", &json!({"input": "hi", "max_output_tokens": 2})).await["object"],
        "response"
    );
    assert_eq!(server.get("/models").await.json(), server.get("/v1/models").await.json());
    assert_eq!(server.get("/v1/health").await.json()["status"], "ok");
    let counted = told(&server, "/v1/chat/completions/input_tokens", &chat).await;
    assert_eq!(counted["input_tokens"], told(&server, "/apply-template", &chat).await["n_tokens"]);
    let control = json!({"id": "x", "action": "reasoning_end"});
    assert_eq!(told(&server, "/v1/chat/completions/control", &control).await["success"], false);
    assert_eq!(server.get("/lora-adapters").await.json(), json!([]));
    assert_eq!(told(&server, "/lora-adapters", &json!([])).await["success"], true);
    for path in ["/embedding", "/embeddings", "/v1/embeddings", "/rerank", "/v1/reranking", "/slots/0?action=erase"] {
        let reply = server.post(path, &json!({"input": "x"})).await;
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (400, &json!("invalid_request_error")), "{path}");
        assert!(reply.json()["error"]["code"] == "not_supported", "{path}: {}", reply.body);
    }
}

/// On OpenAI's routes llama.cpp's names hold too.
#[tokio::test(flavor = "multi_thread")]
async fn its_names_hold_on_other_routes() {
    let server = Server::start().await;
    let same = |names: Value| {
        let mut body = json!({"prompt": "tomorrow", "seed": 3, "temperature": 1.5, "ignore_eos": true, "top_k": 0});
        body.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
        body
    };
    let own = same(json!({"max_tokens": 40, "repetition_penalty": 1.9, "penalty_window": 7}));
    let theirs = same(json!({"n_predict": 40, "repeat_penalty": 1.9, "repeat_last_n": 7}));
    let text = |answer: Value| answer["choices"][0]["text"].clone();
    let first = text(told(&server, "/v1/completions", &own).await);
    assert_eq!(first, text(told(&server, "/v1/completions", &theirs).await));
    assert_ne!(first, text(told(&server, "/v1/completions", &same(json!({"max_tokens": 40}))).await));
}
