//! What the server tells of its own parts.

use bantam_graph::json::from_slice;
use serde_json::{Value, json};

use crate::server::{Server, until};

fn fixture(model: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(model).join("model.gguf")
}

fn child<'a>(actor: &'a Value, name: &str) -> &'a Value {
    let mut children = actor["children"].as_array().unwrap().iter();
    children.find(|child| child["name"] == name).unwrap_or_else(|| panic!("no {name}: {actor}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_of_actors_is_told_from_the_root_down() {
    let server = Server::with(|engine, _| engine.parallel = 2).await;
    let root = server.get("/actors").await.json();
    assert_eq!((&root["name"], &root["state"], &root["restarts"]), (&json!("root"), &json!("running"), &json!(0)));
    let model = child(child(&root, "registry"), "model");
    let names: Vec<_> = model["children"].as_array().unwrap().iter().map(|child| &child["name"]).collect();
    assert_eq!(names, ["scheduler", "kv", "executor", "experts", "turns", "slot 0", "slot 1"]);
    for actor in model["children"].as_array().unwrap() {
        assert_eq!(
            (&actor["state"], &actor["restarts"], &actor["failures"]),
            (&json!("running"), &json!(0), &json!(0))
        );
        assert_eq!((&actor["last_failure"], &actor["children"]), (&Value::Null, &json!([])));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn actors_are_told_while_there_is_no_model_yet() {
    let server = Server::loading(|_, _| {}).await;
    let root = server.get("/actors").await.json();
    assert_eq!(child(&root, "registry")["state"], "running");
    until("the model is there", || async {
        server.get("/actors").await.json()["children"][0]["children"][0]["name"] == "model"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_adds_up_and_what_a_sequence_holds_becomes_cache() {
    let server = Server::with(|engine, _| engine.parallel = 2).await;
    let before = server.get("/memory").await.json();
    let ledger = &before["ledger"];
    let entries = ledger["entries"].as_array().unwrap();
    assert_eq!((&entries[0]["what"], &entries[0]["owner"]), (&json!("weights"), &json!("llama:0")));
    let sum: u64 = entries.iter().map(|entry| entry["bytes"].as_u64().unwrap()).sum();
    assert_eq!(ledger["held_bytes"], sum);
    if cfg!(target_os = "linux") {
        assert_eq!(ledger["total_bytes"].as_u64().unwrap(), sum + ledger["free_bytes"].as_u64().unwrap());
        assert!(before["machine"]["process_bytes"].as_u64().unwrap() > 0);
    }
    assert_eq!((&before["state"]["held_bytes"], &before["state"]["cached_bytes"]), (&json!(0), &json!(0)));
    assert_eq!((&before["cache_file_bytes"], &before["stored_responses_bytes"]), (&Value::Null, &json!(0)));

    let asked = json!({"model": "local", "input": "Hello", "max_output_tokens": 4});
    assert_eq!(server.post("/v1/responses", &asked).await.status, 200);
    until("what was computed is cached", || async {
        let state = server.get("/memory").await.json()["state"].clone();
        state["held_bytes"] == 0 && state["cached_bytes"].as_u64().unwrap() > 0
    })
    .await;
    let after = server.get("/memory").await.json();
    assert!(after["stored_responses_bytes"].as_u64().unwrap() > 0);
    assert_eq!(after["ledger"]["entries"], before["ledger"]["entries"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_graph_is_whole_and_every_value_has_its_type() {
    for model in ["llama-dense", "qwen35-dense", "deepseek4-within"] {
        let server = Server::with(|engine, _| engine.model = fixture(model)).await;
        let told = server.get("/graph").await;
        assert_eq!(told.header("content-type"), Some("application/json"));
        let told = told.json();
        let graph = from_slice(told["graph"].to_string().as_bytes()).unwrap();
        assert!(graph.nodes.len() > 10);
        for node in &graph.nodes {
            for result in node.op.results(&node.name) {
                let ty = &told["types"]["graph"][&result];
                let has_rows = ty["rows"].is_string() || ty["rows"].is_object();
                // What stores state yields nothing.
                let yields = !matches!(node.op, bantam_graph::Op::Store { .. });
                assert!(!yields || has_rows && ty["width"].as_u64().is_some_and(|width| width > 0), "{result}: {ty}");
            }
        }
        assert_eq!(told["types"]["graph"][&graph.output]["rows"], "logits", "{model}");
        assert_eq!(told["draft"].is_null(), told["types"]["draft"].is_null(), "{model}");
        let tensors = told["tensors"].as_object().unwrap();
        assert!(tensors.values().all(|tensor| tensor["bytes"].as_u64().is_some_and(|bytes| bytes > 0)));
        assert!(tensors.contains_key("token_embd.weight"), "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inside_is_for_those_who_have_the_key() {
    let server = Server::with(|_, config| config.api_keys = vec!["k".into()]).await;
    for path in ["/actors", "/memory", "/graph"] {
        assert_eq!(server.get(path).await.status, 401, "{path}");
    }
}
