//! The chat formats of all families, and a vocabulary with a token for each mark that has one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use bantam_family_api::{CallSyntax, ChatFormat, Checkpoint, LarkCalls, MetaValue, TensorMeta};
use bantam_gguf::{Array, GgufFile, Value};
use bantam_text::{OutputFormat, TokenType};

use crate::model::{Model, spec};

/// The format of each family, by the name of its fixture.
pub(crate) fn formats() -> &'static BTreeMap<String, ChatFormat> {
    static FORMATS: OnceLock<BTreeMap<String, ChatFormat>> = OnceLock::new();
    FORMATS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
        let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut formats: BTreeMap<String, ChatFormat> = BTreeMap::new();
        for folder in folders {
            let file = GgufFile::open(folder.join("model.gguf")).unwrap();
            let chat = bantam_families::describe(&checkpoint(&file)).unwrap().chat;
            if !formats.values().any(|known| *known == chat) {
                formats.insert(folder.file_name().unwrap().to_string_lossy().into_owned(), chat);
            }
        }
        formats
    })
}

/// Every syntax of calls, by a name for messages.
pub(crate) fn syntaxes() -> Vec<(String, CallSyntax)> {
    let mut found: Vec<(String, CallSyntax)> = Vec::new();
    for (family, format) in formats() {
        for (number, syntax) in format.calls.iter().enumerate() {
            if !found.iter().any(|(_, known)| known == syntax) {
                found.push((format!("{family}, syntax {number}"), syntax.clone()));
            }
        }
    }
    // What models know from their teachers, if their template knows it.
    let taught = OutputFormat::new(&ChatFormat::default(), Some("<｜tool▁calls▁begin｜>"), false);
    found.extend(
        taught
            .calls()
            .iter()
            .filter(|syntax| matches!(syntax, CallSyntax::Named(_)))
            .map(|syntax| ("taught".into(), syntax.clone())),
    );
    let [open, close] = ["<|tool_call_start|>", "<|tool_call_end|>"].map(Into::into);
    found.push(("a list of calls as Python has it".into(), CallSyntax::Python { open, close }));
    found.push(("a form of its own".into(), CallSyntax::Lark(lark())));
    found
}

/// A form of calls that only a grammar describes.
pub(crate) fn lark() -> LarkCalls {
    let [open, close] = ["<do>", "</do>"].map(Into::into);
    LarkCalls { open, close, grammar: "start: (\"please \")? name \" with \" arguments \"!\"".into() }
}

/// A vocabulary that has many of the formats' marks as tokens.
pub(crate) fn with_marks() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let control = [
            "<|tool_call>",
            "<tool_call|>",
            "<|\"|>",
            "｜DSML｜",
            "<|python_tag|>",
            "<|tool_call_start|>",
            "<|tool_call_end|>",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁sep｜>",
            "<|channel>",
            "<channel|>",
            "<ifm|tool_calls>",
            "</ifm|tool_calls>",
        ];
        let plain = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<arg_key>", "</arg_value>"];
        let mut spec = spec("smollm2");
        spec.token_types.resize(spec.tokens.len(), TokenType::Normal);
        for (mark, kind) in control
            .map(|mark| (mark, TokenType::Control))
            .into_iter()
            .chain(plain.map(|mark| (mark, TokenType::UserDefined)))
        {
            spec.tokens.push(mark.into());
            spec.token_types.push(kind);
        }
        Model::new(spec, &[])
    })
}

fn checkpoint(file: &GgufFile) -> Checkpoint {
    let tensors = file.tensors().iter().map(|info| {
        let shape = info.shape.iter().rev().map(|&extent| extent as usize).collect();
        (info.name.clone(), TensorMeta { shape, r#type: info.ty.name().into() })
    });
    Checkpoint {
        architecture: file.metadata().require::<&str>("general.architecture").unwrap().into(),
        metadata: file.metadata().iter().map(|(key, value)| (key.into(), meta_value(value))).collect(),
        tensors: tensors.collect(),
        ..Checkpoint::default()
    }
}

fn meta_value(value: &Value) -> MetaValue {
    match value {
        Value::U32(n) => MetaValue::Uint((*n).into()),
        Value::F32(x) => MetaValue::Float((*x).into()),
        Value::Bool(b) => MetaValue::Bool(*b),
        Value::String(s) => MetaValue::Text(s.to_str().unwrap().into()),
        Value::Array(Array::Bool(flags)) => MetaValue::Array(flags.iter().map(|&b| MetaValue::Bool(b)).collect()),
        Value::Array(Array::I32(sizes)) => {
            MetaValue::Array(sizes.iter().map(|&n| MetaValue::Uint(n.try_into().unwrap())).collect())
        }
        Value::Array(Array::U64(numbers)) => MetaValue::Array(numbers.iter().map(|&n| MetaValue::Uint(n)).collect()),
        Value::Array(Array::F32(numbers)) => {
            MetaValue::Array(numbers.iter().map(|&x| MetaValue::Float(x.into())).collect())
        }
        Value::Array(array) => {
            MetaValue::Omitted { r#type: array.element_type_name().into(), length: array.len() as u64 }
        }
        other => panic!("no fixture holds a {other}"),
    }
}
