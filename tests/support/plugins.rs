//! Plugins for tests: in C and in WebAssembly text, well or broken on purpose, and what the command says of them.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::support::{bantam, model, stderr, stdout};

/// A plugin in C whose functions begin with these statements and then give these answers.
pub(crate) struct Source<'a> {
    pub(crate) before_all: &'a str,
    pub(crate) abi: &'a str,
    pub(crate) describe: &'a str,
    pub(crate) description: &'a str,
    pub(crate) build: &'a str,
    pub(crate) answer: &'a str,
}

pub(crate) const DESCRIPTION: &str = r#"{"bantam_plugin":0,"name":"test","version":"1.0","architectures":["llama"]}"#;

/// One that is well and refuses every checkpoint.
pub(crate) const WELL: Source<'_> = Source {
    before_all: "",
    abi: "0",
    describe: "",
    description: DESCRIPTION,
    build: "",
    answer: r#"{"bantam_plugin":0,"error":{"message":"no such model here"}}"#,
};

impl Source<'_> {
    pub(crate) fn text(&self) -> String {
        let Source { before_all, abi, describe, description, build, answer } = self;
        format!(
            r#"
            #define _GNU_SOURCE
            #include <stddef.h>
            #include <stdint.h>
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            #include <signal.h>
            #include <unistd.h>
            typedef struct {{ uint8_t *data; size_t len; }} bantam_bytes;
            {before_all}
            static int32_t say(bantam_bytes *to, const char *text) {{
                to->data = (uint8_t *)text; to->len = strlen(text); return 0;
            }}
            uint32_t bantam_plugin_abi(void) {{ return {abi}; }}
            int32_t bantam_plugin_describe(bantam_bytes *to) {{ {describe} return say(to, {description:?}); }}
            int32_t bantam_plugin_build(const uint8_t *of, size_t len, bantam_bytes *to) {{
                (void)of; (void)len; {build} return say(to, {answer:?});
            }}
            void bantam_plugin_free(bantam_bytes *bytes) {{ (void)bytes; }}
            "#
        )
    }

    /// Compiles it to a library of this name.
    pub(crate) fn compile(&self, directory: &Path, name: &str) -> PathBuf {
        compile(&self.text(), directory, name)
    }
}

pub(crate) fn compile(text: &str, directory: &Path, name: &str) -> PathBuf {
    let sources = tempfile::tempdir().unwrap();
    let source = sources.path().join("plugin.c");
    fs::write(&source, text).unwrap();
    let library = directory.join(format!("{name}.{}", std::env::consts::DLL_EXTENSION));
    // Whole at once: somebody may be looking.
    let made = directory.join(format!("{name}.new"));
    let output = Command::new("cc").args(["-shared", "-fPIC", "-O0", "-w", "-o"]).arg(&made).arg(&source).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    fs::rename(made, &library).unwrap();
    library
}

/// A folder that nobody else may write to, whatever the user's mask is.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

