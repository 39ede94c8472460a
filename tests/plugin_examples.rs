//! The example plugins, built and loaded for real: the reference's logits and all equalities, from a shared library in Rust,
//! the same as WebAssembly, and one in C.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use support::{Server, bantam, command, f32_file, fixture, json, model, stdout, wait_for};

fn json_body() -> Value {
    serde_json::json!({"model": "local", "prompt": "a", "max_tokens": 2})
}

const WASM: &str = "wasm32-unknown-unknown";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A directory with one file: this one.
fn alone(file: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(file, folder.path().join(file.file_name().unwrap())).unwrap();
    folder
}

/// Builds the plugin in this crate, in a target directory of its own so as not to wait for the build that runs this test.
fn built(package: &str, flags: &[&str], file: &str) -> tempfile::TempDir {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--quiet", "--profile", "ci", "-p", package, "--target-dir"]);
    run(cargo.arg(&target).args(flags));
    alone(&target.join(file))
}

/// Builds it as a library of this machine.
fn library(package: &str) -> tempfile::TempDir {
    let name = package.replace('-', "_");
    let file = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    built(package, &[], &format!("ci/{file}"))
}

/// Builds the plugin in C.
fn minimal(directory: &Path) -> PathBuf {
    let library = directory.join(format!("minimal{}", std::env::consts::DLL_SUFFIX));
    let mut cc = Command::new("cc");
    cc.current_dir(root().join("plugins/minimal-c")).args([
        "-O2",
        "-std=c99",
        "-fPIC",
        "-fvisibility=hidden",
        "-shared",
    ]);
    run(cc.args(["minimal.c", "json.c", "-lm", "-o"]).arg(&library));
    library
}

/// Whether the compiler has the standard library for WebAssembly.
fn has_wasm() -> bool {
    let sysroot = run(Command::new("rustc").args(["--print", "sysroot"]));
    Path::new(sysroot.trim()).join("lib/rustlib").join(WASM).join("lib").is_dir()
}

/// Runs a fixture with these plugins: logits, greedy tokens, and the same bits however the tokens come.
fn golden(name: &str, plugins: &Path) {
    let folder: PathBuf = fixture("plugins").join(name);
    let expect: Value = serde_json::from_slice(&fs::read(folder.join("expect.json")).unwrap()).unwrap();
    let prompt: Vec<String> = expect["prompt"].as_array().unwrap().iter().map(Value::to_string).collect();
    let greedy = expect["greedy"].as_array().unwrap();
    let (model, tokens, count) = (folder.join("model.gguf"), prompt.join(","), greedy.len().to_string());
    let scratch = tempfile::tempdir().unwrap();
    let logits = scratch.path().join("logits.f32");
    let [model, plugins, file] = [&model, plugins, &logits].map(|path| path.to_str().unwrap());
    let report = json(&[
        "probe",
        model,
        "--plugins",
        plugins,
        "--tokens",
        &tokens,
        "--greedy",
        &count,
        "--logits",
        file,
        "--check",
        "all",
    ]);
    assert_eq!(report["greedy"].as_array(), Some(greedy), "{name}");
    let (found, expected) = (f32_file(&logits), f32_file(&folder.join("logits.f32")));
    assert_eq!(found.len(), expected.len(), "{name}");
    let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let bound = 2e-3 * expect["logits_std"].as_f64().unwrap().max(1.0) as f32;
    assert!(worst <= bound, "{name}: {worst} > {bound}");
    let checks = report["checks"].as_object().unwrap();
    assert!(!checks.is_empty() && checks.values().all(|check| check["max_diff"].as_f64() == Some(0.0)), "{checks:?}");
}

#[test]
fn lfm2_gives_the_references_logits() {
    let folder = library("bantam-lfm2");
    for name in ["lfm2-dense", "lfm2moe-base"] {
        golden(name, folder.path());
    }
}

