//! Bad plugins: each is told of in one line with its file and the reason, and the rest goes on.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    plugins::{Source, WELL, WELL_WASM, Wasm, answer, compile, folder, graph, in_words, listed, table},
    support::{Server, bantam, command, fail, model, stderr, stdout},
};

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
        ("memory", with("for (;;) *(volatile char *)malloc((size_t)1 << 27) = 1;"), "signal"),
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
}

/// Everything that is wrong with a file or with what it says of itself.
fn all_bad(directory: &Path) -> Vec<(&'static str, &'static str)> {
    let mut bad = no_plugins(directory);
    for (name, source, word) in speechless() {
        source.compile(directory, name);
        bad.push((name, word));
    }
    Wasm { describe: "unreachable", ..WELL_WASM }.write(directory, "traps");
    let open_to_all = WELL.compile(directory, "open_to_all");
    fs::set_permissions(open_to_all, fs::Permissions::from_mode(0o666)).unwrap();
    std::os::unix::fs::symlink("loop.so", directory.join("loop.so")).unwrap();
    let mut long = fs::File::create(directory.join("endless.so")).unwrap();
    std::io::Write::write_all(&mut long, b"\x7fELF").unwrap();
    long.set_len(300 << 20).unwrap();
    bad.extend([
        ("traps", "stopped"),
        ("open_to_all", "every user may write"),
        ("loop", "cannot be read"),
        ("endless", "longer than"),
    ]);
    bad
}

/// Lines that speak of a file of this name, whatever its extension is.
fn lines_of<'a>(lines: &'a [String], name: &str) -> Vec<&'a String> {
    lines.iter().filter(|line| line.contains(&format!("/{name}."))).collect()
}

#[test]
fn each_bad_file_is_one_line_of_the_log_while_all_others_serve() {
    let (vocab, width) = table();
    let folder = folder();
    let bad = all_bad(folder.path());
    let answer = answer(&graph(vocab, width, "logits", &json!({})));
    Source { answer: &answer, ..WELL }.compile(folder.path(), "plain");
    let directory = folder.path().to_str().unwrap();
    // One model is a plugin's, the other a built-in family's.
    for served in ["llama-dense", "qwen3-dense"] {
        let server = Server::spawn_ready(&mut *command().arg("serve").args([
            &model(served),
            "--plugins",
            directory,
            "--port",
            "0",
        ]));
        let mut lines = server.before_ready.clone();
        for _ in 0..3 {
            assert_eq!(server.get("/v1/models").0, 200);
        }
        let (status, told) = server.post("/v1/completions", &json!({"model": "local", "prompt": "a", "max_tokens": 2}));
        assert_eq!(status, 200, "{told}");
        fs::write(folder.path().join("last.so"), "no library").unwrap();
        assert_eq!(server.get("/v1/models").0, 200);
        lines.extend(server.lines_before("/last.so"));
        fs::remove_file(folder.path().join("last.so")).unwrap();
        for (name, word) in &bad {
            let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let files = files.filter(|file| file.file_stem().unwrap() == *name).count();
            let told = lines_of(&lines, name);
            assert!(told.len() == files && told.iter().all(|line| line.contains(word)), "{name}: {told:#?}, {word}");
        }
    }
}

