//! A real checkpoint through the real binary. Opted in by `BANTAM_TEST_MODEL=FILE`; without it these tests check nothing
//! and say so. Models that other engines were asked about are compared with what these say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::{fs, io::BufWriter, path::Path};

use bantam_gguf::{GgufFile, dequantize, writer::GgufWriter};
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

/// What other engines say about the model, if it is one of those that were asked about.
fn expectations(model: &str) -> Option<Value> {
    let bytes = fs::metadata(model).unwrap().len();
    let read = |name| serde_json::from_slice(&fs::read(fixture(name)).unwrap()).unwrap();
    let known: [Value; 2] = ["real/smollm2-135m.expect.json", "real/gemma3-270m.expect.json"].map(read);
    known.into_iter().find(|expect| expect["bytes"].as_u64() == Some(bytes))
}

fn list(ids: &Value) -> String {
    ids.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

/// Logits behind each token of a text: rows of the model's vocabulary.
fn logits(model: &str, ids: &str) -> Vec<Vec<f32>> {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("logits.f32");
    let report = json(&["probe", model, "--tokens", ids, "--logits", file.to_str().unwrap()]);
    f32_file(&file).chunks_exact(report["vocab"].as_u64().unwrap() as usize).map(<[f32]>::to_vec).collect()
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
    let rows = logits(model, &list(&all)).into_iter().skip(ids.len() - 1);
    let behind = |(row, token): (Vec<f32>, &Value)| {
        let best = row.iter().copied().fold(f32::MIN, f32::max);
        f64::from(best - row[token.as_u64().unwrap() as usize])
    };
    rows.zip(greedy).map(behind).collect()
}

#[test]
fn a_known_model_says_what_other_engines_say() {
    let Some(model) = real_model() else { return };
    let Some(expect) = expectations(&model) else { return println!("skipped: not a model that is known") };
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
    let Some(expect) = expectations(&model) else { return println!("skipped: not a model that is known") };
    let prompt = &expect["prompts"][0];
    let text = prompt["text"].as_str().unwrap();
    let count = prompt["greedy"].as_array().unwrap().len().to_string();
    let mut command = vec!["generate", &model, "--prompt", text, "--temperature", "0", "--max-tokens", &count];
    // A base model has no template.
    command.extend(prompt.get("rendered").is_none().then_some("--raw"));
    let said = succeed(&command);
    assert_eq!(said, prompt["greedy_text"].as_str().unwrap());
}

#[test]
fn a_known_models_surprise_at_a_text_is_that_of_exact_arithmetic() {
    let Some(model) = real_model() else { return };
    let Some(expect) = expectations(&model) else { return println!("skipped: not a model that is known") };
    let nll = &expect["nll"];
    let rows = logits(&model, &list(&nll["ids"]));
    let next = nll["ids"].as_array().unwrap().iter().skip(1).map(|id| id.as_u64().unwrap() as usize);
    let losses: Vec<f64> = rows.iter().zip(next).map(|(row, id)| surprise(row, id)).collect();
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
fn a_known_models_logits_are_near_those_of_exact_arithmetic() {
    let Some(model) = real_model() else { return };
    let Some(expect) = expectations(&model) else { return println!("skipped: not a model that is known") };
    for prompt in expect["prompts"].as_array().unwrap() {
        let rows = logits(&model, &list(&prompt["ids"]));
        let last = rows.last().unwrap();
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

/// Writes the model with all its weights as floats, which activations meet unrounded.
fn write_as_floats(model: &str, to: &Path) {
    let file = GgufFile::open(model).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        writer.key(key, value.clone());
    }
    for tensor in file.tensors() {
        let mut values = vec![0.0; tensor.elements() as usize];
        dequantize(tensor.ty, file.tensor_bytes(tensor).unwrap(), &mut values).unwrap();
        writer.tensor_f32(&tensor.name, &tensor.shape, &values);
    }
    writer.write(BufWriter::new(fs::File::create(to).unwrap())).unwrap();
}

/// Texts that the model is to be asked about token by token.
fn texts(model: &str) -> Vec<String> {
    let Some(expect) = expectations(model) else {
        let ids = json(&["tokenize", model, "--text", include_str!("../README.md")]);
        return vec![list(&ids.as_array().unwrap().iter().take(400).cloned().collect())];
    };
    let prompts = expect["prompts"].as_array().unwrap().iter();
    let answered = |prompt: &Value| {
        let ids = [&prompt["ids"], &prompt["greedy"]].map(|ids| ids.as_array().unwrap().clone());
        list(&ids.concat().into())
    };
    prompts.map(answered).chain([list(&expect["nll"]["ids"])]).collect()
}

/// The most likely token behind each one of a text.
fn choices(model: &str, ids: &str) -> Vec<usize> {
    let rows = logits(model, ids);
    rows.iter().map(|row| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()).collect()
}

#[test]
fn rounding_activations_keeps_the_choices() {
    let Some(model) = real_model() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let floats = scratch.path().join("floats.gguf");
    write_as_floats(&model, &floats);
    let (mut same, mut all) = (0, 0);
    for ids in texts(&model) {
        let (rounded, exact) = (choices(&model, &ids), choices(floats.to_str().unwrap(), &ids));
        same += rounded.iter().zip(&exact).filter(|(a, b)| a == b).count();
        all += exact.len();
    }
    assert!(100 * same >= 97 * all, "{same} of {all}");
    println!("{same} of {all} choices are those of unrounded activations");
}
