//! Golden models through the whole engine on an emulated card: logits and greedy tokens of the reference, and the same bits
//! whatever way tokens come. One model for each way in which state grows; `BANTAM_TEST_FIXTURE` (a part of a name) chooses others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bantam_cuda::CudaBackend;
use bantam_cuda_emulated::Emulated;
use bantam_runtime::{
    hardware::Hardware,
    probe::{ProbeConfig, ProbeReport, run},
};
use serde_json::Value;

/// Per token; per token with experts; window and per token; recurrent.
const CHOSEN: &[&str] = &["qwen3-dense", "qwen3moe-a", "gemma3-dense", "qwen35-dense"];

fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
    let mut models: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    models.sort();
    models
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| u32::try_from(v.as_u64().unwrap()).unwrap()).collect()
}

fn check(folder: &Path, expect: &Value, report: &ProbeReport) {
    let name = folder.display();
    let wanted = std::fs::read(folder.join("logits.f32")).unwrap();
    let wanted = wanted.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
    assert_eq!(wanted.len(), report.logits.len(), "{name}");
    let worst = wanted.zip(&report.logits).fold(0.0, |worst: f32, (a, b)| worst.max((a - b).abs()));
    let bound = 2e-3 * expect["logits_std"].as_f64().unwrap().max(1.0) as f32;
    assert!(worst <= bound, "{name}: logits differ by {worst}, allowed {bound}");
    assert_eq!(report.greedy, ids(&expect["greedy"]), "{name}");
    for (check, result) in &report.checks {
        assert_eq!(result.max_diff, 0.0, "{name}: {check}");
        assert!(result.evidence.values().all(|n| *n > 0), "{name}: {check} shows nothing: {result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulated_card_agrees_with_the_reference_and_itself() {
    let asked = std::env::var("BANTAM_TEST_FIXTURE").ok();
    let is_chosen = |folder: &PathBuf| {
        let name = folder.file_name().unwrap().to_string_lossy();
        asked.as_ref().map_or_else(|| CHOSEN.contains(&name.as_ref()), |asked| name.contains(asked.as_str()))
    };
    let models: Vec<PathBuf> = models().into_iter().filter(is_chosen).collect();
    assert!(!models.is_empty() && (asked.is_some() || models.len() == CHOSEN.len()));
    for folder in models {
        let expect: Value = serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap();
        let config = ProbeConfig {
            greedy: ids(&expect["greedy"]).len(),
            hardware: Hardware::Given(Arc::new(CudaBackend::on(Arc::new(Emulated::new())))),
            checks: vec!["all".into()],
            ..ProbeConfig::new(folder.join("model.gguf"), ids(&expect["prompt"]))
        };
        check(&folder, &expect, &run(config).await.unwrap());
    }
}
