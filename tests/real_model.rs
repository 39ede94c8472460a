//! A real checkpoint through the real binary. Opted in by `BANTAM_TEST_MODEL=FILE`; without it these tests check nothing
//! and say so. The demo model is compared with what other engines say about it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;

use serde_json::Value;
use support::{f32_file, fixture, json, succeed};

/// The model to test with, if there is one.
fn real_model() -> Option<String> {
    let model = std::env::var("BANTAM_TEST_MODEL").ok().filter(|model| !model.is_empty());
    if model.is_none() {
        println!("skipped: BANTAM_TEST_MODEL names no model");
    }
    model
}

/// What is known about the model, if it is the demo.
fn expectations(model: &str) -> Option<Value> {
    let expect: Value = serde_json::from_slice(&fs::read(fixture("real/smollm2-135m.expect.json")).unwrap()).unwrap();
    (fs::metadata(model).unwrap().len() == expect["bytes"].as_u64().unwrap()).then_some(expect)
}

fn list(ids: &Value) -> String {
    ids.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn the_demo_model_says_what_other_engines_say() {
    let Some(model) = real_model() else { return };
    let Some(expect) = expectations(&model) else { return println!("skipped: not the demo model") };
    for prompt in expect["prompts"].as_array().unwrap() {
        let greedy = prompt["greedy"].as_array().unwrap();
        let report = json(&["probe", &model, "--tokens", &list(&prompt["ids"]), "--greedy", &greedy.len().to_string()]);
        assert_eq!(report["greedy"].as_array(), Some(greedy), "{}", prompt["text"]);
        let text = prompt["text"].as_str().unwrap();
        let flags = ["--temperature", "0", "--max-tokens", &greedy.len().to_string()];
        let said = succeed(&[&["generate", &model, "--prompt", text], &flags[..]].concat());
        assert_eq!(Some(said.trim_end()), prompt["greedy_text"].as_str().map(str::trim_end), "{text}");
    }
}

#[test]
fn the_demo_models_logits_are_near_those_of_exact_arithmetic() {
    let Some(model) = real_model() else { return };
    let Some(expect) = expectations(&model) else { return println!("skipped: not the demo model") };
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("logits.f32");
    for prompt in expect["prompts"].as_array().unwrap() {
        let ids = list(&prompt["ids"]);
        let report = json(&["probe", &model, "--tokens", &ids, "--logits", file.to_str().unwrap()]);
        let logits = f32_file(&file);
        let last = &logits[logits.len() - report["vocab"].as_u64().unwrap() as usize..];
        let top = prompt["top20_ids"].as_array().unwrap().iter().zip(prompt["top20_logits_f32"].as_array().unwrap());
        let distance = |(id, logit): (&Value, &Value)| {
            (f64::from(last[id.as_u64().unwrap() as usize]) - logit.as_f64().unwrap()).abs()
        };
        let worst = top.map(distance).fold(0.0, f64::max);
        // The other engine's own distance to exact arithmetic is of this size.
        assert!(worst < 0.5, "{}: {worst}", prompt["text"]);
    }
}

#[test]
fn every_way_of_computing_gives_the_same_bits() {
    let Some(model) = real_model() else { return };
    let ids = json(&["tokenize", &model, "--text", &"The quick brown fox jumps over the lazy dog. ".repeat(4)]);
    let report = json(&["probe", &model, "--tokens", &list(&ids), "--greedy", "8", "--check", "all"]);
    let checks = report["checks"].as_object().unwrap();
    assert!(!checks.is_empty());
    for (name, check) in checks {
        assert_eq!(check["max_diff"].as_f64(), Some(0.0), "{name}: {check}");
    }
}
