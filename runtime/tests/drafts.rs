//! Drafts on the backend, behind the models that they are for, propose what the reference does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use bantam_gguf::GgufFile;
use bantam_plugins::Families;
use bantam_runtime::{
    load,
    probe::{DraftChoice, DraftReport, ProbeConfig, ProbeError, run},
};
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

fn folders(kind: &str) -> Vec<PathBuf> {
    let mut folders: Vec<_> = std::fs::read_dir(fixtures().join(kind)).unwrap().map(|e| e.unwrap().path()).collect();
    folders.sort();
    folders
}

fn expect(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// A sequence whose last token the model has not seen, and what its draft makes of it.
struct Case {
    name: String,
    model: PathBuf,
    choice: DraftChoice,
    tokens: Vec<u32>,
    logits: Vec<f32>,
    proposed: Vec<u32>,
}

fn numbers(file: PathBuf) -> Vec<f32> {
    let bytes = std::fs::read(file).unwrap();
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Drafts of models that a backend runs: in their checkpoint, and beside it.
fn within() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in folders("models") {
        let expect = expect(&folder);
        let Some(mtp) = expect.get("mtp") else { continue };
        let proposed = ["draft_greedy", "drafts", "draft_after_prompt"].into_iter().find_map(|key| mtp.get(key));
        let beside = folder.join("draft.gguf");
        let choices = [Some(DraftChoice::BuiltIn), beside.is_file().then_some(DraftChoice::File(beside))];
        cases.extend(choices.into_iter().flatten().map(|choice| Case {
            name: folder.file_name().unwrap().to_string_lossy().into(),
            model: folder.join("model.gguf"),
            choice,
            tokens: [ids(&expect["prompt"]), vec![ids(&expect["greedy"])[0]]].concat(),
            logits: numbers(folder.join(mtp["logits"].as_str().unwrap())),
            proposed: ids(proposed.unwrap()),
        }));
    }
    cases
}

/// Drafts without a model, for models that a backend runs.
fn apart() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in folders("drafts") {
        let expect = expect(&folder);
        let model = fixtures().join("models").join(expect["target"].as_str().unwrap()).join("model.gguf");
        if !model.is_file() {
            continue;
        }
        let case = |tokens, logits, proposed| Case {
            name: folder.file_name().unwrap().to_string_lossy().into(),
            model: model.clone(),
            choice: DraftChoice::File(folder.join("model.gguf")),
            tokens,
            logits,
            proposed,
        };
        let (tokens, logits) = (ids(&expect["tokens"]), numbers(folder.join("logits.f32")));
        if let Some(proposed) = expect.get("chain") {
            let first = expect["chain_first"].as_u64().unwrap() as u32;
            cases.push(case([tokens.clone(), vec![first]].concat(), logits.clone(), ids(proposed)));
        }
        let blocks = expect.get("cases").and_then(Value::as_array).into_iter().flatten();
        let vocab = expect["vocab"].as_u64().unwrap() as usize;
        cases.extend(blocks.map(|block| {
            let context = block["context"].as_u64().unwrap() as usize;
            let rows = ids(&block["rows"]);
            let logits = logits[rows[0] as usize * vocab..rows[1] as usize * vocab].to_vec();
            case(tokens[..=context].to_vec(), logits, ids(&block["draft"]))
        }));
    }
    cases
}

async fn draft(case: &Case, chunk: Option<usize>) -> Result<DraftReport, ProbeError> {
    let report = run(ProbeConfig {
        greedy: case.proposed.len(),
        chunk,
        threads: 2,
        draft: Some(case.choice.clone()),
        ..ProbeConfig::new(case.model.clone(), case.tokens.clone())
    });
    Ok(report.await?.draft.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn drafts_agree_with_their_reference_however_the_tokens_come() {
    let cases: Vec<Case> = within().into_iter().chain(apart()).collect();
    assert!(!cases.is_empty());
    for case in cases {
        let whole = draft(&case, None).await.unwrap();
        let found = &whole.logits[..case.logits.len()];
        let worst = found.iter().zip(&case.logits).fold(0.0, |worst: f32, (a, b)| worst.max((a - b).abs()));
        assert!(worst <= 4e-3, "{}: draft logits differ by {worst}", case.name);
        assert_eq!(whole.proposed, case.proposed, "{}", case.name);
        let chunked = draft(&case, Some(7)).await.unwrap();
        assert_eq!((chunked.logits, chunked.proposed), (whole.logits, whole.proposed), "{}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_drafts_for_other_models_is_refused_by_flag_and_file() {
    let draft = fixtures().join("drafts/deepseek4-mtp/model.gguf");
    let config = ProbeConfig {
        draft: Some(DraftChoice::File(draft)),
        ..ProbeConfig::new(fixtures().join("models/llama-dense/model.gguf"), vec![1, 2, 3])
    };
    let refusal = run(config).await.unwrap_err();
    assert!(matches!(refusal, ProbeError::Draft(_)), "{refusal}");
    let refusal = refusal.to_string();
    for named in ["--draft: ", "deepseek4-mtp", "does not draft for `llama`"] {
        assert!(refusal.contains(named), "{named}: {refusal}");
    }
}

/// A copy of a draft's file in which a tensor holds nothing but NaN.
fn without_numbers(file: &Path, tensor: &str, folder: &Path) -> PathBuf {
    let parsed = GgufFile::open(file).unwrap();
    let info = parsed.tensors().iter().find(|info| info.name == tensor).unwrap();
    let data = parsed.tensor_bytes(info).unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    let start = bytes.windows(data.len()).position(|window| window == data).unwrap();
    let nan = f32::NAN.to_le_bytes();
    bytes[start..start + data.len()].iter_mut().zip(nan.iter().cycle()).for_each(|(byte, of_nan)| *byte = *of_nan);
    let damaged = folder.join("draft.gguf");
    std::fs::write(&damaged, bytes).unwrap();
    damaged
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_whose_logits_are_not_numbers_is_refused_by_flag_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let models = fixtures().join("models/qwen35-mtp");
    let damaged = without_numbers(&models.join("draft.gguf"), "blk.3.nextn.eh_proj.weight", folder.path());
    let config = ProbeConfig {
        draft: Some(DraftChoice::File(damaged.clone())),
        ..ProbeConfig::new(models.join("model.gguf"), vec![1, 2, 3, 4, 5])
    };
    let refusal = run(config).await.unwrap_err().to_string();
    for named in ["--draft: ", damaged.to_str().unwrap(), "NaN"] {
        assert!(refusal.contains(named), "{named}: {refusal}");
    }
}

#[test]
fn a_draft_opened_as_a_model_is_refused_with_the_flag_for_it() {
    let beside = folders("models").into_iter().map(|folder| folder.join("draft.gguf")).filter(|file| file.is_file());
    for file in beside.chain(folders("drafts").into_iter().map(|folder| folder.join("model.gguf"))) {
        let refusal = load::open(&file, &Families::default()).unwrap_err().to_string();
        assert!(refusal.contains("--draft") && refusal.contains(file.to_str().unwrap()), "{refusal}");
    }
}
