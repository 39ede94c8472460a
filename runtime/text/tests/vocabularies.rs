//! Real vocabularies against the ids of the models' own tokenizers.
//!
//! Two small vocabularies are in the repository. The large ones are read from `$BANTAM_FIXTURES/tokenizers` where that
//! is set; without it they are named as skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use bantam_gguf::GgufFile;
use bantam_text::{Specials, Tokenizer, TokenizerSpec};
use serde_json::Value;

fn in_repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers")
}

fn elsewhere() -> Option<PathBuf> {
    std::env::var_os("BANTAM_FIXTURES").map(|root| Path::new(&root).join("tokenizers"))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap().try_into().unwrap()).collect()
}

/// Builds the tokenizer that a file of cases asks for.
fn tokenizer(directory: &Path, cases: &Value) -> Tokenizer {
    let file = GgufFile::open(directory.join(cases["gguf"].as_str().unwrap())).unwrap();
    let mut spec = TokenizerSpec::from_gguf(file.metadata()).unwrap();
    spec.pre = cases["pre"].as_str().map(str::to_owned);
    Tokenizer::new(spec).unwrap()
}

/// Checks every case of one file and returns what is not as it should be.
fn failures(directory: &Path, name: &str) -> Vec<String> {
    let cases = json(&directory.join(format!("cases-{name}.json")));
    let tokenizer = tokenizer(directory, &cases);
    let mut failures = Vec::new();
    for case in cases["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        for (field, specials) in [("want", Specials::Parse), ("want_plain", Specials::Plain)] {
            let (want, found) = (ids(&case[field]), tokenizer.encode(text, specials).unwrap());
            if want != found {
                failures.push(format!("{name}: {text:?} {field}: expected {want:?}, found {found:?}"));
            }
        }
        let want = case.get("decoded").map_or(text, |decoded| decoded.as_str().unwrap());
        let decoded = tokenizer.decode(&ids(&case["want"]), false);
        let decoded = String::from_utf8_lossy(&decoded);
        if want != decoded {
            failures.push(format!("{name}: decoding: expected {want:?}, found {decoded:?}"));
        }
    }
    failures
}

#[test]
fn small_vocabularies_give_the_ids_of_the_models_own_tokenizers() {
    for name in ["smollm2", "llama-spm"] {
        assert_eq!(failures(&in_repository(), name), Vec::<String>::new());
    }
}

#[test]
fn large_vocabularies_give_the_ids_of_the_models_own_tokenizers() {
    let Some(directory) = elsewhere() else {
        eprintln!("skipped: BANTAM_FIXTURES is not set");
        return;
    };
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            Some(name.strip_prefix("cases-")?.strip_suffix(".json")?.to_owned())
        })
        .collect();
    names.sort();
    let failures: Vec<String> = names.iter().flat_map(|name| failures(&directory, name)).collect();
    assert_eq!(failures, Vec::<String>::new(), "of {names:?}");
}

/// The models among the large fixtures, with their expectations.
fn models(expectations: &str) -> Vec<(String, Tokenizer, Value)> {
    let Some(root) = std::env::var_os("BANTAM_FIXTURES") else {
        eprintln!("skipped: BANTAM_FIXTURES is not set");
        return Vec::new();
    };
    let directories = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let load = |directory: PathBuf| {
        let (expected, file) = (directory.join(expectations), directory.join("model.gguf"));
        if !expected.exists() || !file.exists() {
            return None;
        }
        let file = GgufFile::open(file).unwrap();
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        file.metadata().value("tokenizer.ggml.model")?;
        Some((name, Tokenizer::from_gguf(file.metadata()).unwrap(), json(&expected)))
    };
    directories.filter_map(load).collect()
}

#[test]
fn models_give_the_recorded_ids() {
    for (name, tokenizer, expected) in models("expect.json") {
        for case in expected["tokenize"].as_array().into_iter().flatten() {
            let found = tokenizer.encode(case["text"].as_str().unwrap(), Specials::Parse).unwrap();
            assert_eq!(found, ids(&case["ids"]), "{name}: {}", case["text"]);
        }
    }
    for (name, tokenizer, expected) in models("text.json") {
        assert_eq!(tokenizer.add_bos(), expected["tokenizer"]["bos_added"], "{name}");
        for case in expected["tokenizer"]["vectors"].as_array().unwrap() {
            // llama.cpp takes some control tokens of these vectors for user-defined ones; parsed they are the same.
            let (specials, want) = match &case["ids_parse_special"] {
                Value::Null => (Specials::Plain, &case["ids"]),
                parsed => (Specials::Parse, parsed),
            };
            let found = tokenizer.encode(case["text"].as_str().unwrap(), specials).unwrap();
            assert_eq!(found, ids(want), "{name}: {}", case["text"]);
            let decoded = tokenizer.decode(&found, false);
            assert_eq!(String::from_utf8_lossy(&decoded), case["decoded"].as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn embedding_models_frame_texts_as_recorded() {
    for (name, tokenizer, expected) in models("expect.json") {
        for item in expected["items"].as_array().into_iter().flatten().filter(|item| !item["token_ids"].is_null()) {
            let found = tokenizer.frame(tokenizer.encode(item["text"].as_str().unwrap(), Specials::Plain).unwrap());
            assert_eq!(found, ids(&item["token_ids"]), "{name}: {}", item["text"]);
        }
    }
}

#[test]
fn checkpoints_give_the_ids_of_their_gguf() {
    let Some(root) = std::env::var_os("BANTAM_FIXTURES").map(PathBuf::from) else {
        eprintln!("skipped: BANTAM_FIXTURES is not set");
        return;
    };
    let texts = json(&root.join("tokenizers/splits.json"))["texts"].clone();
    for (name, tokenizer, _) in models("expect.json") {
        let Ok(description) = std::fs::read(root.join(&name).join("hf/tokenizer.json")) else { continue };
        let from_json = Tokenizer::from_hf_json(&description, None).unwrap();
        for text in texts.as_array().unwrap() {
            let text = text.as_str().unwrap();
            let want = tokenizer.encode(text, Specials::Parse).unwrap();
            assert_eq!(from_json.encode(text, Specials::Parse).unwrap(), want, "{name}: {text:?}");
        }
    }
}
