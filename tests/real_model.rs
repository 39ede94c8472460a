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

/// Rounding activations to 8 bits moves logits by about this much, here and in the other engine alike: what it chooses by
/// less may be chosen otherwise here, and then the texts part.
const ROUNDING: f64 = 0.2;

/// By how much each of a prompt's greedy tokens is behind the one chosen here, each behind the other engine's tokens before
/// it; 0 where the choice is the same.
fn behind_the_choice(model: &str, prompt: &Value) -> Vec<f64> {
    let greedy = prompt["greedy"].as_array().unwrap();
    let ids = prompt["ids"].as_array().unwrap();
    let all: Value = ids.iter().chain(greedy).cloned().collect();
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("logits.f32");
    let report = json(&["probe", model, "--tokens", &list(&all), "--logits", file.to_str().unwrap()]);
    let rows = f32_file(&file);
    let rows = rows.chunks_exact(report["vocab"].as_u64().unwrap() as usize).skip(ids.len() - 1);
    let behind = |(row, token): (&[f32], &Value)| {
        let best = row.iter().copied().fold(f32::MIN, f32::max);
        f64::from(best - row[token.as_u64().unwrap() as usize])
    };
    rows.zip(greedy).map(behind).collect()
}

#[test]
fn the_demo_model_says_what_other_engines_say() {
    let Some(model) = real_model() else { return };
    let Some(expect) = expectations(&model) else { return println!("skipped: not the demo model") };
    for prompt in expect["prompts"].as_array().unwrap() {
        let greedy = prompt["greedy"].as_array().unwrap();
        if prompt["greedy_min_gap_f32"].as_f64().unwrap() > ROUNDING {
            let count = greedy.len().to_string();
            let report = json(&["probe", &model, "--tokens", &list(&prompt["ids"]), "--greedy", &count]);
            assert_eq!(report["greedy"].as_array().unwrap(), greedy, "{}", prompt["text"]);
        }
        let behind = behind_the_choice(&model, prompt);
        assert!(behind.iter().all(|by| *by <= ROUNDING), "{}: {behind:?}", prompt["text"]);
        let alike = behind.iter().filter(|by| **by == 0.0).count();
        assert!(100 * alike >= 95 * greedy.len(), "{}: {alike} of {}", prompt["text"], greedy.len());
    }
}

#[test]
fn a_prompt_is_rendered_and_answered_as_elsewhere() {
    let Some(model) = real_model() else { return };
    let Some(expect) = expectations(&model) else { return println!("skipped: not the demo model") };
    let prompt = &expect["prompts"][0];
    let text = prompt["text"].as_str().unwrap();
    let count = prompt["greedy"].as_array().unwrap().len().to_string();
    let said = succeed(&["generate", &model, "--prompt", text, "--temperature", "0", "--max-tokens", &count]);
    assert_eq!(said, prompt["greedy_text"].as_str().unwrap());
}

#[test]
fn the_demo_models_surprise_at_a_text_is_that_of_exact_arithmetic() {
    let Some(model) = real_model() else { return };
    let Some(expect) = expectations(&model) else { return println!("skipped: not the demo model") };
    let nll = &expect["nll"];
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("logits.f32");
    let report = json(&["probe", &model, "--tokens", &list(&nll["ids"]), "--logits", file.to_str().unwrap()]);
    let rows = f32_file(&file);
    let rows = rows.chunks_exact(report["vocab"].as_u64().unwrap() as usize);
    let next = nll["ids"].as_array().unwrap().iter().skip(1).map(|id| id.as_u64().unwrap() as usize);
    let losses: Vec<f64> = rows.zip(next).map(|(row, id)| surprise(row, id)).collect();
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    assert!((mean - nll["mean_f32"].as_f64().unwrap()).abs() < 0.03, "{mean} of {}", nll["mean_f32"]);
}

/// Minus the natural logarithm of a token's probability.
fn surprise(logits: &[f32], id: usize) -> f64 {
    let largest = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    sum.ln() - f64::from(logits[id] - largest)
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
        // The other engine's own largest distance to exact arithmetic is 0.66.
        assert!(worst < 0.6, "{}: {worst}", prompt["text"]);
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
