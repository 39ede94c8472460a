//! Family plugins through the binary: bad ones are refused, one line each, and the rest goes on.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use support::{Server, bantam, command, fail, model, stderr, stdout};

/// A plugin in C whose functions begin with these statements and then give these answers.
struct Source<'a> {
    before_all: &'a str,
    abi: &'a str,
    describe: &'a str,
    description: &'a str,
    build: &'a str,
    answer: &'a str,
}

const DESCRIPTION: &str = r#"{"bantam_plugin":0,"name":"test","version":"1.0","architectures":["llama"]}"#;

/// One that is well and refuses every checkpoint.
const WELL: Source<'_> = Source {
    before_all: "",
    abi: "0",
    describe: "",
    description: DESCRIPTION,
    build: "",
    answer: r#"{"bantam_plugin":0,"error":{"message":"no such model here"}}"#,
};

impl Source<'_> {
    fn text(&self) -> String {
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
    fn compile(&self, directory: &Path, name: &str) -> PathBuf {
        compile(&self.text(), directory, name)
    }
}

fn compile(text: &str, directory: &Path, name: &str) -> PathBuf {
    let sources = tempfile::tempdir().unwrap();
    let source = sources.path().join("plugin.c");
    fs::write(&source, text).unwrap();
    let library = directory.join(format!("{name}.{}", std::env::consts::DLL_EXTENSION));
    let output = Command::new("cc").args(["-shared", "-fPIC", "-O0", "-w", "-o"]).arg(&library).arg(&source).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    library
}

/// A folder that nobody else may write to, whatever the user's mask is.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

