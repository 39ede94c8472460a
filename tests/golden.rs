//! Every model of `tests/fixtures/models`, through the real binary: logits near those of the authors' reference code, the
//! same greedy tokens, and the same bits however the tokens come. A new family is added by adding its folder.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{fs, path::PathBuf};

use serde_json::Value;
use support::{f32_file, fixture, json};

struct Golden {
    name: String,
    folder: PathBuf,
    expect: Value,
}

fn goldens() -> Vec<Golden> {
    let mut folders: Vec<PathBuf> = fs::read_dir(fixture("models")).unwrap().map(|e| e.unwrap().path()).collect();
    folders.sort();
    assert!(!folders.is_empty());
    let read = |folder: PathBuf| {
        let expect = fs::read(folder.join("expect.json")).unwrap();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        Golden { name, expect: serde_json::from_slice(&expect).unwrap(), folder }
    };
    folders.into_iter().map(read).collect()
}

impl Golden {
    fn model(&self) -> String {
        self.folder.join("model.gguf").display().to_string()
    }

    /// The model in each layout that there is: the file, and a directory of safetensors files.
    fn layouts(&self) -> Vec<String> {
        let directory = self.folder.join("hf");
        let directory = directory.is_dir().then(|| directory.display().to_string());
        std::iter::once(self.model()).chain(directory).collect()
    }

    /// The prompt as `--tokens` takes it.
    fn tokens(&self) -> String {
        let prompt = self.expect["prompt"].as_array().unwrap();
        prompt.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
    }

    fn greedy(&self) -> &Vec<Value> {
        self.expect["greedy"].as_array().unwrap()
    }

    /// Largest difference allowed between our logits and the reference's.
    fn tolerance(&self) -> f32 {
        2e-3 * self.expect["logits_std"].as_f64().unwrap().max(1.0) as f32
    }
}

/// A probe; on a card where `BANTAM_TEST_CARD` names one (`tests/device.sh`).
fn probe(arguments: &[&str]) -> Value {
    let card = std::env::var("BANTAM_TEST_CARD").ok();
    let on: &[&str] = if card.is_some() { &["--backend", "cuda"] } else { &[] };
    json(&[&["probe"], arguments, on].concat())
}

#[test]
fn logits_and_greedy_tokens_are_the_references() {
    let scratch = tempfile::tempdir().unwrap();
    let logits = scratch.path().join("logits.f32");
    for golden in goldens() {
        let (count, tokens) = (golden.greedy().len().to_string(), golden.tokens());
        for model in golden.layouts() {
            let report =
                probe(&[&model, "--tokens", &tokens, "--greedy", &count, "--logits", logits.to_str().unwrap()]);
            assert_eq!(report["greedy"].as_array(), Some(golden.greedy()), "{model}");
            let (found, expected) = (f32_file(&logits), f32_file(&golden.folder.join("logits.f32")));
            assert_eq!(found.len(), expected.len(), "{model}");
            let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= golden.tolerance(), "{model}: {worst} > {}", golden.tolerance());
        }
    }
}

#[test]
fn every_way_of_computing_gives_the_same_bits() {
    for golden in goldens() {
        let report = probe(&[&golden.model(), "--tokens", &golden.tokens(), "--greedy", "8", "--check", "all"]);
        let checks = report["checks"].as_object().unwrap();
        assert!(!checks.is_empty());
        for (name, check) in checks {
            assert_eq!(check["max_diff"].as_f64(), Some(0.0), "{} {name}: {check}", golden.name);
            let evidence = check.as_object().unwrap().iter().filter(|(key, _)| *key != "max_diff");
            let shown = evidence.filter(|(_, value)| value.as_u64().is_some_and(|count| count > 0)).count();
            assert!(shown > 0, "{} {name}: nothing shows that it happened: {check}", golden.name);
        }
    }
}

#[test]
fn neither_threads_nor_chunks_change_a_bit() {
    let scratch = tempfile::tempdir().unwrap();
    for golden in goldens() {
        let run = |name: &str, flags: &[&str]| {
            let file = scratch.path().join(name);
            let (model, tokens) = (golden.model(), golden.tokens());
            let mut arguments = vec![model.as_str(), "--tokens", &tokens, "--logits", file.to_str().unwrap()];
            arguments.extend(flags);
            probe(&arguments);
            fs::read(&file).unwrap()
        };
        let whole = run("whole", &["--threads", "1"]);
        assert!(!whole.is_empty());
        for flags in [&["--threads", "3"][..], &["--chunk", "5", "--threads", "2"]] {
            assert!(run("other", flags) == whole, "{}: {flags:?} changes the logits", golden.name);
        }
    }
}
