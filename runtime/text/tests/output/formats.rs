//! The formats of all families, as they come from fixture checkpoints and real templates.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bantam_family_api::{CallSyntax, ChatFormat, Checkpoint, MetaValue, Reasoning, TensorMeta};
use bantam_gguf::{Array, GgufFile, Value};
use bantam_text::OutputFormat;

/// Name of a format, the fixture whose family has it, and a template of such models.
const FORMATS: [(&str, &str, &str); 17] = [
    ("llama", "llama-dense", "meta-llama-Llama-3.1-8B-Instruct.jinja"),
    ("llama-distilled", "llama-dense", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja"),
    ("smollm2", "llama-dense", "SmolLM2-Instruct.jinja"),
    ("qwen2", "qwen2-dense", "Qwen-Qwen2.5-7B-Instruct.jinja"),
    ("qwen2-distilled", "qwen2-dense", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja"),
    ("qwen3", "qwen3-dense", "Qwen-Qwen3-0.6B.jinja"),
    ("qwen3-coder", "qwen3moe-a", "Qwen3-Coder.jinja"),
    ("qwen35", "qwen35-dense", "Qwen3.5-4B.jinja"),
    ("qwen4exp", "qwen4exp-dense", "Qwen3.5-4B.jinja"),
    ("gemma3", "gemma3-dense", "google-gemma-3-it.jinja"),
    ("gemma4", "gemma4-dense", "google-gemma-4-31B-it.jinja"),
    ("laguna", "laguna-perhead", "poolside-Laguna-S-2.1.jinja"),
    ("ling", "bailingmoe3-tiny", "inclusionai-ling-3.0-flash.jinja"),
    ("k2-horizon", "k2-horizon-dense", "k2-horizon.jinja"),
    ("muse-glimmer", "muse-glimmer-dense", "muse-glimmer.jinja"),
    ("nemotron", "nemotron_h_moe-nano", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja"),
    ("deepseek4", "deepseek4-within", "deepseek-ai-DeepSeek-V4.jinja"),
];

/// Templates that do not tell the model of tools.
const WITHOUT_TOOLS: [&str; 4] = [
    "SmolLM2-Instruct.jinja",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja",
    "google-gemma-3-it.jinja",
    "HuggingFaceTB-SmolLM3-3B.jinja",
];

static ALL: LazyLock<HashMap<&str, OutputFormat>> = LazyLock::new(|| {
    let of_family = |(name, fixture, file): (&'static str, &str, &str)| {
        let knows_tools = !WITHOUT_TOOLS.contains(&file);
        (name, OutputFormat::new(&chat(fixture), Some(&template(file)), knows_tools))
    };
    let lfm2 = OutputFormat::new(&lfm2(), Some(&template("LFM2.5-8B-A1B.jinja")), true);
    FORMATS.into_iter().map(of_family).chain([("lfm2", lfm2)]).collect()
});

/// The format of this name.
pub(crate) fn format(name: &str) -> &'static OutputFormat {
    ALL.get(name).unwrap_or_else(|| panic!("no format `{name}`"))
}

/// All of them.
pub(crate) fn formats() -> impl Iterator<Item = &'static OutputFormat> {
    ALL.values()
}

/// The source of a template.
pub(crate) fn template(file: &str) -> String {
    std::fs::read_to_string(fixtures().join("templates").join(file)).unwrap()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// A format with calls as Python writes them, which no family of the tree has.
pub(crate) fn lfm2() -> ChatFormat {
    let pair = |open: &str, close: &str| (open.to_owned(), close.to_owned());
    let (open, close) = pair("<|tool_call_start|>", "<|tool_call_end|>");
    let calls = vec![CallSyntax::Python { open, close }];
    let (open, close) = pair("<think>", "</think>");
    ChatFormat { reasoning: vec![Reasoning { open, close, ended_by_calls: true }], calls, ..ChatFormat::default() }
}

/// The chat format of a fixture's family.
pub(crate) fn chat(fixture: &str) -> ChatFormat {
    let file = GgufFile::open(fixtures().join("models").join(fixture).join("model.gguf")).unwrap();
    let architecture = file.metadata().require::<&str>("general.architecture").unwrap().to_owned();
    let tensor = |info: &bantam_gguf::TensorInfo| {
        let shape = info.shape.iter().rev().map(|&n| usize::try_from(n).unwrap()).collect();
        (info.name.clone(), TensorMeta { shape, r#type: info.ty.name().into() })
    };
    let metadata = file.metadata().iter().map(|(key, value)| (key.into(), meta_value(value))).collect();
    let tensors = file.tensors().iter().map(tensor).collect();
    bantam_families::describe(&Checkpoint { architecture, metadata, tensors, ..Checkpoint::default() }).unwrap().chat
}

fn meta_value(value: &Value) -> MetaValue {
    match value {
        Value::U32(n) => MetaValue::Uint((*n).into()),
        Value::F32(x) => MetaValue::Float((*x).into()),
        Value::Bool(b) => MetaValue::Bool(*b),
        Value::String(s) => MetaValue::Text(s.to_str().unwrap().into()),
        Value::Array(array) => meta_array(array),
        other => panic!("no fixture holds a {other}"),
    }
}

fn meta_array(array: &Array) -> MetaValue {
    match array {
        Array::Bool(flags) => MetaValue::Array(flags.iter().map(|&b| MetaValue::Bool(b)).collect()),
        Array::I32(sizes) => MetaValue::Array(sizes.iter().map(|&n| MetaValue::Uint(n.try_into().unwrap())).collect()),
        Array::U64(numbers) => MetaValue::Array(numbers.iter().map(|&n| MetaValue::Uint(n)).collect()),
        Array::F32(numbers) => MetaValue::Array(numbers.iter().map(|&x| MetaValue::Float(x.into())).collect()),
        array => MetaValue::Omitted { r#type: array.element_type_name().into(), length: array.len() as u64 },
    }
}