/// What `bantam plugins` says of each file, by its name without extension.
fn listed(directory: &Path) -> Vec<(String, Value)> {
    let output = bantam(&["plugins", "--json", "--plugins", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let found: Vec<Value> = serde_json::from_str(&stdout(&output)).unwrap();
    let named = |found: Value| {
        let file = PathBuf::from(found["file"].as_str().unwrap());
        (file.file_stem().unwrap().to_str().unwrap().to_owned(), found)
    };
    found.into_iter().map(named).collect()
}

/// Plugins that cannot say what they are, and a word out of the reason.
fn speechless() -> Vec<(&'static str, Source<'static>, &'static str)> {
    let with = |describe| Source { describe, ..WELL };
    let saying = |description| Source { description, ..WELL };
    vec![
        ("abi", Source { abi: "77", ..WELL }, "version 77"),
        ("abi_hangs", Source { abi: "(pause(), 0)", ..WELL }, "within"),
        (
            "constructor",
            Source { before_all: "__attribute__((constructor)) void f(void) { abort(); }", ..WELL },
            "signal",
        ),
        ("crash", with("*(volatile int *)8 = 1;"), "signal"),
        ("abort", with("abort();"), "signal"),
        ("stack", with("return bantam_plugin_describe(to) + bantam_plugin_abi();"), "signal"),
        ("exit", with("exit(0);"), "exit status: 0"),
        ("exit_with_words", with(r#"fprintf(stderr, "out of cheese\n"); exit(3);"#), "out of cheese"),
        ("code", with("return 5;"), "returned 5"),
        ("hang", with("for (;;) pause();"), "within"),
        ("busy", with("for (;;);"), "within"),
        ("deaf", with("close(0); close(1); close(2); signal(SIGTERM, SIG_IGN); for (;;) pause();"), "within"),
        ("children", with("for (;;) if (fork() == 0) for (;;) pause(); else usleep(50000);"), "within"),
        ("memory", with("for (size_t n = 1;; n++) memset(malloc(n << 24), 1, n << 24);"), "signal"),
        ("null", with("to->data = 0; to->len = 9; return 0;"), "empty"),
        ("long", with("to->data = (uint8_t *)to; to->len = (size_t)1 << 60; return 0;"), "bytes long"),
        ("empty", saying(""), "empty"),
        ("words", saying("hello"), "JSON"),
        ("array", saying("[]"), "bantam_plugin"),
        ("bare", saying("{}"), "bantam_plugin"),
        ("newer", saying(r#"{"bantam_plugin":9,"name":"x","version":"1","architectures":["llama"]}"#), "version 9"),
        ("more", saying(r#"{"bantam_plugin":0,"name":"x","version":"1","architectures":["llama"],"wish":1}"#), "wish"),
        ("none", saying(r#"{"bantam_plugin":0,"name":"x","version":"1","architectures":[]}"#), "takes none"),
        (
            "twice",
            saying(r#"{"bantam_plugin":0,"name":"x","name":"y","version":"1","architectures":["a"]}"#),
            "the key `name` is there twice",
        ),
        (
            "wrong_type",
            saying(r#"{"bantam_plugin":0,"name":7,"version":"1","architectures":["a"]}"#),
            "name: expected a string, found the number 7",
        ),
        (
            "impostor",
            saying(r#"{"bantam_plugin":0,"name":"built-in","version":"1","architectures":["a"]}"#),
            "stands for",
        ),
        ("invisible", saying(r#"{"bantam_plugin":0,"name":" ","version":"1","architectures":["a"]}"#), "names"),
        ("nameless", saying(r#"{"bantam_plugin":0,"name":"","version":"1","architectures":["a"]}"#), "names"),
        (
            "escapes",
            saying("{\"bantam_plugin\":0,\"name\":\"\\u001b[2J\",\"version\":\"1\",\"architectures\":[\"a\"]}"),
            "names",
        ),
    ]
}

/// Files that are no plugins.
fn no_plugins(directory: &Path) -> Vec<(&'static str, &'static str)> {
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).unwrap();
    write("nothing.so", b"");
    write("script.so", b"#!/bin/sh\necho hello\n");
    write("cut.so", &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let mut foreign = vec![0; 64];
    foreign[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    foreign[18] = 22;
    write("foreign.so", &foreign);
    write("windows.dll", b"MZ");
    write("nothing.wasm", b"");
    write("broken.wasm", b"\0asm\x01\0\0\0\xff\xff");
    write("hollow.wasm", b"\0asm\x01\0\0\0");
    fs::create_dir(directory.join("folder.so")).unwrap();
    compile("int unrelated(void) { return 1; }", directory, "unrelated");
    compile("unsigned bantam_plugin_abi(void) { return 0; }", directory, "half");
    std::os::unix::fs::symlink(directory.join("nowhere"), directory.join("dangling.so")).unwrap();
    let pipe = Command::new("mkfifo").arg(directory.join("pipe.so")).status().unwrap();
    assert!(pipe.success());
    vec![
        ("nothing", "neither"),
        ("script", "neither"),
        ("cut", "neither"),
        ("foreign", "another processor"),
        ("windows", "neither"),
        ("broken", "cannot be loaded"),
        ("hollow", "memory"),
        ("folder", "not a file"),
        ("unrelated", "bantam_plugin_abi"),
        ("half", "bantam_plugin_describe"),
        ("dangling", "cannot be read"),
        ("pipe", "not a file"),
    ]
}

#[test]
fn bad_plugins_are_told_of_and_the_rest_goes_on() {
    let folder = folder();
    let mut expected: Vec<(&str, &str)> = no_plugins(folder.path());
    for (name, source, word) in speechless() {
        source.compile(folder.path(), name);
        expected.push((name, word));
    }
    WELL.compile(folder.path(), "well");
    let found = listed(folder.path());
    for (_, told) in &found {
        assert!(in_words(&told.to_string()), "{told}");
    }
    for (name, word) in &expected {
        let told: Vec<&str> =
            found.iter().filter(|(found, _)| found == name).map(|(_, told)| told["error"].as_str().unwrap()).collect();
        assert!(!told.is_empty() && told.iter().all(|told| told.contains(word)), "{name}: {told:?}, expected {word}");
    }
    let (_, well) = found.iter().find(|(name, _)| name == "well").unwrap();
    assert_eq!((&well["name"], &well["architectures"]), (&json!("test"), &json!(["llama"])));

    // A server among them serves, and says once of each what is wrong.
    let server = Server::start(&[&model("qwen3-dense"), "--plugins", folder.path().to_str().unwrap()]);
    assert_eq!(server.get("/v1/models").0, 200);
    assert_eq!(server.get("/v1/models").0, 200);
    let (status, answer) = server.post("/v1/completions", &json!({"model": "local", "prompt": "a", "max_tokens": 2}));
    assert_eq!(status, 200, "{answer}");
}

/// Whether a message speaks of JSON, not of this program's types.
fn in_words(told: &str) -> bool {
    let theirs = ["usize", "u32", "f64", "struct", "variant", "untagged", "ValueType", "Some", "None", "Tokens"];
    told.split(|c: char| !c.is_alphanumeric()).all(|word| !theirs.contains(&word))
}

/// What a plugin that answers so does to a model that it takes.
fn refused(source: &Source<'_>) -> String {
    let folder = folder();
    source.compile(folder.path(), "plugin");
    let told =
        fail(1, &["probe", &model("llama-dense"), "--tokens", "1", "--plugins", folder.path().to_str().unwrap()]);
    assert!(told.contains("plugin") || told.contains("blk.0"), "{told}");
    told
}

/// A graph that would do for a vocabulary of this size and width, with a node or a key changed.
fn graph(vocab: usize, width: usize, output: &str, extra: &Value) -> Value {
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

fn answer(graph: &Value) -> String {
    let chat = json!({"stop_tokens": []});
    let model = json!({"architecture": "llama", "config": {}, "context_length": 64, "text": graph, "chat": chat});
    json!({"bantam_plugin": 0, "model": model}).to_string()
}

/// Extents of the table in the fixture.
fn table() -> (usize, usize) {
    let file = bantam_gguf::GgufFile::open(model("llama-dense")).unwrap();
    let shape = file.tensor("token_embd.weight").unwrap().shape.clone();
    (usize::try_from(shape[1]).unwrap(), usize::try_from(shape[0]).unwrap())
}

#[test]
fn bad_answers_are_refused_by_what_is_wrong_with_them() {
    let (vocab, width) = table();
    let node = |name: &str, op: Value| json!({"name": name, "op": op});
    let with_node = |op: Value| {
        let mut graph = graph(vocab, width, "logits", &json!({}));
        graph["nodes"].as_array_mut().unwrap().insert(2, node("new", op));
        answer(&graph)
    };
    let long_state = json!([{"name": "k", "kind": "per_token", "width": 1_u64 << 40, "type": "kv"}]);
    let answers = [
        ("not json".to_owned(), "JSON"),
        ("[".repeat(100_000), "JSON"),
        (r#"{"bantam_plugin":0}"#.to_owned(), "expected"),
        (r#"{"bantam_plugin":1,"error":{"message":"x"}}"#.to_owned(), "version 1"),
        (r#"{"bantam_plugin":0,"error":{"tensor":"blk.0.x","expected":"some","found":"none"}}"#.to_owned(), "blk.0.x"),
        (answer(&graph(vocab, width, "nothing", &json!({}))), "nothing"),
        (answer(&graph(vocab + 1, width, "logits", &json!({}))), "expected shape"),
        (answer(&graph(vocab, width, "logits", &json!({"wish": 1}))), "wish"),
        (answer(&graph(vocab, width, "logits", &json!({"states": long_state}))), "state"),
        (with_node(json!({"teleport": {"x": "x"}})), "teleport"),
        (with_node(json!({"softcap": {"x": "x", "cap": 1.0, "mood": 2}})), "mood"),
        (with_node(json!({"softcap": {"x": "y", "cap": 1.0}})), "`y`"),
        (with_node(json!({"softcap": {"x": "x", "cap": "high"}})), "softcap.cap: expected a number, found the text"),
        (with_node(json!({"softcap": {"x": "x"}})), "missing key `cap`"),
        (with_node(json!({"softcap": "x"})), "expected an object, found the text"),
        (with_node(json!(["softcap"])), "expected a word, or an object of one key, found an array"),
        (with_node(json!({"add": {"a": "x", "b": "ids"}})), "operand `ids` must be f32"),
        (with_node(json!({"select": {"x": "x", "to": "tokens"}})), "no selection leads from tokens to tokens"),
        (
            with_node(json!({"softcap": {"x": "x", "cap": 1.0}})).replace(r#""cap":1.0"#, r#""cap":1.0,"cap":2.0"#),
            "softcap: the key `cap` is there twice",
        ),
        (
            answer(&graph(vocab, width, "logits", &json!({}))).replace(r#""shape":["#, r#""shape":[-1,"#),
            "found the number -1",
        ),
        (
            answer(&graph(vocab, width, "logits", &json!({}))).replace("\"context_length\":64", "\"context_length\":0"),
            "context",
        ),
        (
            answer(&graph(vocab, width, "logits", &json!({})))
                .replace("\"architecture\":\"llama\"", "\"architecture\":\"x\""),
            "`x`",
        ),
    ];
    for (answer, word) in &answers {
        let told = refused(&Source { answer, ..WELL });
        assert!(told.contains(word) && in_words(&told), "{told}\nexpected {word} of {answer:.200}");
    }
    let said = |key: &str, value: Value| {
        let mut said: Value = serde_json::from_str(&answer(&graph(vocab, width, "logits", &json!({})))).unwrap();
        said["model"][key] = value;
        said.to_string()
    };
    let chat = |key: &str, value: Value| said("chat", json!({"stop_tokens": [], key: value}));
    let copies = json!({"concat": {"of": vec![json!({"tensor": "token_embd.weight"}); 30_000], "axis": 0}});
    let weights = json!([
        {"name": "t", "shape": [vocab, width], "expr": {"tensor": "token_embd.weight"}},
        {"name": "big", "shape": [vocab * 30_000, width], "expr": copies},
    ]);
    let weight = |expr: Value| {
        let table = json!({"name": "t", "shape": [vocab, width], "expr": expr});
        answer(&graph(vocab, width, "logits", &json!({"weights": [table]})))
    };
    let tensor = json!({"tensor": "token_embd.weight"});
    let axes: Vec<usize> = (0..200_000).rev().collect();
    let part = json!({"slice": {"of": weights[1]["expr"], "axis": 0, "start": 0, "len": vocab}});
    let many = vec![json!({"name": "x", "op": {"input": {"source": "positions"}}}); 40_000];
    for (answer, word) in [
        (chat("hidden", json!(["", "a"])), "chat.hidden[0]"),
        (chat("hidden", json!([" \n"])), "chat.hidden[0]"),
        (chat("stop_texts", json!(vec!["a"; 1000])), "chat.stop_texts: expected at most 64"),
        (chat("stop_texts", json!(["a".repeat(10_000)])), "chat.stop_texts[0]: expected at most 1024"),
        (chat("reasoning", json!([{"open": "", "close": "x", "ended_by_calls": true}])), "chat.reasoning[0].open"),
        (said("tokenizer", json!({"pre": {"patterns": vec!["a"; 10_000]}})), "tokenizer.pre.patterns"),
        (answer(&graph(vocab, width, "logits", &json!({"weights": weights}))), "weight `big`"),
        (answer(&graph(vocab, width, "logits", &json!({"nodes": many}))), "another node yields"),
        (weight(json!({"permute": {"of": tensor, "axes": axes}})), "an order of 1 to 8 axes"),
        (weight(part), "are computed on the way"),
        (r#"{"bantam_plugin":0,"error":{"message":""}}"#.to_owned(), "without a reason"),
    ] {
        let told = refused(&Source { answer: &answer, ..WELL });
        assert!(told.contains(word) && told.len() < 3000, "{told:.3000}\nexpected {word} of {answer:.200}");
    }
    let long = r#"{"bantam_plugin":0,"error":{"message":"\u001b[2Jblk.0"#.to_owned() + &"x".repeat(100_000) + "\"}}";
    let told = refused(&Source { answer: &long, ..WELL });
    assert!(told.len() < 3000 && !told.contains('\u{1b}'), "{told:.3000}");
    for (build, word) in [
        ("*(volatile int *)8 = 1;", "signal"),
        ("for (;;) pause();", "within"),
        ("for (;;) if (write(1, of, len) < 0) abort();", "within"),
        ("to->len = (size_t)100 << 20; to->data = calloc(1, to->len); return 0;", "longer than"),
        ("return -1;", "returned -1"),
    ] {
        let told = refused(&Source { build, ..WELL });
        assert!(told.contains(word), "{told}\nexpected {word} of {build}");
    }
}

#[test]
fn a_graph_from_a_plugin_is_run_and_the_log_says_whose_it_is() {
    let (vocab, width) = table();
    let folder = folder();
    let answer = answer(&graph(vocab, width, "logits", &json!({})));
    Source { answer: &answer, ..WELL }.compile(folder.path(), "plain");
    let directory = folder.path().to_str().unwrap();
    let arguments = ["probe", &model("llama-dense"), "--tokens", "1,2", "--greedy", "2"];
    let with = bantam(&[&arguments[..], &["--plugins", directory]].concat());
    assert!(with.status.success(), "{}", stderr(&with));
    assert!(stderr(&with).contains("`llama` is taken by the plugin `test`"), "{}", stderr(&with));
    let built_in = bantam(&[&arguments[..], &["--plugins", directory, "--family", "built-in"]].concat());
    assert_eq!(stdout(&built_in), stdout(&bantam(&arguments)));
    assert_ne!(stdout(&built_in), stdout(&with), "the plugin's model has no layers");
    let named = bantam(&[&arguments[..], &["--plugins", directory, "--family", "test"]].concat());
    assert_eq!(stdout(&named), stdout(&with));
    let unknown = fail(1, &[&arguments[..], &["--plugins", directory, "--family", "other"]].concat());
    assert!(unknown.contains("--family other"), "{unknown}");
}

/// The fixture of Llama with another name for how its text is cut into pieces.
fn with_unknown_pieces(to: &Path) {
    let file = bantam_gguf::GgufFile::open(model("llama-dense")).unwrap();
    let mut writer = bantam_gguf::writer::GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        match key {
            "tokenizer.ggml.pre" => writer.key(key, "nobodys-own"),
            key => writer.key(key, value.clone()),
        };
    }
    for tensor in file.tensors() {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape, file.tensor_bytes(tensor).unwrap());
    }
    writer.write(fs::File::create(to).unwrap()).unwrap();
}

#[test]
fn every_command_that_opens_a_model_takes_plugins() {
    let (vocab, width) = table();
    let (folder, scratch) = (folder(), folder());
    let mut said: Value = serde_json::from_str(&answer(&graph(vocab, width, "logits", &json!({})))).unwrap();
    // Room for a prompt in the template's form.
    said["model"]["context_length"] = json!(512);
    said["model"]["tokenizer"] = json!({"pre": {"patterns": ["\\s?\\p{L}+", "\\s+"]}});
    Source { answer: &said.to_string(), ..WELL }.compile(folder.path(), "hints");
    let [file, case] = ["model.gguf", "case.json"].map(|name| scratch.path().join(name).display().to_string());
    with_unknown_pieces(Path::new(&file));
    fs::write(&case, r#"{"messages":[{"role":"user","content":"hi"}]}"#).unwrap();
    for arguments in [
        vec!["render", &file, "--case", &case],
        vec!["tokenize", &file, "--text", "a b"],
        vec!["generate", &file, "--prompt", "a", "--max-tokens", "2"],
        vec!["inspect", &file, "--graph"],
        vec!["plan", &file],
        vec!["probe", &file, "--tokens", "1,2"],
        vec!["benchmark", &file, "--prompt-tokens", "8", "--decode-tokens", "2", "--iterations", "1"],
    ] {
        let run = |by_flag: bool| {
            let mut command = command();
            command.args(&arguments);
            match by_flag {
                true => command.arg("--plugins").arg(folder.path()),
                false => command.env("BANTAM_PLUGINS", folder.path()),
            };
            let output = command.output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        };
        [true, false].into_iter().for_each(run);
    }
    let without = bantam(&["render", &file, "--case", &case]);
    assert!(stderr(&without).contains("nobodys-own"), "{}", stderr(&without));
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn a_plugin_starts_no_process_and_no_thread() {
    let before_all = r#"
        #include <errno.h>
        #include <pthread.h>
        static void *nothing(void *of) { return of; }
        static int starts(void) {
            pthread_t thread; char *arguments[] = {"/bin/true", NULL};
            if (fork() >= 0 || vfork() >= 0 || errno != EPERM) return 1;
            if (pthread_create(&thread, NULL, nothing, NULL) == 0) return 2;
            execv(arguments[0], arguments);
            return errno == EPERM ? 0 : 3;
        }
    "#;
    let folder = folder();
    Source { before_all, describe: "int way = starts(); if (way) return way;", ..WELL }
        .compile(folder.path(), "starts");
    let (_, told) = &listed(folder.path())[0];
    assert_eq!(told["name"], "test", "{told}");
}

/// Functions of a plugin with the op `double`, which returns `{code}` and whose rows are `{width}` wide.
fn double(width: usize, code: i32) -> String {
    format!(
        r#"
        typedef struct {{
            size_t rows, operands; const float *const *x; const size_t *widths;
            size_t weights; const float *const *weight; const size_t *lengths; float *out; size_t width;
        }} bantam_op_rows;
        int32_t bantam_plugin_op_infer(const uint8_t *of, size_t len, bantam_bytes *to) {{
            static const char text[] = "{{\"bantam_plugin\":0,\"width\":{width}}}";
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
fn doubled(op: &Value) -> String {
    let (vocab, width) = table();
    let mut graph = graph(vocab, width, "logits", &json!({}));
    let nodes = graph["nodes"].as_array_mut().unwrap();
    nodes.insert(2, json!({"name": "twice", "op": op}));
    nodes[3]["op"]["select"]["x"] = json!("twice");
    answer(&graph)
}

fn custom(width: usize) -> Value {
    json!({"custom": {"op": "double", "x": ["x"], "attributes": {"how": "twice"}, "width": width}})
}

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
    assert_eq!(allowed["checks"], expected["checks"]);
}

#[test]
fn what_is_wrong_with_an_op_is_told() {
    let (_, width) = table();
    let functions = double(width, 0);
    let bad = |answer: &str, before_all: &str| {
        let folder = folder();
        Source { answer, before_all, ..WELL }.compile(folder.path(), "double");
        let directory = folder.path().to_str().unwrap();
        fail(1, &["probe", &model("llama-dense"), "--tokens", "1", "--allow-plugin-ops", "--plugins", directory])
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
}

/// A plugin in WebAssembly whose functions begin with these instructions and then give these answers.
struct Wasm<'a> {
    fields: &'a str,
    pages: u32,
    describe: &'a str,
    answer: &'a str,
}

const WELL_WASM: Wasm<'_> = Wasm { fields: "", pages: 16, describe: "", answer: "" };

impl Wasm<'_> {
    fn write(&self, directory: &Path, name: &str) {
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

#[test]
fn files_that_others_could_have_written_are_not_loaded() {
    let folder = folder();
    let plugin = WELL.compile(folder.path(), "well");
    let word = |expected: Option<&str>| {
        let found = listed(folder.path());
        let error = found[0].1["error"].as_str();
        assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
        assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{error:?}");
    };
    word(None);
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o666)).unwrap();
    word(Some("every user may write"));
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o600)).unwrap();
    word(None);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    word(Some("directory"));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    word(None);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(&plugin, Some(12345), None).is_ok() {
        word(Some("12345"));
    }
}

#[test]
fn a_replaced_plugin_is_met_anew_and_told_of_once() {
    let folder = folder();
    let directory = folder.path().to_str().unwrap();
    let server = Server::start(&[&model("qwen3-dense"), "--plugins", directory]);
    fs::write(folder.path().join("new.so"), b"no library").unwrap();
    assert_eq!(server.get("/v1/models").0, 200);
    let first = server.line_with("new.so");
    assert!(first.contains("neither a library"), "{first}");
    assert_eq!(server.get("/v1/models").0, 200);
    fs::write(folder.path().join("new.so"), b"\x7fELF").unwrap();
    fs::remove_file(folder.path().join("new.so")).unwrap();
    Source { abi: "3", ..WELL }.compile(folder.path(), "new");
    assert_eq!(server.get("/v1/models").0, 200);
    let second = server.line_with("new.");
    assert!(second.contains("version 3"), "{second}");
}

/// Processes whose command line has this in it.
#[cfg(target_os = "linux")]
fn processes(with: &str) -> usize {
    let of = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let lines = fs::read_dir("/proc").unwrap().map(|entry| of(entry.unwrap()));
    lines.filter(|line| String::from_utf8_lossy(line).contains(with)).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_host_that_is_killed_leaves_no_process_and_its_copies_are_swept() {
    let (folder, places) = (folder(), folder());
    Source { describe: "for (;;) pause();", ..WELL }.compile(folder.path(), "hangs");
    let mut list = command();
    list.args(["plugins", "--plugins"]).arg(folder.path()).env("TMPDIR", places.path());
    let mut host = list.stdout(std::process::Stdio::null()).spawn().unwrap();
    let copies = places.path().to_str().unwrap().to_owned();
    support::wait_for("the process that asks", || (processes(&copies) > 0).then_some(()));
    host.kill().unwrap();
    host.wait().unwrap();
    support::wait_for("its end", || (processes(&copies) == 0).then_some(()));
    let left = || fs::read_dir(places.path()).unwrap().count();
    assert_eq!(left(), 1);
    let none = self::folder();
    let output = command().args(["plugins", "--plugins"]).arg(none.path()).env("TMPDIR", places.path()).output();
    assert!(output.unwrap().status.success());
    assert_eq!(left(), 0);
}

#[test]
fn the_command_checks_one_file_and_lists_in_words() {
    let folder = folder();
    let directory = folder.path().to_str().unwrap();
    let well = WELL.compile(folder.path(), "well");
    let bad = Source { abi: "3", ..WELL }.compile(folder.path(), "bad");
    let lines = stdout(&bantam(&["plugins", "--plugins", directory]));
    assert!(lines.contains("test 1.0, ABI 0, for llama") && lines.contains("refused: it speaks version 3"), "{lines}");
    let checked = bantam(&["plugins", "check", well.to_str().unwrap()]);
    assert!(checked.status.success() && stdout(&checked).contains("test 1.0"), "{}", stderr(&checked));
    let checked = bantam(&["plugins", "check", bad.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(stderr(&checked).contains("bad.") && stderr(&checked).contains("version 3"), "{}", stderr(&checked));
    let by_variable = command().arg("plugins").env("BANTAM_PLUGINS", directory).output().unwrap();
    assert_eq!(stdout(&by_variable), lines);
    let none = bantam(&["plugins", "--plugins", "/nonexistent"]);
    assert!(stdout(&none).contains("no plugins in /nonexistent"), "{}", stdout(&none));
    assert!(stderr(&none).contains("/nonexistent: there is no such directory"), "{}", stderr(&none));
    let file = fail(2, &["plugins", "--plugins", well.to_str().unwrap()]);
    assert!(file.contains("expected a directory"), "{file}");
}