#[test]
fn lfm2_does_so_as_webassembly() {
    if !has_wasm() {
        eprintln!("skipped: `rustup target add {WASM}` to run it");
        return;
    }
    let folder = built("bantam-lfm2", &["--target", WASM], &format!("{WASM}/ci/bantam_lfm2.wasm"));
    for name in ["lfm2-dense", "lfm2moe-base"] {
        golden(name, folder.path());
    }
}

#[test]
fn the_plugin_in_c_gives_the_logits_of_llama() {
    let folder = tempfile::tempdir().unwrap();
    minimal(folder.path());
    golden("minimal", folder.path());
}

#[test]
fn an_op_of_its_own_computes_what_the_graphs_op_does() {
    let folder = library("bantam-own-op");
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("own.gguf");
    support::renamed("llama-own-op", &file);
    let logits = |model: &str, name: &str, more: &[&str]| {
        let to = scratch.path().join(name).display().to_string();
        let arguments = ["probe", model, "--tokens", "5,6,7,8,9", "--check", "all", "--logits", &to];
        let report = json(&[&arguments[..], more].concat());
        let checks = report["checks"].as_object().unwrap();
        assert!(checks.values().all(|check| check["max_diff"].as_f64() == Some(0.0)), "{checks:?}");
        f32_file(Path::new(&to))
    };
    let plugins = ["--allow-plugin-ops", "--plugins", folder.path().to_str().unwrap()];
    let (found, expected) =
        (logits(file.to_str().unwrap(), "own", &plugins), logits(&model("llama-dense"), "llama", &[]));
    let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-4 && found.len() == expected.len(), "{worst}");
}

/// Memory that a process holds, in KiB, and its open files.
#[cfg(target_os = "linux")]
fn held(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    (rss.trim().trim_end_matches(" kB").parse().unwrap(), files)
}

#[cfg(target_os = "linux")]
#[test]
fn two_plugins_work_at_once_and_fifty_loads_leave_nothing_behind() {
    let folder = library("bantam-lfm2");
    let plugin = minimal(folder.path());
    let names = stdout(&bantam(&["plugins", "--plugins", folder.path().to_str().unwrap()]));
    assert!(names.contains("lfm2moe") && names.contains("minimal"), "{names}");
    let places = tempfile::tempdir().unwrap();
    let mut serve = command();
    serve.arg("serve").arg(fixture("plugins/lfm2-dense/model.gguf")).args(["--port", "0", "--plugins"]);
    serve.arg(folder.path()).env("TMPDIR", places.path());
    let server = Server::spawn_ready(&mut serve);
    let (status, answer) = server.post("/v1/completions", &json_body());
    assert_eq!(status, 200, "{answer}");
    let bytes = fs::read(&plugin).unwrap();
    let copies = || {
        let folders = fs::read_dir(places.path()).unwrap();
        folders.map(|folder| fs::read_dir(folder.unwrap().path()).map_or(0, Iterator::count)).sum::<usize>()
    };
    // Each is another file, which has to be met anew.
    let load = |number: u8| {
        let mut bytes = bytes.clone();
        bytes.push(number);
        let next = folder.path().join("next");
        fs::write(&next, bytes).unwrap();
        fs::rename(&next, &plugin).unwrap();
        wait_for("the copy of the new file", || {
            assert_eq!(server.get("/v1/models").0, 200);
            let known =
                fs::read_dir(places.path()).unwrap().flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
            let known: Vec<PathBuf> = known.map(|copy| copy.unwrap().path()).collect();
            let is_met = known.iter().any(|copy| fs::read(copy).is_ok_and(|found| found.last() == Some(&number)));
            (is_met && known.len() == 2).then_some(())
        });
    };
    (0..10).for_each(load);
    let (rss, files) = held(server.id());
    (10..60).for_each(load);
    assert_eq!(copies(), 2);
    // Connections and pipes of what has ended are closed a little later.
    wait_for("files to be closed", || (held(server.id()).1 <= files + 2).then_some(()));
    let (rss_behind, _) = held(server.id());
    assert!(rss_behind < rss + 4096, "{rss} KiB, then {rss_behind}");
}
