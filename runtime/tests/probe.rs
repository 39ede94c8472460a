//! Golden models through the whole engine: logits close to the reference, and the same bits whatever way tokens come.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use bantam_backend::KvType;
use bantam_gguf::{GgmlType, GgufFile, TensorInfo};
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

async fn probe(model: PathBuf, tokens: Vec<u32>, greedy: usize, [k_type, v_type]: [KvType; 2]) -> ProbeReport {
    let config = ProbeConfig { greedy, k_type, v_type, threads: 2, ..ProbeConfig::new(model, tokens) };
    run(ProbeConfig { checks: vec!["all".into()], ..config }).await.unwrap()
}

/// However the tokens came, the bits are the same.
fn assert_agreement(report: &ProbeReport, name: &str) {
    for (check, result) in &report.checks {
        assert_eq!(result.max_diff, 0.0, "{name}: {check}");
        assert!(result.evidence.values().all(|n| *n > 0), "{name}: {check} shows nothing: {result:?}");
    }
}

/// The model in each layout that there is: a file, and a directory of safetensors files.
fn layouts(folder: &Path) -> Vec<PathBuf> {
    let directory = folder.join("hf");
    std::iter::once(folder.join("model.gguf")).chain(directory.is_dir().then_some(directory)).collect()
}

fn reference_logits(folder: &Path) -> Vec<f32> {
    let bytes = std::fs::read(folder.join("logits.f32")).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn largest_difference(found: &[f32], folder: &Path) -> f32 {
    let wanted = reference_logits(folder);
    assert_eq!(wanted.len(), found.len());
    wanted.iter().zip(found).fold(0.0, |worst: f32, (a, b)| worst.max((a - b).abs()))
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_models_agree_with_their_reference_and_themselves() {
    for folder in models() {
        let expect: Value = serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap();
        let greedy = ids(&expect["greedy"]);
        for model in layouts(&folder) {
            let name = model.display().to_string();
            let report = probe(model, ids(&expect["prompt"]), greedy.len(), [KvType::F32; 2]).await;
            let bound = 2e-3 * expect["logits_std"].as_f64().unwrap().max(1.0) as f32;
            let worst = largest_difference(&report.logits, &folder);
            assert!(worst <= bound, "{name}: logits differ by {worst}, allowed {bound}");
            assert_eq!(report.greedy, greedy, "{name}");
            assert_agreement(&report, &name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_models_agree_with_themselves_on_rotated_caches() {
    for types in [[KvType::Turbo4, KvType::Turbo3], [KvType::Turbo3, KvType::Turbo4], [KvType::Q8_0, KvType::Turbo4]] {
        for folder in models() {
            let expect: Value = serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap();
            let model = folder.join("model.gguf");
            let report = probe(model, ids(&expect["prompt"]), ids(&expect["greedy"]).len(), types).await;
            assert_agreement(&report, &format!("{} in {types:?}", folder.display()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_used_as_they_are_give_the_same_bits() {
    for folder in models() {
        let expect: Value = serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap();
        for model in layouts(&folder) {
            let name = model.display().to_string();
            let of = |repack| {
                let config = ProbeConfig::new(model.clone(), ids(&expect["prompt"]));
                run(ProbeConfig { greedy: 4, threads: 2, repack, ..config })
            };
            let (packed, kept) = (of(true).await.unwrap(), of(false).await.unwrap());
            let bits = |report: &ProbeReport| report.logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!((bits(&packed), packed.greedy), (bits(&kept), kept.greedy), "{name}");
        }
    }
}

/// Whether each token passes the same weights: a router's near ties would hide what the cache's format does.
fn is_dense(folder: &Path) -> bool {
    let file = GgufFile::open(folder.join("model.gguf")).unwrap();
    file.metadata().iter().all(|(key, _)| !key.ends_with(".expert_count"))
}

fn best_two(row: &[f32]) -> (usize, f32) {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    (order[0], row[order[0]] - row[order[1]])
}

/// Positions, and those at which the compressed cache leaves the reference's choice as it was.
#[derive(Default)]
struct Agreement {
    positions: usize,
    kept: usize,
}

impl Agreement {
    fn count(&mut self, kept: bool) {
        self.positions += 1;
        self.kept += usize::from(kept);
    }

    fn add(&mut self, other: &Agreement) {
        self.positions += other.positions;
        self.kept += other.kept;
    }

    fn share(&self) -> f64 {
        self.kept as f64 / self.positions as f64
    }
}

/// The dense models.
fn dense_models() -> impl Iterator<Item = PathBuf> {
    models().into_iter().filter(|folder| is_dense(folder))
}

/// What a cache of these types keeps of a model's choices: of those that are clear by `margin` standard deviations, and of
/// all, in this order.
async fn kept_choices(folder: &Path, k_type: KvType, v_type: KvType, margin: f64) -> [Agreement; 2] {
    let expect: Value = serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap();
    let config = ProbeConfig::new(folder.join("model.gguf"), ids(&expect["prompt"]));
    let report = run(ProbeConfig { k_type, v_type, threads: 2, ..config }).await.unwrap();
    let near = (margin * expect["logits_std"].as_f64().unwrap()) as f32;
    let [mut clear, mut all] = [Agreement::default(), Agreement::default()];
    let wanted = reference_logits(folder);
    for (wanted, found) in wanted.chunks_exact(report.vocab).zip(report.logits.chunks_exact(report.vocab)) {
        let (choice, margin) = best_two(wanted);
        let kept = best_two(found).0 == choice;
        all.count(kept);
        if margin > near {
            clear.count(kept);
        }
    }
    [clear, all]
}

/// Random weights make attention sharp and the best tokens close, so that the eighth bit of a key decides near ties:
/// a single model answers for its clear choices, all of them together for every position.
#[tokio::test(flavor = "multi_thread")]
async fn compressed_caches_keep_the_choices_of_dense_models() {
    for kv in [KvType::F16, KvType::Bf16, KvType::Q8_0] {
        let mut all = Agreement::default();
        for folder in dense_models() {
            let [clear, every] = kept_choices(&folder, kv, kv, 0.05).await;
            all.add(&every);
            assert!(clear.share() >= 0.95, "{kv:?} {}: {:.3} of the clear choices", folder.display(), clear.share());
        }
        assert!(all.share() >= 0.95, "{kv:?}: {:.3} of all choices", all.share());
    }
}

/// Shares of the dense models' choices that a cache keeps: of those that are clear, and of all.
async fn shares(k_type: KvType, v_type: KvType) -> [f64; 2] {
    let mut sums = [Agreement::default(), Agreement::default()];
    for folder in dense_models() {
        let kept = kept_choices(&folder, k_type, v_type, 0.25).await;
        sums.iter_mut().zip(&kept).for_each(|(sum, kept)| sum.add(kept));
    }
    sums.map(|sum| sum.share())
}

/// Heads of 8 to 32 entries, keys of random weights: what few bits cost is worst here. Still most choices stay, and
/// each bit keeps more of them.
#[tokio::test(flavor = "multi_thread")]
async fn rotated_caches_keep_most_choices_of_dense_models() {
    let mut before = 1.0;
    for (k_type, v_type, least) in [
        (KvType::Q8_0, KvType::Q8_0, [0.99, 0.95]),
        (KvType::Q8_0, KvType::Turbo4, [0.85, 0.65]),
        (KvType::Turbo4, KvType::Turbo4, [0.75, 0.6]),
        (KvType::Turbo3, KvType::Turbo3, [0.5, 0.4]),
    ] {
        let [clear, all] = shares(k_type, v_type).await;
        println!("{k_type:?} {v_type:?}: {clear:.3} of the clear choices, {all:.3} of all");
        assert!(clear >= least[0] && all >= least[1], "{k_type:?} {v_type:?}: {clear:.3}, {all:.3}");
        assert!(all < before, "{k_type:?} {v_type:?} keeps {all:.3} of all choices, finer types {before:.3}");
        before = all;
    }
}

/// Layers of the model proper: behind them come those of a draft block.
fn trunk_layers(file: &GgufFile) -> u32 {
    let architecture: &str = file.metadata().require("general.architecture").unwrap();
    let count = |key: &str| file.metadata().get::<u32>(&format!("{architecture}.{key}")).unwrap().unwrap_or(0);
    count("block_count") - count("nextn_predict_layers")
}

/// A model's tensors by role: the same of every layer once.
fn roles(file: &GgufFile) -> Vec<&TensorInfo> {
    let layers = trunk_layers(file);
    let mut roles = BTreeMap::new();
    for tensor in file.tensors() {
        let role = match tensor.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((layer, _)) if layer.parse::<u32>().unwrap() >= layers => continue,
            Some((_, role)) => role,
            None => &tensor.name,
        };
        roles.entry(role).or_insert(tensor);
    }
    roles.into_values().collect()
}

/// Whatever weights are no numbers, they must not end as an answer that looks like any other.
#[tokio::test(flavor = "multi_thread")]
async fn weights_that_are_no_numbers_are_told_of() {
    for name in ["llama-dense", "gemma4-ple", "qwen35moe-a", "deepseek4-within", "nemotron_h_moe-super"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(name);
        let file = GgufFile::open(folder.join("model.gguf")).unwrap();
        let sound = std::fs::read(file.path()).unwrap();
        let expect: Value = serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        for tensor in roles(&file).into_iter().filter(|tensor| tensor.ty == GgmlType::F32) {
            let mut damaged = sound.clone();
            damaged[tensor.offset..][..tensor.bytes].fill(0xff);
            let path = scratch.path().join("model.gguf");
            std::fs::write(&path, damaged).unwrap();
            let tokens = ids(&expect["prompt"]);
            match run(ProbeConfig { greedy: 1, threads: 1, ..ProbeConfig::new(path, tokens) }).await {
                Err(error) => assert!(error.to_string().contains("not numbers"), "{name}: {}: {error}", tensor.name),
                // What picks keys makes no difference where all of them are picked.
                Ok(report) => assert!(tensor.name.contains("indexer"), "{name}: {}: {:?}", tensor.name, report.greedy),
            }
        }
    }
}