/// A plugin's graph that cannot be, or an answer that is none, and a word out of the reason.
fn builds() -> Vec<(&'static str, &'static str, String, &'static str)> {
    let (vocab, width) = table();
    let good = || graph(vocab, width, "logits", &json!({}));
    let mut twisted = good();
    twisted["nodes"][3]["op"]["linear"]["x"] = json!("ids");
    let huge = json!([{"name": "k", "heads": 1_u64 << 40, "dim": 1_u64 << 40, "kind": "per_token", "dtype": "kv"}]);
    let endless = r#"
        to->len = (size_t)80 << 20; to->data = malloc(to->len); memset(to->data, '[', to->len); return 0;
    "#;
    let garbage = "static uint8_t junk[] = {1, 2, 255, 254, 0, 7}; to->data = junk; to->len = sizeof junk; return 0;";
    let well = || answer(&good());
    vec![
        ("crashes", "*(volatile int *)8 = 1;", well(), "signal"),
        ("aborts", "abort();", well(), "signal"),
        ("hangs", "for (;;) pause();", well(), "within"),
        ("returns", "return 7;", well(), "returned 7"),
        ("endless", endless, well(), "longer than"),
        ("deep", "", "[".repeat(100_000), "JSON"),
        ("garbage", garbage, well(), "JSON"),
        ("twisted", "", answer(&twisted), "ids"),
        ("absurd", "", answer(&graph(vocab, width, "logits", &json!({"states": huge}))), "k"),
        ("unknown", "", answer(&graph(vocab, width, "logits", &json!({"wish": 1}))), "wish"),
        ("wrong_size", "", answer(&graph(vocab + 1, width, "logits", &json!({}))), "expected shape"),
    ]
}

#[test]
fn each_bad_build_is_one_line_of_the_log_and_the_next_family_is_taken() {
    let (vocab, width) = table();
    let arguments = ["probe", &model("llama-dense"), "--tokens", "1,2,3", "--greedy", "2"];
    let built_in = stdout(&bantam(&arguments));
    let plain = Source { answer: &answer(&graph(vocab, width, "logits", &json!({}))), ..WELL }.text();
    for (name, build, answer, word) in builds() {
        let folder = folder();
        let directory = folder.path().to_str().unwrap().to_owned();
        Source { build, answer: &answer, ..WELL }.compile(folder.path(), name);
        let run = |more: &[&str]| bantam(&[&arguments[..], &["--plugins", &directory], more].concat());
        let once = |output: &std::process::Output| {
            let lines: Vec<String> = stderr(output).lines().map(str::to_owned).collect();
            let told: Vec<_> = lines_of(&lines, name).into_iter().filter(|line| line.contains("failed")).collect();
            assert!(told.len() == 1 && told[0].contains(word), "{name}: {lines:#?}, expected {word}");
        };
        let output = run(&[]);
        assert_eq!(stdout(&output), built_in, "{name}: {}", stderr(&output));
        once(&output);
        if name == "hangs" {
            // The time that it takes is known by now.
            continue;
        }
        compile(&plain, folder.path(), "zz_then");
        let output = run(&[]);
        assert!(output.status.success() && stdout(&output) != built_in, "{name}: {}", stderr(&output));
        once(&output);
        let chosen = run(&["--family", "built-in"]);
        assert!(stdout(&chosen) == built_in && !stderr(&chosen).contains("failed"), "{name}: {}", stderr(&chosen));
        fs::remove_file(folder.path().join(format!("zz_then.{}", std::env::consts::DLL_EXTENSION))).unwrap();
        let chosen = run(&["--family", "test"]);
        assert_eq!(chosen.status.code(), Some(1), "{name}: {}", stderr(&chosen));
        once(&chosen);
    }
}

#[test]
fn a_refusal_is_the_last_word() {
    let folder = folder();
    WELL.compile(folder.path(), "well");
    let directory = folder.path().to_str().unwrap();
    let told = fail(1, &["probe", &model("llama-dense"), "--tokens", "1", "--plugins", directory]);
    assert!(told.contains("no such model here") && told.contains("/well."), "{told}");
}

/// What a plugin that answers so does to a model that it takes.
fn refused(source: &Source<'_>) -> String {
    let folder = folder();
    source.compile(folder.path(), "plugin");
    let directory = folder.path().to_str().unwrap();
    // Chosen by its name, so that nobody else is asked.
    let told = fail(1, &["probe", &model("llama-dense"), "--tokens", "1", "--family", "test", "--plugins", directory]);
    assert!(told.contains("plugin") || told.contains("blk.0"), "{told}");
    told
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
