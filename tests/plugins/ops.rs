//! Ops that plugins bring: where they run, and what happens when they fail.

use serde_json::{Value, json};

use crate::{
    plugins::{Source, WELL, custom, double, doubled, folder, table},
    support::{Server, bantam, fail, model, stderr, stdout},
};

#[test]
fn ops_of_plugins_run_where_they_are_allowed() {
    let (_, width) = table();
    let functions = double(width, 0);
    let [by_plugin, built_in] = [custom(width), json!({"scale": {"x": "x", "factor": 2.0}})].map(|op| {
        let folder = folder();
        let answer = doubled(&op);
        Source { before_all: &functions, answer: &answer, ..WELL }.compile(folder.path(), "double");
        folder
    });
    let run = |folder: &tempfile::TempDir, more: &[&str]| {
        let directory = folder.path().to_str().unwrap();
        let arguments = ["probe", &model("llama-dense"), "--tokens", "1,2,3", "--check", "all", "--plugins", directory];
        bantam(&[&arguments[..], more].concat())
    };
    let refused = run(&by_plugin, &[]);
    assert!(stderr(&refused).contains("--allow-plugin-ops"), "{}", stderr(&refused));
    let (allowed, expected) = (run(&by_plugin, &["--allow-plugin-ops"]), run(&built_in, &[]));
    assert!(allowed.status.success(), "{}", stderr(&allowed));
    let of = |output| serde_json::from_str::<Value>(&stdout(&output)).unwrap();
    let (allowed, expected) = (of(allowed), of(expected));
    assert_eq!(allowed["greedy"], expected["greedy"]);
    // How often steps were shared is a matter of time.
    let differences = |report: &Value| -> Vec<(String, Value)> {
        let checks = report["checks"].as_object().unwrap().iter();
        checks.map(|(name, check)| (name.clone(), check["max_diff"].clone())).collect()
    };
    assert_eq!(differences(&allowed), differences(&expected));
}

#[test]
fn what_is_wrong_with_an_op_is_told() {
    let (_, width) = table();
    let functions = double(width, 0);
    let bad = |answer: &str, before_all: &str| {
        let folder = folder();
        Source { answer, before_all, ..WELL }.compile(folder.path(), "double");
        let directory = folder.path().to_str().unwrap();
        let arguments = ["probe", &model("llama-dense"), "--tokens", "1", "--family", "test", "--allow-plugin-ops"];
        fail(1, &[&arguments[..], &["--plugins", directory]].concat())
    };
    let narrow = double(width - 1, 0);
    let unknown = json!({"custom": {"op": "triple", "x": ["x"], "width": width}});
    let shy = json!({"custom": {"op": "double", "x": ["x"], "attributes": {"how": "else"}, "width": width}});
    for (op, before_all, word) in [
        (&custom(width), narrow.as_str(), "yields rows of"),
        (&unknown, &functions, "returned 1"),
        (&shy, &functions, "bantam_plugin_op_open returned 1"),
        (&custom(width), "", "bantam_plugin_op_infer"),
    ] {
        let told = bad(&doubled(op), before_all);
        assert!(told.contains(word), "{told}\nexpected {word}");
    }
}

#[test]
fn an_op_that_fails_fails_its_request() {
    let (_, width) = table();
    let folder = folder();
    let (functions, answer) = (double(width, 4), doubled(&custom(width)));
    Source { before_all: &functions, answer: &answer, ..WELL }.compile(folder.path(), "double");
    let directory = folder.path().to_str().unwrap();
    let server = Server::start(&[&model("llama-dense"), "--allow-plugin-ops", "--plugins", directory]);
    for _ in 0..3 {
        let (status, told) = server.post("/v1/completions", &json!({"model": "local", "prompt": "a", "max_tokens": 2}));
        assert_eq!(status, 500, "{told}");
        let told = told.to_string();
        assert!(told.contains("`double` of the plugin `test` returned 4"), "{told}");
        assert!(!told.contains(directory), "a path is nobody's business: {told}");
    }
    assert_eq!(server.get("/ready").0, 200);
    std::fs::write(folder.path().join("last.so"), "no library").unwrap();
    assert_eq!(server.get("/v1/models").0, 200);
    let lines = server.lines_before("/last.so");
    let of_the_op = |line: &&String| line.contains("returned 4") && line.contains("/double.");
    assert_eq!(lines.iter().filter(of_the_op).count(), 1, "{lines:#?}");
}
