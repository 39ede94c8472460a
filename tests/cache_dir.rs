//! `--cache-dir`: what a server finds again after it has ended, been killed, or lost the disk.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use support::{Server, command, fail, model, wait_for};

/// Starts a server that keeps its cache in a folder.
fn serve(name: &str, folder: &Path, more: &[&str]) -> Server {
    let model = model(name);
    let mut arguments = vec![model.as_str(), "--cache-dir", folder.to_str().unwrap()];
    arguments.extend(more);
    Server::start(&arguments)
}

/// Ends a server as a user does.
fn end(mut server: Server) {
    server.signal("TERM");
    assert_eq!(server.exit_status().code(), Some(0));
}

/// A conversation of some length, by its number.
fn question(n: usize) -> String {
    format!("{n}. {}", "What is it that comes again and again, and is still new? ".repeat(8))
}

/// Asks; the answer's text, tokens of the prompt, and those that came from the cache.
fn ask(server: &Server, text: &str) -> (String, u64, u64) {
    let body = json!({
        "messages": [{ "role": "user", "content": text }], "max_tokens": 12, "temperature": 0, "ignore_eos": true,
    });
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    let number = |value: &Value| value.as_u64().unwrap();
    let usage = &answer["usage"];
    let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]);
    (answer["choices"][0]["message"]["content"].as_str().unwrap().into(), number(&usage["prompt_tokens"]), cached)
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

fn cache_file(folder: &Path) -> Option<PathBuf> {
    files(folder, ".cache").pop()
}

/// Lines on standard error until the server listens.
fn start_and_warn(name: &str, folder: &Path) -> (Server, String) {
    let mut serve = command();
    serve.arg("serve").arg(model(name)).args(["--port", "0", "--cache-dir"]).arg(folder);
    let mut server = Server::spawn(&mut serve);
    let warning = server.line_with("--cache-dir");
    let line = server.line_with("listening on ");
    server.url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    (server, warning)
}

#[test]
fn a_known_conversation_goes_on_after_a_restart() {
    for name in ["llama-dense", "gemma3-dense", "qwen35-dense"] {
        let folder = tempfile::tempdir().unwrap();
        let server = serve(name, folder.path(), &[]);
        let before: Vec<_> = (0..5).map(|n| ask(&server, &question(n))).collect();
        end(server);
        let server = serve(name, folder.path(), &[]);
        for (n, (text, ..)) in before.iter().enumerate() {
            // The same again, and the next turn.
            let (again, prompt, cached) = ask(&server, &question(n));
            assert_eq!(&again, text);
            assert!(cached * 100 >= prompt * 95, "{name}: {cached} of {prompt} tokens of conversation {n}");
        }
        end(server);
    }
}

#[test]
fn a_server_that_is_killed_while_it_saves_leaves_what_was_saved_before() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let alone = Server::start(&[&model("llama-dense")]);
    let (mut killed_in_the_middle, mut found) = (0, 0);
    for round in 0..6 {
        let server = serve("llama-dense", folder, &["--cache-save-seconds", "1"]);
        assert_eq!(files(folder, ".part").len(), 0, "what the last one left is gone");
        for n in 0..round {
            let (text, _, cached) = ask(&server, &question(n));
            assert_eq!(text, ask(&alone, &question(n)).0);
            found += u64::from(cached > 20);
        }
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(10) {
            ask(&server, &question(100 + round));
            ask(&server, &format!("{:?}", asked.elapsed()));
            let written = Instant::now();
            let half = || files(folder, ".part").pop();
            while written.elapsed() < Duration::from_millis(1500) && half().is_none() {
                std::hint::spin_loop();
            }
            if half().is_some() {
                break;
            }
        }
        server.signal("KILL");
        drop(server);
        killed_in_the_middle += files(folder, ".part").len();
    }
    assert!(killed_in_the_middle > 0 && found > 0, "{killed_in_the_middle} half files, {found} conversations found");
}

