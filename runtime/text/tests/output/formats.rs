//! The formats of all families, as they come from fixture checkpoints and real templates.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bantam_family_api::{CallSyntax, ChatFormat, Checkpoint, LarkCalls, MetaValue, Reasoning, TensorMeta};
use bantam_gguf::{Array, GgufFile, Value};
use bantam_text::OutputFormat;

/// Name of a format, the fixture whose family has it, and a template of such models.
const FORMATS: [(&str, &str, &str); 18] = [
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
    ("nemotron-nano2", "nemotron_h_moe-nano", "NVIDIA-Nemotron-Nano-v2.jinja"),
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
    let own = OutputFormat::new(&own_form(), Some("<do>"), true);
    FORMATS.into_iter().map(of_family).chain([("lfm2", lfm2), ("own", own)]).collect()
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

/// A format with calls in a form that only a grammar describes.
pub(crate) fn own_form() -> ChatFormat {
    let [open, close] = ["<do>", "</do>"].map(Into::into);
    let grammar = "start: (\"please \")? name \" with \" arguments \"!\"?".into();
    ChatFormat { calls: vec![CallSyntax::Lark(LarkCalls { open, close, grammar })], ..ChatFormat::default() }
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

/// What a syntax of calls begins with.
fn opening(calls: &CallSyntax) -> &str {
    match calls {
        CallSyntax::Json(calls) => &calls.open,
        CallSyntax::Tagged(calls) => &calls.open,
        CallSyntax::Named(calls) => &calls.open,
        CallSyntax::Python { open, .. } | CallSyntax::Braced { open, .. } => open,
        CallSyntax::Lark(calls) => &calls.open,
    }
}

#[test]
fn marks_that_cannot_be_seen_are_none() {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let quote = CallSyntax::Braced { open: "x".into(), close: "y".into(), quote: String::new() };
    let empty = Reasoning { open: " ".into(), close: String::new(), ended_by_calls: false };
    let printable: Vec<String> = (' '..='~').map(String::from).collect();
    for hidden in [texts(&["", "a"]), texts(&[" \n", "\t"]), printable] {
        let format =
            ChatFormat { hidden, calls: vec![quote.clone()], reasoning: vec![empty.clone()], ..ChatFormat::default() };
        let format = OutputFormat::new(&format, None, true);
        for tools in [Vec::new(), crate::support::tools()] {
            let mut splitter = format.splitter(&tools, "");
            splitter.push("a b\n\n x{} c");
            splitter.finish();
        }
    }
}

#[test]
fn calls_in_a_form_that_cannot_be_read_stay_text() {
    let deep = format!("start: {}name arguments{}", "(".repeat(500), ")".repeat(500));
    let long = format!("start: name arguments // {}", "x".repeat(100_000));
    for grammar in ["", "start: missing", "start: name (", "start: /(/ name arguments", &deep, &long] {
        let CallSyntax::Lark(mut calls) = own_form().calls.remove(0) else { panic!("not in its own form") };
        calls.grammar = grammar.into();
        let format = ChatFormat { calls: vec![CallSyntax::Lark(calls)], ..ChatFormat::default() };
        assert!(OutputFormat::new(&format, Some("<do>"), true).calls().is_empty(), "{grammar:.60}");
    }
    let CallSyntax::Lark(calls) = own_form().calls.remove(0) else { panic!("not in its own form") };
    let endless = LarkCalls { close: "\n".into(), ..calls };
    let format = ChatFormat { calls: vec![CallSyntax::Lark(endless)], ..ChatFormat::default() };
    assert!(OutputFormat::new(&format, Some("<do>"), true).calls().is_empty());
}

#[test]
fn templates_say_what_their_models_write() {
    let (hermes, function) = ("<tool_call>\n", "<tool_call>\n<function=");
    let fenced = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>";
    let k2_horizon = ["<ifm|think>\n", "<ifm|think_fast>\n", "<ifm|think_faster>\n"];
    let expected: [(&str, &[&str], &[&str]); 20] = [
        ("llama", &["", "<|python_tag|>"], &[]),
        ("llama-distilled", &[hermes, fenced], &["<think>"]),
        ("smollm2", &[hermes], &[]),
        ("qwen2", &[hermes, function], &[]),
        ("qwen2-distilled", &[hermes, fenced], &["<think>"]),
        ("qwen3", &[hermes, function], &["<think>"]),
        ("qwen3-coder", &[function, hermes], &[]),
        ("qwen35", &[function], &["<think>"]),
        ("qwen4exp", &[function], &["<think>"]),
        ("gemma3", &[hermes], &[]),
        ("gemma4", &["<|tool_call>call:"], &["<|channel>thought\n"]),
        ("laguna", &["<tool_call>"], &["<think>"]),
        ("ling", &["<tool_call>"], &["<think>"]),
        ("k2-horizon", &["<ifm|tool_call>", "<ifm|tool_call>"], &k2_horizon),
        ("muse-glimmer", &["<atem:invoke name=\""], &[" to=self<|message|>"]),
        ("nemotron", &[function], &["<think>"]),
        ("nemotron-nano2", &["<TOOLCALL>", function], &["<think>"]),
        ("deepseek4", &["<｜DSML｜invoke name=\"", "<｜DSML｜invoke name=\""], &["<think>"]),
        ("lfm2", &["<|tool_call_start|>"], &["<think>"]),
        ("own", &["<do>"], &[]),
    ];
    assert_eq!(ALL.len(), expected.len());
    for (name, calls, reasoning) in expected {
        assert_eq!(format(name).calls().iter().map(opening).collect::<Vec<_>>(), calls, "{name}");
        let opens: Vec<&str> = format(name).reasoning().iter().map(|pair| pair.open.as_str()).collect();
        assert_eq!(opens, reasoning, "{name}");
    }
}

#[test]
fn without_a_template_a_family_speaks_for_itself() {
    let format = OutputFormat::new(&chat("qwen3-dense"), None, false);
    assert_eq!(format.reasoning().len(), 1);
    assert_eq!(format.calls().iter().map(opening).collect::<Vec<_>>(), ["<tool_call>\n"]);
    assert_eq!(OutputFormat::new(&chat("laguna-perhead"), None, true).stop_texts(), ["</assistant>"]);
}

#[test]
fn control_tokens_that_are_parts_of_marks_are_told_from_others() {
    for (name, marks, others) in [
        ("gemma4", ["<|channel>", "<|\"|>", "<tool_call|>"], ["<turn|>", "<|tool_response>", ""]),
        ("muse-glimmer", ["<|message|>", "<|eom|>", "<|start|>"], ["<|eot|>", "<|end_of_text|>", "<|patch|>"]),
        ("lfm2", ["<|tool_call_start|>", "<|tool_call_end|>", "</think>"], ["<|im_end|>", "<|pad|>", "<|fim_pre|>"]),
        (
            "k2-horizon",
            ["<ifm|arg_type>", "</ifm|tool_calls>", "<ifm|think>"],
            ["<|ifm|im_end|>", "<ifm|tools>", "<s>"],
        ),
        ("deepseek4", ["｜DSML｜", "<think>", "</think>"], ["<｜User｜>", "<｜end▁of▁sentence｜>", "<｜fim▁hole｜>"]),
        ("llama", ["<|python_tag|>"; 3], ["<|eot_id|>", "<|eom_id|>", "<|start_header_id|>"]),
    ] {
        assert!(marks.iter().all(|mark| format(name).is_mark(mark)), "{name}");
        assert!(!others.iter().any(|other| format(name).is_mark(other)), "{name}");
    }
}
