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
use support::{f32_file, fixture, json};

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

/// Builds the plugin for LFM2 in a target directory of its own, so as not to wait for the build that runs this test.
fn lfm2(flags: &[&str], built: &str) -> tempfile::TempDir {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--quiet", "--profile", "ci", "-p", "bantam-lfm2", "--target-dir"]);
    run(cargo.arg(&target).args(flags));
    alone(&target.join(built))
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
    let library = format!("{}bantam_lfm2{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let folder = lfm2(&[], &format!("ci/{library}"));
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
    let folder = lfm2(&["--target", WASM], &format!("{WASM}/ci/bantam_lfm2.wasm"));
    for name in ["lfm2-dense", "lfm2moe-base"] {
        golden(name, folder.path());
    }
}

#[test]
fn the_plugin_in_c_gives_the_logits_of_llama() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join(format!("minimal{}", std::env::consts::DLL_SUFFIX));
    let mut cc = Command::new("cc");
    cc.current_dir(root().join("plugins/minimal-c")).args([
        "-O2",
        "-std=c99",
        "-fPIC",
        "-fvisibility=hidden",
        "-shared",
    ]);
    run(cc.args(["minimal.c", "json.c", "-lm", "-o"]).arg(&library));
    golden("minimal", folder.path());
}
