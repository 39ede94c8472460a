//! Plugins in WebAssembly: within bounds, with the same graphs.

use serde_json::json;

use crate::{
    plugins::{Source, WELL, WELL_WASM, Wasm, answer, folder, graph, listed, table},
    support::{bantam, model, stderr, stdout},
};

#[test]
fn webassembly_is_run_within_bounds() {
    let folder = folder();
    let well = WELL_WASM;
    well.write(folder.path(), "well");
    let bad = [
        ("imports", Wasm { fields: r#"(import "env" "system" (func))"#, ..well }, "imports `env.system`"),
        ("traps", Wasm { describe: "unreachable", ..well }, "stopped"),
        ("loops", Wasm { describe: "(loop $l (br $l))", ..well }, "stopped"),
        ("recurses", Wasm { describe: "(drop (call 2 (local.get 0)))", ..well }, "stopped"),
        ("starts", Wasm { fields: "(func $s (loop $l (br $l))) (start $s)", ..well }, "cannot be loaded"),
        ("huge", Wasm { pages: 60_000, ..well }, "cannot be loaded"),
        (
            "grows",
            Wasm {
                describe: "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) unreachable",
                ..well
            },
            "stopped",
        ),
        (
            "outside",
            Wasm { describe: "(i32.store (local.get 0) (i32.const -9)) (return (i32.const 0))", ..well },
            "outside of its memory",
        ),
        ("empty", Wasm { describe: "(return (i32.const 0))", ..well }, "empty"),
        ("code", Wasm { describe: "(return (i32.const 7))", ..well }, "returned 7"),
    ];
    for (name, plugin, _) in &bad {
        plugin.write(folder.path(), name);
    }
    let found = listed(folder.path());
    for (name, _, word) in &bad {
        let (_, told) = found.iter().find(|(found, _)| found == name).unwrap();
        assert!(told["error"].as_str().unwrap().contains(word), "{told}, expected {word}");
    }
    let (_, told) = found.iter().find(|(name, _)| name == "well").unwrap();
    assert_eq!(told["name"], "test", "{told}");
}

#[test]
fn a_graph_from_webassembly_is_run() {
    let (vocab, width) = table();
    let folder = folder();
    let answer = answer(&graph(vocab, width, "logits", &json!({})));
    Wasm { answer: &answer, ..WELL_WASM }.write(folder.path(), "plain");
    let arguments = ["probe", &model("llama-dense"), "--tokens", "1,2", "--greedy", "2", "--plugins"];
    let by_wasm = bantam(&[&arguments[..], &[folder.path().to_str().unwrap()]].concat());
    assert!(by_wasm.status.success(), "{}", stderr(&by_wasm));
    let other = self::folder();
    Source { answer: &answer, ..WELL }.compile(other.path(), "plain");
    let native = bantam(&[&arguments[..], &[other.path().to_str().unwrap()]].concat());
    assert_eq!(stdout(&by_wasm), stdout(&native));
}
