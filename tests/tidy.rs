//! Rules of the tree that the compiler does not know: which crate may use which, and what no file may contain.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const LONGEST_FILE: usize = 800;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A text file of the project, by its path from the root.
struct Source {
    path: String,
    text: String,
}

/// Every file of the project that people write, fixtures aside.
fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    walk(root(), &mut paths);
    paths.sort();
    let relative = |path: &PathBuf| path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
    paths.iter().map(|path| Source { path: relative(path), text: fs::read_to_string(path).unwrap() }).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with("target") && ![".git", "fixtures", "node_modules", "dist"].contains(&name.as_str()) {
                walk(&path, found);
            }
        } else if is_written(&name) {
            found.push(path);
        }
    }
}

fn is_written(name: &str) -> bool {
    const KINDS: &[&str] = &["rs", "toml", "md", "sh", "ts", "tsx", "js", "css", "html", "yml"];
    name == "run" || Path::new(name).extension().is_some_and(|kind| KINDS.iter().any(|k| kind == *k))
}

fn fail_if_any(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

/// Lines of all sources for which `wrong` says what is wrong.
fn offending_lines(wrong: impl Fn(&str, &str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources() {
        for (number, line) in source.text.split('\n').enumerate() {
            found.extend(wrong(&source.path, line).map(|why| format!("{}:{}: {why}", source.path, number + 1)));
        }
    }
    found
}

#[test]
fn every_rust_file_begins_with_its_documentation() {
    let bare = |s: &&Source| s.path.ends_with(".rs") && !s.text.starts_with("//! ");
    let found: Vec<String> = sources().iter().filter(bare).map(|s| s.path.clone()).collect();
    fail_if_any("a file begins with //! and a sentence that says what it is for", &found);
}

#[test]
fn no_file_is_too_long_to_read() {
    let lines = |s: &Source| s.text.lines().count();
    let long = |s: &&Source| s.path.ends_with(".rs") && lines(s) > LONGEST_FILE;
    let found: Vec<String> = sources().iter().filter(long).map(|s| format!("{}: {} lines", s.path, lines(s))).collect();
    fail_if_any("a file has at most 800 lines; split it by its jobs", &found);
}

#[test]
fn lines_end_cleanly() {
    let found = offending_lines(|_, line| {
        (line.ends_with(|c: char| c.is_whitespace())).then(|| "white space at the end".to_owned())
    });
    fail_if_any("no white space at the ends of lines", &found);
    let open: Vec<String> = sources().iter().filter(|s| !s.text.ends_with('\n')).map(|s| s.path.clone()).collect();
    fail_if_any("a file ends with a newline", &open);
}

#[test]
fn nothing_is_left_for_later_and_no_machine_is_named() {
    // Written apart, so that this file passes its own test.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
        concat!("pypi", ".org"),
        concat!("index", "-url"),
    ];
    let found = offending_lines(|_, line| words.iter().find(|w| line.contains(*w)).map(|w| format!("contains {w}")));
    fail_if_any("no notes for later, no paths of a machine, no registry addresses", &found);
}

/// The rooms that a crate of `room` may use, beside its own.
fn allowed(room: &str) -> &'static [&'static str] {
    match room {
        "kernels" | "web" => &[],
        "families" => &["kernels/graph"],
        "plugins" => &["kernels/graph", "families/api", "families/blocks"],
        "runtime" => &["kernels", "families"],
        "protocols" => &["runtime", "web"],
        "" => &["kernels", "families", "runtime", "protocols", "web"],
        other => panic!("{other}: a room that this test does not know; say what it may use"),
    }
}

/// Folder of each workspace crate by name, from the root's `bantam-x = { path = "…" }` lines.
fn crate_folder(name: &str) -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let line = manifest.lines().find(|line| line.starts_with(&format!("{name} = {{ path")));
    let line = line.unwrap_or_else(|| panic!("{name} is not in [workspace.dependencies]"));
    line.split('"').nth(1).unwrap().to_owned()
}

/// Names of the `[dependencies]` of a manifest that are crates of this workspace.
fn own_dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("bantam-")).map(str::to_owned).collect()
}

#[test]
fn dependencies_point_one_way() {
    let mut found = Vec::new();
    let mut seen = 0;
    for source in sources().iter().filter(|s| s.path.ends_with("Cargo.toml")) {
        let folder = source.path.trim_end_matches("Cargo.toml").trim_end_matches('/');
        let room = folder.split('/').next().unwrap();
        for name in own_dependencies(&source.text) {
            seen += 1;
            let target = crate_folder(&name);
            let within = |place: &&str| target == **place || target.starts_with(&format!("{place}/"));
            if !within(&room) && !allowed(room).iter().any(within) {
                found.push(format!("{} uses {name} ({target})", source.path));
            }
        }
    }
    assert!(seen > 10, "the manifests were not understood: {seen} dependencies found");
    fail_if_any("kernels <- families <- runtime <- protocols", &found);
}

/// Names of the families: the files and folders of `families/src` that are no plumbing.
fn family_names() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("families/src")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().trim_end_matches(".rs").to_owned());
    names.filter(|name| !["lib", "registry", "chat", "hf"].contains(&name.as_str())).collect()
}

#[test]
fn no_kernel_or_runtime_item_bears_a_familys_name() {
    let families = family_names();
    assert!(families.contains("llama") && families.contains("deepseek"), "{families:?}");
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| s.path.ends_with(".rs")) {
        let general = source.path.starts_with("kernels/") || source.path.starts_with("runtime/");
        // Checkpoints name text splitting and chat formats after families: there the names are data.
        if !general || source.path.starts_with("runtime/text/") || source.path.contains("/tests/") {
            continue;
        }
        let code = code_only(&source.text).to_lowercase();
        found.extend(families.iter().filter(|f| code.contains(*f)).map(|f| format!("{}: {f}", source.path)));
    }
    fail_if_any("what all families share is named after none of them", &found);
}

/// Rust source without comments and string literals.
fn code_only(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if c == '"' {
            string_length(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            code.push(c);
            c.len_utf8()
        };
        rest = &rest[skipped..];
    }
    code
}

/// Length of the string literal that `text` begins with.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn code_is_told_from_comments_and_strings() {
    assert_eq!(code_only("a // b\n\"c\\\"d\" e '\"' f"), "a \n e  f");
}

#[test]
fn every_test_program_is_documented() {
    let document = fs::read_to_string(root().join("docs/testing.md")).unwrap();
    let is_program = |s: &&Source| {
        let stem = s.path.trim_end_matches("/main.rs");
        let is_of_a_crate = s.path.ends_with(".rs") && !s.path.contains("src/");
        is_of_a_crate && Path::new(stem).parent().is_some_and(|folder| folder.ends_with("tests"))
    };
    let missing = |s: &&Source| !document.contains(&format!("`{}`", s.path));
    let found: Vec<String> = sources().iter().filter(is_program).filter(missing).map(|s| s.path.clone()).collect();
    fail_if_any("docs/testing.md tells of every test program", &found);
}

#[test]
fn the_readme_and_ci_run_the_same_tests() {
    let line = "cargo test --workspace --profile ci";
    for file in ["README.md", ".ci/run", "CONTRIBUTING.md"] {
        assert!(fs::read_to_string(root().join(file)).unwrap().contains(line), "{file} does not say `{line}`");
    }
}