/// What `bantam plugins` says of each file, by its name without extension.
pub(crate) fn listed(directory: &Path) -> Vec<(String, Value)> {
    let output = bantam(&["plugins", "--json", "--plugins", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let found: Vec<Value> = serde_json::from_str(&stdout(&output)).unwrap();
    let named = |found: Value| {
        let file = PathBuf::from(found["file"].as_str().unwrap());
        (file.file_stem().unwrap().to_str().unwrap().to_owned(), found)
    };
    found.into_iter().map(named).collect()
}

/// Whether a message speaks of JSON, not of this program's types.
pub(crate) fn in_words(told: &str) -> bool {
    let theirs = ["usize", "u32", "f64", "struct", "variant", "untagged", "ValueType", "Some", "None", "Tokens"];
    told.split(|c: char| !c.is_alphanumeric()).all(|word| !theirs.contains(&word))
}

/// A graph that would do for a vocabulary of this size and width, with a node or a key changed.
pub(crate) fn graph(vocab: usize, width: usize, output: &str, extra: &Value) -> Value {
    let mut graph = json!({
        "name": "llama",
        "weights": [{"name": "t", "shape": [vocab, width], "expr": {"tensor": "token_embd.weight"}}],
        "states": [],
        "nodes": [
            {"name": "ids", "op": {"input": {"source": "token_ids"}}},
            {"name": "x", "op": {"embed": {"ids": "ids", "table": "t"}}},
            {"name": "rows", "op": {"select": {"x": "x", "to": "logits"}}},
            {"name": "logits", "op": {"linear": {"x": "rows", "weight": "t"}}},
        ],
        "output": output,
    });
    for (key, value) in extra.as_object().unwrap() {
        graph[key] = value.clone();
    }
    graph
}

pub(crate) fn answer(graph: &Value) -> String {
    let chat = json!({"stop_tokens": []});
    let model = json!({"architecture": "llama", "config": {}, "context_length": 64, "text": graph, "chat": chat});
    json!({"bantam_plugin": 0, "model": model}).to_string()
}

/// Extents of the table in the fixture.
pub(crate) fn table() -> (usize, usize) {
    let file = bantam_gguf::GgufFile::open(model("llama-dense")).unwrap();
    let shape = file.tensor("token_embd.weight").unwrap().shape.clone();
    (usize::try_from(shape[1]).unwrap(), usize::try_from(shape[0]).unwrap())
}

/// Functions of a plugin with the op `double`, which returns `{code}` and whose rows are `{width}` wide.
pub(crate) fn double(width: usize, code: i32) -> String {
    double_told(&json!({"bantam_plugin": 0, "width": width}), code)
}

/// The same, of which this is told.
pub(crate) fn double_told(told: &Value, code: i32) -> String {
    let told = told.to_string();
    format!(
        r#"
        typedef struct {{
            size_t rows, operands; const float *const *x; const size_t *widths;
            size_t weights; const float *const *weight; const size_t *lengths; float *out; size_t width;
        }} bantam_op_rows;
        int32_t bantam_plugin_op_infer(const uint8_t *of, size_t len, bantam_bytes *to) {{
            static const char text[] = {told:?};
            to->data = (uint8_t *)text; to->len = sizeof text - 1;
            return memmem(of, len, "double", 6) == NULL;
        }}
        int32_t bantam_plugin_op_open(const uint8_t *of, size_t len, void **op) {{
            *op = malloc(1); return memmem(of, len, "\"how\":\"twice\"", 13) == NULL;
        }}
        int32_t bantam_plugin_op_run(const void *op, const bantam_op_rows *call) {{
            for (size_t i = 0; i < call->rows * call->width; i++) call->out[i] = 2 * call->x[0][i];
            return {code};
        }}
        void bantam_plugin_op_close(void *op) {{ free(op); }}
        "#
    )
}

/// The answer with a graph in which this op doubles the rows.
pub(crate) fn doubled(op: &Value) -> String {
    let (vocab, width) = table();
    let mut graph = graph(vocab, width, "logits", &json!({}));
    let nodes = graph["nodes"].as_array_mut().unwrap();
    nodes.insert(2, json!({"name": "twice", "op": op}));
    nodes[3]["op"]["select"]["x"] = json!("twice");
    answer(&graph)
}

pub(crate) fn custom(width: usize) -> Value {
    json!({"custom": {"op": "double", "x": ["x"], "attributes": {"how": "twice"}, "width": width}})
}

/// A plugin in WebAssembly whose functions begin with these instructions and then give these answers.
pub(crate) struct Wasm<'a> {
    pub(crate) fields: &'a str,
    pub(crate) pages: u32,
    pub(crate) describe: &'a str,
    pub(crate) answer: &'a str,
}

pub(crate) const WELL_WASM: Wasm<'_> = Wasm { fields: "", pages: 16, describe: "", answer: "" };

impl Wasm<'_> {
    pub(crate) fn write(&self, directory: &Path, name: &str) {
        let Wasm { fields, pages, describe, answer } = self;
        let data = |text: &str| text.bytes().map(|byte| format!("\\{byte:02x}")).collect::<String>();
        let say = |at: usize, text: &str| {
            let length = text.len();
            format!(
                "(i32.store (local.get 0) (i32.const {at})) (i32.store offset=4 (local.get 0) (i32.const {length}))"
            )
        };
        let (at_description, at_answer) = (1024, 4096);
        let text = format!(
            r#"(module {fields}
              (memory (export "memory") {pages})
              (global $top (mut i32) (i32.const 524288))
              (data (i32.const {at_description}) "{}") (data (i32.const {at_answer}) "{}")
              (func (export "bantam_plugin_abi") (result i32) (i32.const 0))
              (func (export "bantam_plugin_alloc") (param i32) (result i32)
                (global.get $top) (global.set $top (i32.add (global.get $top) (local.get 0))))
              (func (export "bantam_plugin_describe") (param i32) (result i32) {describe} {} (i32.const 0))
              (func (export "bantam_plugin_build") (param i32 i32 i32) (result i32)
                (local.set 0 (local.get 2)) {} (i32.const 0))
              (func (export "bantam_plugin_free") (param i32)))"#,
            data(DESCRIPTION),
            data(answer),
            say(at_description, DESCRIPTION),
            say(at_answer, answer),
        );
        fs::write(directory.join(format!("{name}.wasm")), wat::parse_str(&text).unwrap()).unwrap();
    }
}
