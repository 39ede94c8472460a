//! What a family knows of its vocabulary stands in for what a file does not say, and for names that nobody knows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use bantam_family_api::{PreTokenizer, TokenizerHints, TokenizerModel};
use bantam_gguf::{GgufFile, writer::GgufWriter};
use bantam_text::{Specials, Tokenizer, TokenizerError};

fn vocabularies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers")
}

/// A vocabulary with other values of some keys; `None`: without the key.
fn with(file: &str, keys: &[(&str, Option<&str>)], hints: &TokenizerHints) -> Result<Tokenizer, TokenizerError> {
    let file = GgufFile::open(vocabularies().join(file)).unwrap();
    let mut writer = GgufWriter::new();
    let replaced = |key: &str| keys.iter().any(|(name, _)| key == format!("tokenizer.ggml.{name}"));
    for (key, value) in file.metadata().iter().filter(|(key, _)| !replaced(key)) {
        writer.key(key, value.clone());
    }
    for (name, value) in keys {
        value.map(|value| writer.key(format!("tokenizer.ggml.{name}"), value));
    }
    Tokenizer::from_gguf_with(GgufFile::from_bytes("hinted.gguf", writer.to_bytes()).unwrap().metadata(), hints)
}

/// The pattern of SmolLM2's vocabulary: each digit alone, then GPT-2's.
fn hints() -> TokenizerHints {
    let gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    TokenizerHints {
        model: Some(TokenizerModel::ByteLevel),
        pre: Some(PreTokenizer { patterns: vec![r"\p{N}".into(), gpt2.into()], ..PreTokenizer::default() }),
        ..TokenizerHints::default()
    }
}

fn texts() -> Vec<String> {
    let cases: serde_json::Value =
        serde_json::from_slice(&std::fs::read(vocabularies().join("cases-smollm2.json")).unwrap()).unwrap();
    cases["cases"].as_array().unwrap().iter().map(|case| case["text"].as_str().unwrap().into()).collect()
}

fn ids(tokenizer: &Tokenizer) -> Vec<Vec<u32>> {
    texts().iter().map(|text| tokenizer.encode(text, Specials::Parse).unwrap()).collect()
}

#[test]
fn a_described_pipeline_gives_the_ids_of_the_named_one() {
    let named = ids(&with("smollm2.gguf", &[], &TokenizerHints::default()).unwrap());
    for keys in [
        &[("pre", Some("nobody-knows"))][..],
        &[("pre", None)],
        &[("pre", Some("default"))],
        &[("pre", None), ("model", None)],
        &[("pre", None), ("model", Some("nobody-knows"))],
    ] {
        assert_eq!(ids(&with("smollm2.gguf", keys, &hints()).unwrap()), named, "{keys:?}");
    }
}

#[test]
fn the_file_has_the_first_word() {
    let wrong = TokenizerHints {
        model: Some(TokenizerModel::Unigram),
        pre: Some(PreTokenizer { patterns: vec![".".into()], ..PreTokenizer::default() }),
        ..TokenizerHints::default()
    };
    let [hinted, plain] = [wrong, TokenizerHints::default()].map(|hints| with("smollm2.gguf", &[], &hints).unwrap());
    assert_eq!(ids(&hinted), ids(&plain));
    let spaced = |hint| {
        let hints = TokenizerHints { add_bos: Some(false), add_space_prefix: Some(hint), ..TokenizerHints::default() };
        let keys = &[("add_bos_token", None), ("add_space_prefix", None)];
        let tokenizer = with("llama-spm.gguf", keys, &hints).unwrap();
        (tokenizer.add_bos(), tokenizer.encode("a", Specials::Plain).unwrap())
    };
    let ((bos, with_space), (_, without)) = (spaced(true), spaced(false));
    assert!(!bos && with_space != without);
}

#[test]
fn without_hints_unknown_names_are_refused() {
    let keys = &[("pre", Some("nobody-knows"))];
    let refused = with("smollm2.gguf", keys, &TokenizerHints::default()).unwrap_err().to_string();
    assert!(refused.contains("\"nobody-knows\""), "{refused}");
}

#[test]
fn patterns_that_are_not_linear_are_refused() {
    for pattern in [r"a(?=b)", r"(a)\1", r"a++", "["] {
        let pre = PreTokenizer { patterns: vec![pattern.into()], ..PreTokenizer::default() };
        let hints = TokenizerHints { pre: Some(pre), ..TokenizerHints::default() };
        let refused = with("smollm2.gguf", &[("pre", None)], &hints).unwrap_err().to_string();
        assert!(refused.contains("pre.patterns"), "{pattern}: {refused}");
    }
}