#[test]
fn a_damaged_file_is_told_of_once_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve("llama-dense", folder.path(), &[]);
    let (text, ..) = ask(&server, &question(1));
    end(server);
    let file = cache_file(folder.path()).unwrap();
    let whole = fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 16;
        bytes
    };
    let damaged = [
        flipped(0),
        flipped(30),
        flipped(whole.len() / 2),
        flipped(whole.len() - 3),
        whole[..whole.len() / 2].to_vec(),
        Vec::new(),
    ];
    for bytes in damaged {
        fs::write(&file, bytes).unwrap();
        let (server, warning) = start_and_warn("llama-dense", folder.path());
        assert!(warning.contains(file.to_str().unwrap()) && warning.contains("skipped"), "{warning}");
        let (again, _, cached) = ask(&server, &question(1));
        assert_eq!((again.as_str(), cached), (text.as_str(), 0));
        end(server);
        let server = serve("llama-dense", folder.path(), &[]);
        assert!(ask(&server, &question(1)).2 > 0, "it was replaced by the next");
        drop(server);
    }
}

#[test]
fn a_file_of_another_model_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama-dense", "gemma3-dense"] {
        let server = serve(name, folder.path(), &[]);
        assert_eq!(ask(&server, &question(1)).2, 0);
        end(server);
    }
    let both = files(folder.path(), ".cache");
    assert_eq!(both.len(), 2, "each has its own");
    let server = serve("llama-dense", folder.path(), &["--cache-type-k", "f32"]);
    assert_eq!(ask(&server, &question(1)).2, 0, "keys in another format");
    drop(server);
    // Under the name of another, it is told by what is in it.
    fs::copy(&both[0], folder.path().join("copy")).unwrap();
    fs::copy(&both[1], &both[0]).unwrap();
    fs::rename(folder.path().join("copy"), &both[1]).unwrap();
    for name in ["llama-dense", "gemma3-dense"] {
        let (server, warning) = start_and_warn(name, folder.path());
        assert!(warning.contains("another model"), "{warning}");
        assert_eq!(ask(&server, &question(1)).2, 0);
    }
}

#[test]
fn of_two_servers_on_one_directory_the_second_only_reads() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve("llama-dense", folder.path(), &[]);
    ask(&server, &question(1));
    end(server);
    let first = serve("llama-dense", folder.path(), &[]);
    let (second, warning) = start_and_warn("llama-dense", folder.path());
    assert!(warning.contains("another server"), "{warning}");
    let before = fs::read(cache_file(folder.path()).unwrap()).unwrap();
    assert!(ask(&second, &question(1)).2 > 0);
    ask(&second, &question(2));
    end(second);
    assert_eq!(fs::read(cache_file(folder.path()).unwrap()).unwrap(), before);
    end(first);
}

/// Runs the server where files may have so many blocks of 512 bytes.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_bantam"), "serve"]);
    limited.arg(model("llama-dense")).args(["--port", "0", "--cache-save-seconds", "1", "--cache-dir"]);
    limited.arg(folder.path()).stdin(Stdio::null());
    let mut server = Server::spawn(&mut limited);
    let line = server.line_with("listening on ");
    server.url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let (text, ..) = ask(&server, &question(1));
    let warning = server.line_with("--cache-dir");
    assert!(warning.contains("not saved") && warning.contains("large"), "{warning}");
    for _ in 0..3 {
        assert_eq!(ask(&server, &question(1)).0, text);
    }
    wait_for("nothing half written", || files(folder.path(), ".part").is_empty().then_some(()));
    assert_eq!(cache_file(folder.path()), None);
    end(server);
}

#[test]
fn what_cannot_be_a_directory_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = fail(1, &["serve", &model("llama-dense"), "--port", "0", "--cache-dir", file.to_str().unwrap()]);
    assert!(error.contains("--cache-dir") && error.contains("not a directory"), "{error}");
}
