//! What the documentation of plugins tells authors to type is typed here: the template in Rust, as a library and as WebAssembly,
//! outside of this repository; the command for C; and each message in JSON is read by the host.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use bantam_plugin_sdk::family::wire::{BuildAnswer, BuildRequest, Description};
use support::{f32_file, json, model, renamed};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The blocks of code of the page that are in this language, in order.
fn blocks(language: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/plugins.md")).unwrap();
    let (mut found, mut block, mut is_wanted) = (Vec::new(), None::<String>, false);
    for line in page.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (Some(_), Some(_)) => found.extend(block.take().filter(|_| is_wanted)),
            (Some(text), None) => *text += &format!("{line}\n"),
            (None, Some(of)) => (block, is_wanted) = (Some(String::new()), of == language),
            (None, None) => {}
        }
    }
    found
}

/// The one block in this language with this in it.
fn block(language: &str, with: &str) -> String {
    let mut found = blocks(language).into_iter().filter(|block| block.contains(with));
    let block = found.next().unwrap_or_else(|| panic!("no block of {language} with `{with}`"));
    assert!(found.next().is_none(), "several blocks of {language} with `{with}`");
    block
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A crate as the page says, in a directory without anything of this repository above it.
fn template() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    run(Command::new(env!("CARGO"))
        .current_dir(folder.path())
        .args(["new", "--quiet", "--vcs", "none", "--lib", "mine"]));
    let mine = folder.path().join("mine");
    let manifest = fs::read_to_string(mine.join("Cargo.toml")).unwrap();
    let (head, rest) = manifest.split_once("[dependencies]").unwrap();
    assert_eq!(rest.trim(), "", "it is to be put in place of the empty section");
    let sdk = root().join("plugins/sdk").display().to_string();
    let added = block("toml", "cdylib").replace("../bantam/plugins/sdk", &sdk);
    assert!(added.contains(&sdk));
    fs::write(mine.join("Cargo.toml"), head.to_owned() + &added).unwrap();
    fs::write(mine.join("src/lib.rs"), block("rust", "struct Mine")).unwrap();
    // The versions that are here already: nothing is fetched.
    fs::copy(root().join("Cargo.lock"), mine.join("Cargo.lock")).unwrap();
    (folder, mine)
}

/// Builds the template and puts what came out into a directory of its own.
fn built(mine: &Path, flags: &[&str], file: &str) -> tempfile::TempDir {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("template");
    let mut cargo = Command::new(env!("CARGO"));
    // Quickly, not well: it is asked once.
    cargo.current_dir(mine).env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
    cargo.args(["build", "--quiet", "--offline", "--release", "--target-dir"]).arg(&target).args(flags);
    run(&mut cargo);
    let plugins = tempfile::tempdir().unwrap();
    fs::copy(target.join(file), plugins.path().join(Path::new(file).file_name().unwrap())).unwrap();
    plugins
}

/// Logits of some tokens.
fn logits(file: &str, more: &[&str]) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("logits").display().to_string();
    json(&[&["probe", file, "--tokens", "5,6,7,8,9", "--check", "all", "--logits", &to], more].concat());
    f32_file(Path::new(&to))
}

#[test]
fn the_template_works_as_a_library_and_as_webassembly() {
    let (folder, mine) = template();
    let file = folder.path().join("mine.gguf");
    renamed("mine", &file);
    let expected = logits(&model("llama-dense"), &[]);
    let by = |plugins: &Path| logits(file.to_str().unwrap(), &["--plugins", plugins.to_str().unwrap()]);
    let library = format!("release/{}mine{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    assert_eq!(by(built(&mine, &[], &library).path()), expected);
    let shell = block("sh", "--target wasm32-unknown-unknown");
    let target = shell.lines().next().unwrap().split_whitespace().last().unwrap();
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap().stdout;
    let sysroot = PathBuf::from(String::from_utf8(sysroot).unwrap().trim());
    if !sysroot.join("lib/rustlib").join(target).join("lib").is_dir() {
        eprintln!("skipped: `rustup target add {target}` to run it");
        return;
    }
    let module = format!("{target}/release/mine.wasm");
    assert!(shell.contains(&module), "{shell}");
    assert_eq!(by(built(&mine, &["--target", target], &module).path()), expected);
}

#[test]
fn the_command_for_c_makes_a_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let example = root().join("plugins/minimal-c").display().to_string();
    let source = format!("#include \"{example}/minimal.c\"\n#include \"{example}/json.c\"\n");
    fs::write(folder.path().join("mine.c"), source).unwrap();
    fs::create_dir(folder.path().join("plugins")).unwrap();
    let shell = block("sh", "cc -std=c99");
    let line = shell.lines().find(|line| line.starts_with("cc ")).unwrap();
    let line = line.replace("/path/to/bantam", root().to_str().unwrap());
    run(Command::new("sh").current_dir(folder.path()).args(["-c", &line]));
    let plugins = folder.path().join("plugins").display().to_string();
    let told = json(&["plugins", "--json", "--plugins", &plugins]);
    assert_eq!(told[0]["name"], "Minimal", "{told}");
}

#[test]
fn messages_on_the_page_are_what_the_host_reads() {
    let request = block("json", "\"model\":{\"checkpoint\"");
    BuildRequest::from_slice(request.as_bytes()).unwrap();
    Description::from_slice(block("json", "\"version\":\"1.0.0\"").as_bytes()).unwrap();
    let errors = block("json", "\"error\"");
    assert_eq!(errors.lines().count(), 3);
    for line in errors.lines() {
        let answer = BuildAnswer::from_slice(line.as_bytes()).unwrap();
        assert!(matches!(answer, BuildAnswer::Error(_)), "{line}");
    }
}

#[test]
fn the_cuda_source_on_the_page_is_the_examples() {
    let example = fs::read_to_string(root().join("plugins/own-op/src/swiglu.cu")).unwrap();
    assert_eq!(block("cpp", "bantam_op"), example);
}
