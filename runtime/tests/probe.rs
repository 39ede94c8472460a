//! Golden models through the whole engine: logits close to the reference, and the same bits whatever way tokens come.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use bantam_runtime::probe::{ProbeConfig, ProbeReport, run};
use serde_json::Value;

fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
    let mut models: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    models.sort();
    models
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| u32::try_from(v.as_u64().unwrap()).unwrap()).collect()
}

async fn probe(model: PathBuf, tokens: Vec<u32>, greedy: usize) -> ProbeReport {
    run(ProbeConfig { greedy, threads: 2, checks: vec!["all".into()], ..ProbeConfig::new(model, tokens) })
        .await
        .unwrap()
}

/// The model in each layout that there is: a file, and a directory of safetensors files.
fn layouts(folder: &Path) -> Vec<PathBuf> {
    let directory = folder.join("hf");
    std::iter::once(folder.join("model.gguf")).chain(directory.is_dir().then_some(directory)).collect()
}

fn largest_difference(found: &[f32], folder: &Path) -> f32 {
    let wanted = std::fs::read(folder.join("logits.f32")).unwrap();
    let wanted = wanted.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    assert_eq!(wanted.len(), found.len());
    wanted.zip(found).fold(0.0, |worst: f32, (a, b)| worst.max((a - b).abs()))
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_models_agree_with_their_reference_and_themselves() {
    for folder in models() {
        let expect: Value = serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap();
        let greedy = ids(&expect["greedy"]);
        for model in layouts(&folder) {
            let name = model.display().to_string();
            let report = probe(model, ids(&expect["prompt"]), greedy.len()).await;
            let bound = 2e-3 * expect["logits_std"].as_f64().unwrap().max(1.0) as f32;
            let worst = largest_difference(&report.logits, &folder);
            assert!(worst <= bound, "{name}: logits differ by {worst}, allowed {bound}");
            assert_eq!(report.greedy, greedy, "{name}");
            for (check, result) in &report.checks {
                assert_eq!(result.max_diff, 0.0, "{name}: {check}");
                assert!(result.evidence.values().all(|n| *n > 0), "{name}: {check} shows nothing: {result:?}");
            }
        }
    }
}
