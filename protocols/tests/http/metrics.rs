//! What `/metrics`, `/queue` and `/ready` tell.

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{request, send};
use crate::exposition::Exposition;
use crate::server::{Server, until};

async fn scrape(server: &Server) -> Exposition {
    let reply = server.get("/metrics").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/plain; version=0.0.4; charset=utf-8")));
    Exposition::parse(&reply.body)
}

/// The names that routers and dashboards made for vLLM go by.
#[tokio::test(flavor = "multi_thread")]
async fn what_routers_go_by_is_there_before_the_first_request() {
    let server = Server::with(|engine, _| engine.model_name = "a \"b\"".into()).await;
    let exposition = scrape(&server).await;
    for (name, kind) in [
        ("vllm:num_requests_waiting", "gauge"),
        ("vllm:num_requests_running", "gauge"),
        ("vllm:kv_cache_usage_perc", "gauge"),
        ("vllm:gpu_cache_usage_perc", "gauge"),
        ("vllm:cache_config_info", "gauge"),
        ("vllm:prefix_cache_queries_total", "counter"),
        ("vllm:prefix_cache_hits_total", "counter"),
        ("vllm:num_preemptions_total", "counter"),
        ("vllm:prompt_tokens_total", "counter"),
        ("vllm:generation_tokens_total", "counter"),
        ("vllm:request_success_total", "counter"),
        ("vllm:time_to_first_token_seconds", "histogram"),
        ("vllm:inter_token_latency_seconds", "histogram"),
        ("vllm:time_per_output_token_seconds", "histogram"),
        ("vllm:e2e_request_latency_seconds", "histogram"),
        ("vllm:request_prompt_tokens", "histogram"),
        ("vllm:request_generation_tokens", "histogram"),
    ] {
        let family = exposition.family(name);
        assert_eq!(family.kind, kind, "{name}");
        for labels in family.all_labels() {
            assert_eq!((labels["model_name"].as_str(), labels["engine"].as_str()), (r#"a \"b\""#, "0"), "{name}");
        }
    }
    let cache = exposition.family("vllm:cache_config_info").labels();
    assert!(cache["block_size"].parse::<usize>().unwrap() > 0 && cache["num_gpu_blocks"].parse::<u64>().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_tokens_and_times_are_those_of_the_requests() {
    let server = Server::start().await;
    let prompt: Vec<u32> = (5..125).collect();
    let ask = |tokens: &[u32]| {
        json!({"prompt": tokens, "max_tokens": 20, "ignore_eos": true, "stream": true,
        "stream_options": {"include_usage": true}})
    };
    let mut found = 0;
    for body in [ask(&prompt), ask(&prompt), ask(&prompt[..100])] {
        let reply = server.post("/v1/completions", &body).await;
        let events = reply.events();
        let usage: serde_json::Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
        found += usage["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    }
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "a", "top_p": 7})).await.status, 400);
    let told = scrape(&server).await;
    let all = |name: &str| told.value(name, &[]) as u64;
    assert!(found > 100, "{found}");
    assert_eq!(all("bantam_prefill_rows_computed_total"), 340 - found);
    assert_eq!(all("bantam_decode_rows_computed_total"), 3 * 19, "the last token of an answer is not computed");
    assert_eq!(all("bantam_rows_computed_total"), 340 - found + 57);
    assert_eq!(all("bantam_rows_computed_total"), server.engine.status().await.rows);
    for (name, expected) in [
        ("vllm:prefix_cache_queries_total", 340),
        ("vllm:prefix_cache_hits_total", found),
        ("vllm:prompt_tokens_total", 340),
        ("vllm:generation_tokens_total", 60),
        ("vllm:request_prompt_tokens_sum", 340),
        ("vllm:request_generation_tokens_sum", 60),
        ("vllm:e2e_request_latency_seconds_count", 3),
        ("vllm:time_to_first_token_seconds_count", 3),
        ("vllm:num_requests_running", 0),
        ("bantam_steps_failed_total", 0),
    ] {
        assert_eq!(all(name), expected, "{name}");
    }
    assert_eq!(told.value("vllm:request_success_total", &[("finished_reason", "length")]) as u64, 3);
    assert_eq!(told.value("vllm:request_success_total", &[("finished_reason", "stop")]) as u64, 0);
    assert_eq!(told.value("bantam_error_responses_total", &[("status", "400")]) as u64, 1);
    let seconds = |name: &str| told.value(&format!("{name}_seconds_sum"), &[]);
    let (whole, first) = (seconds("vllm:e2e_request_latency"), seconds("vllm:time_to_first_token"));
    let between = seconds("vllm:inter_token_latency");
    assert!(whole > first && first > 0.0 && whole >= between && between > 0.0, "{whole} {first} {between}");
    assert!((1..=57).contains(&all("vllm:inter_token_latency_seconds_count")));
    assert!(told.value("bantam_step_seconds_total", &[]) > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_and_who_waits_is_counted() {
    let server = Server::with(|engine, _| engine.parallel = 1).await;
    let body = json!({"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true}).to_string();
    let endless = request("POST", "/v1/completions", &[], body.as_bytes());
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    one.write_all(&endless).await.unwrap();
    until("it runs", || async { server.engine.status().await.running() == 1 }).await;
    two.write_all(&endless).await.unwrap();
    until("one waits", || async { server.get("/queue").await.json().as_array().unwrap().len() == 1 }).await;
    let told = scrape(&server).await;
    assert_eq!(told.value("vllm:num_requests_running", &[]) as u64, 1);
    assert_eq!(told.value("vllm:num_requests_waiting", &[]) as u64, 1);
    assert!(told.value("vllm:kv_cache_usage_perc", &[]) > 0.0);
    assert_eq!(told.value("bantam_slots", &[("state", "idle")]) as u64, 0);
    let (queue, slots) = (server.get("/queue").await.json(), server.get("/slots").await.json());
    assert_eq!(queue[0]["id_task"].as_u64().unwrap(), slots[0]["id_task"].as_u64().unwrap() + 1);
    assert!(queue[0]["prompt_tokens"].as_u64().unwrap() > 0 && queue[0]["waiting_ms"].is_u64(), "{queue}");
    assert!(slots[0]["in_slot_ms"].is_u64() && slots[0]["waits_for"].is_null(), "{slots}");
    let health = server.get("/health").await.json();
    assert_eq!((&health["queue"], &health["requests_queued"]), (&json!(1), &json!(1)));
    assert!(health["last_step_ms_ago"].is_u64() && health["kv_usage"].as_f64().unwrap() > 0.0, "{health}");
    drop((one, two));
    until("both have left", || async {
        scrape(&server).await.value("vllm:request_success_total", &[("finished_reason", "abort")]) as u64 == 2
    })
    .await;
}

/// The first step takes long: all of a long prompt is in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_does_not_wait_for_the_step() {
    let server = Server::with(|engine, _| engine.batch = 4096).await;
    let prompt: Vec<usize> = (0..4000).map(|i| 5 + i % 400).collect();
    let body = json!({"prompt": prompt, "max_tokens": 1}).to_string();
    let address = server.address;
    let asked = tokio::spawn(async move { send(address, "POST", "/v1/completions", &[], body.as_bytes()).await });
    until("the step is computed", || async { server.engine.status().await.step_running.is_some() }).await;
    let told = scrape(&server).await;
    assert_eq!(told.value("bantam_steps_total", &[]) as u64, 0, "it was told while the first step was computed");
    assert!(told.value("bantam_step_running_seconds", &[]) > 0.0);
    assert_eq!(told.value("bantam_slots", &[("state", "prefill")]) as u64, 1);
    assert!(!told.has("bantam_last_step_age_seconds"), "no step has ended");
    assert_eq!(asked.await.unwrap().status, 200);
    let told = scrape(&server).await;
    assert_eq!(told.value("bantam_rows_computed_total", &[]) as u64, 4000);
    assert!(told.value("bantam_last_step_age_seconds", &[]) >= 0.0);
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_ready_from_the_end_of_loading_to_the_begin_of_draining() {
    let server = Server::loading(|_, _| {}).await;
    let early = server.get("/ready").await;
    if early.status == 503 {
        assert_eq!((&early.json()["status"], early.header("retry-after")), (&json!("loading"), Some("2")));
    }
    until("it is ready", || async { server.get("/ready").await.status == 200 }).await;
    let (address, engine) = (server.address, server.engine.clone());
    let body = json!({"prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true}).to_string();
    let streaming = tokio::spawn(async move { send(address, "POST", "/v1/completions", &[], body.as_bytes()).await });
    until("the stream runs", || async { engine.status().await.running() == 1 }).await;
    let ended = server.stop();
    until("it is not ready", || async { send(address, "GET", "/ready", &[], b"").await.status == 503 }).await;
    let draining = send(address, "GET", "/ready", &[], b"").await;
    assert_eq!((&draining.json()["status"], draining.header("retry-after")), (&json!("draining"), Some("2")));
    assert_eq!(streaming.await.unwrap().events().last().unwrap(), "[DONE]");
    ended.await.unwrap().unwrap();
}

/// `docs/metrics.md` lists every name as it is told, with its type and meaning.
#[tokio::test(flavor = "multi_thread")]
async fn the_documentation_lists_all_names() {
    let server = Server::start().await;
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 3, "ignore_eos": true})).await;
    let families = scrape(&server).await.families;
    let row = |family: &crate::exposition::Family| {
        format!("| `{}` | {} | {} |", family.name, family.kind, family.help.trim_end_matches('.'))
    };
    let told: Vec<_> = families.iter().map(row).collect();
    let document = include_str!("../../../docs/metrics.md");
    let written: Vec<_> = document.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(written, told, "docs/metrics.md should have these rows:\n{}", told.join("\n"));
}
