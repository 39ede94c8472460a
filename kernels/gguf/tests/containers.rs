//! The verdicts on a collection of good and hostile files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::PathBuf;

use bantam_gguf::{GgufError, GgufFile};
use serde_json::Value as Json;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf")
}

fn expectations(list: &str) -> Vec<Json> {
    let json: Json = serde_json::from_slice(&fs::read(fixtures().join("expect.json")).unwrap()).unwrap();
    json[list].as_array().unwrap().clone()
}

fn check(file: &str, expectation: &Json) {
    let result = GgufFile::open(fixtures().join(file));
    let accept = expectation["accept"].as_bool().unwrap();
    let why = &expectation["why"];
    match &result {
        Ok(model) if accept => {
            for tensor in model.tensors() {
                assert_eq!(model.tensor_bytes(tensor).unwrap().len(), tensor.bytes);
            }
        }
        Ok(_) => panic!("{file} was accepted, in spite of {why}"),
        Err(error) if accept => panic!("{error}, though it is {why}"),
        Err(error) => assert!(error.to_string().starts_with(fixtures().to_str().unwrap()), "{error}: no file named"),
    }
}

#[test]
fn every_file_gets_its_verdict() {
    let files = expectations("files");
    assert_eq!(files.len(), 67);
    for expectation in files {
        check(expectation["file"].as_str().unwrap(), &expectation);
    }
}

#[test]
fn every_set_of_shards_gets_its_verdict() {
    let splits = expectations("splits");
    assert_eq!(splits.len(), 8);
    for expectation in splits {
        check(expectation["first"].as_str().unwrap(), &expectation);
    }
}

fn message(file: &str) -> String {
    let message = GgufFile::open(fixtures().join(file)).unwrap_err().to_string();
    message.strip_prefix(&format!("{}/{file}: ", fixtures().display())).unwrap().to_owned()
}

#[test]
fn errors_name_the_part_what_was_expected_and_what_was_found() {
    for (file, expected) in [
        ("big-endian.gguf", "version: expected 2 or 3, little-endian, found a big-endian file of version 3"),
        (
            "type-removed-31.gguf",
            "tensor t: type: expected a known number format, found 31, the removed format Q4_0_4_4",
        ),
        ("type-unknown-43.gguf", "tensor t: type: expected a known number format, found 43, an unknown format"),
        ("align-48.gguf", "key general.alignment: expected a u32 that is a power of two, found u32 48"),
        ("align-u64.gguf", "key general.alignment: expected a u32 that is a power of two, found u64 32"),
        ("array-of-array.gguf", "key k: element type: expected no array of arrays, found 9"),
    ] {
        assert_eq!(message(file), expected);
    }
}

#[test]
fn a_later_shard_names_the_first() {
    let error = GgufFile::open(fixtures().join("split-good-00002-of-00003.gguf")).unwrap_err();
    let GgufError::NotFirstShard { first, .. } = error else { panic!("{error}") };
    assert_eq!(first, fixtures().join("split-good-00001-of-00003.gguf"));
}

#[test]
fn a_split_model_is_one_model() {
    let model = GgufFile::open(fixtures().join("split-good-00001-of-00003.gguf")).unwrap();
    assert_eq!(model.paths().len(), 3);
    let shards: Vec<_> = model.tensors().iter().map(|tensor| tensor.shard).collect();
    assert_eq!(shards, [0, 1, 2]);
    for tensor in model.tensors() {
        assert_eq!(model.tensor(&tensor.name), Some(tensor));
        let in_file = fs::read(model.paths().nth(tensor.shard).unwrap()).unwrap();
        assert_eq!(model.tensor_bytes(tensor).unwrap(), &in_file[tensor.offset..][..tensor.bytes]);
    }
}
