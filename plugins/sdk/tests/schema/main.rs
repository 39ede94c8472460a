//! The published schema is the one of the types, and takes what families answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod answers;
mod mutations;

use std::{fs, path::Path};

use bantam_plugin_sdk::family::wire::{self, BuildRequest, schema::schema};
use serde_json::{Value, json};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn the_published_schema_is_the_one_of_the_types() {
    let path = repository().join("plugins/plugin.schema.json");
    let found = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("BANTAM_WRITE_FIXTURES").is_some() {
        fs::write(&path, &found).unwrap();
    }
    assert!(fs::read_to_string(path).unwrap() == found, "set BANTAM_WRITE_FIXTURES to write it anew");
}

/// A validator of one kind of message.
fn validator(definition: &str) -> jsonschema::Validator {
    let mut root = schema();
    root.as_object_mut().unwrap().remove("anyOf");
    root["$ref"] = json!(format!("#/$defs/{definition}"));
    jsonschema::validator_for(&root).unwrap()
}

#[test]
fn it_takes_what_every_family_is_asked_and_answers() {
    let (requests, answers) = (validator("BuildRequest"), validator("BuildAnswer"));
    let mut seen = 0;
    for checkpoint in answers::checkpoints() {
        let family = bantam_families::family(&checkpoint.architecture).unwrap();
        let request = BuildRequest::Model { checkpoint }.to_vec().unwrap();
        let answer = wire::answer(family, &request);
        for (validator, message) in [(&requests, &request), (&answers, &answer)] {
            let message: Value = serde_json::from_slice(message).unwrap();
            assert!(message.get("error").is_none(), "{message}");
            let errors: Vec<String> = validator.iter_errors(&message).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:?}");
        }
        let said: Value = serde_json::from_slice(&wire::description(family, "1.0.0")).unwrap();
        assert!(validator("Description").is_valid(&said), "{said}");
        seen += 1;
    }
    assert!(seen > 20, "{seen} models");
}

#[test]
fn it_refuses_what_is_not_known() {
    let answers = validator("BuildAnswer");
    let refusal = |error: Value| json!({"bantam_plugin": 0, "error": error});
    assert!(answers.is_valid(&refusal(json!({"message": "no"}))));
    assert!(answers.is_valid(&refusal(json!({"key": "k", "expected": "e", "found": "f"}))));
    assert!(!answers.is_valid(&refusal(json!({"key": "k", "tensor": "t", "expected": "e", "found": "f"}))));
    assert!(!answers.is_valid(&refusal(json!({"message": "no", "surprise": 1}))));
    assert!(!answers.is_valid(&json!({"error": {"message": "no"}})));
    assert!(!answers.is_valid(&json!({"bantam_plugin": 1, "error": {"message": "no"}})));
}
