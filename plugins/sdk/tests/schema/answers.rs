//! What real plugins and families answer: the corpus of the tests.

use std::{fs, path::PathBuf, process::Command};

use bantam_gguf::{Array, GgufFile};
use bantam_plugin_sdk::family::{
    Checkpoint, Family, MetaValue, TensorMeta,
    wire::{self, BuildRequest},
};
use serde_json::{Value, json};

use crate::repository;

/// Messages by their kind.
pub(crate) struct Answers {
    pub(crate) descriptions: Vec<Value>,
    pub(crate) built: Vec<Value>,
    pub(crate) ops: Vec<Value>,
}

fn meta_value(value: &bantam_gguf::Value) -> MetaValue {
    use bantam_gguf::Value;
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

fn checkpoint(file: PathBuf) -> Checkpoint {
    let file = GgufFile::open(file).unwrap();
    let metadata = file.metadata();
    let tensor = |info: &bantam_gguf::TensorInfo| {
        let shape = info.shape.iter().rev().map(|&n| n as usize).collect();
        (info.name.clone(), TensorMeta { shape, r#type: info.ty.name().into() })
    };
    Checkpoint {
        architecture: metadata.require::<&str>("general.architecture").unwrap().into(),
        metadata: metadata.iter().map(|(key, value)| (key.into(), meta_value(value))).collect(),
        tensors: file.tensors().iter().map(tensor).collect(),
        ..Checkpoint::default()
    }
}

/// The fixtures of built-in families.
pub(crate) fn checkpoints() -> Vec<Checkpoint> {
    let folders = fs::read_dir(repository().join("tests/fixtures/models")).unwrap();
    let mut folders: Vec<PathBuf> = folders.map(|folder| folder.unwrap().path()).collect();
    folders.sort();
    folders.into_iter().map(|folder| checkpoint(folder.join("model.gguf"))).collect()
}

fn answer(family: &dyn Family, request: &BuildRequest) -> Value {
    serde_json::from_slice(&wire::answer(family, &request.to_vec().unwrap())).unwrap()
}

/// What the example in C says of itself, and of these requests.
fn minimal_c(requests: &[Vec<u8>]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let compile = |arguments: &[&str], to: &str| {
        let to = folder.path().join(to);
        let mut cc = Command::new("cc");
        cc.current_dir(repository().join("plugins/minimal-c")).args(["-std=c99", "-O1"]).args(arguments);
        assert!(cc.arg("-o").arg(&to).arg("-lm").status().unwrap().success());
        to
    };
    let plugin = compile(&["-fPIC", "-shared", "minimal.c", "json.c"], "libminimal.so");
    let mut ask = Command::new(compile(&["ask.c", "-ldl"], "ask"));
    ask.arg(plugin);
    for (i, request) in requests.iter().enumerate() {
        let file = folder.path().join(i.to_string());
        fs::write(&file, request).unwrap();
        ask.arg(file);
    }
    let output = ask.output().unwrap();
    // With requests it answers them alone.
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// Ops that no family here uses, and attributes that none needs.
fn rarely_used() -> Value {
    json!({"bantam_plugin": 0, "model": {
        "architecture": "a", "config": {"any": [1, "thing"]}, "context_length": 8,
        "text": {"name": "a", "output": "x", "weights": [
            {"name": "w", "shape": [2, 2], "expr": {"stack": [{"exp": {"tensor": "t"}}, {"affine": {"of": {"tensor": "t"}, "scale": 2.0, "offset": 1.0}}]}},
            {"name": "v", "shape": [2, 2], "expr": {"concat": {"of": [{"slice": {"of": {"tensor": "t"}, "axis": 0, "start": 0, "len": 1}}], "axis": 0}}},
            {"name": "u", "shape": [4], "expr": {"reshape": {"of": {"permute": {"of": {"tensor": "t"}, "axes": [1, 0]}}, "shape": [4]}}},
        ], "states": [
            {"name": "k", "heads": 1, "dim": 2, "kind": {"window": {"len": 2}}, "dtype": "kv"},
            {"name": "s", "heads": 1, "dim": 2, "kind": {"strided": {"stride": 2}}, "dtype": "f32"},
        ], "recurrent": [{"name": "r", "shape": [2, 2]}], "nodes": [
            {"name": "c", "op": {"custom": {"op": "own", "x": ["x"], "weights": ["w"], "attributes": {"any": null}, "width": 2}}},
            {"name": "i", "op": {"input": {"source": {"hidden": {"index": 0, "width": 2}}}}},
            {"name": "j", "op": {"input": {"source": {"previous_tokens": {"back": 1, "missing": 0}}}}},
            {"name": "p", "op": {"input": {"source": {"strided_positions": {"stride": 2}}}}},
            {"name": "n", "op": {"slice": {"x": "x", "start": 0, "len": 1, "groups": 2}}},
            {"name": "o", "op": {"softcap": {"x": "x", "cap": 1.0}}},
            {"name": "f", "op": {"affine": {"x": "x", "scale": "w", "bias": "v"}}},
            {"name": "l", "op": {"lookup": {"ids": "i", "table": "w"}}},
        ]},
        "chat": {
            "stop_tokens": ["</s>"], "stop_texts": ["x"], "hidden": ["y"],
            "header": {"before": "a", "behind": "b", "answer": "c"},
            "reasoning": [{"open": "<t>", "close": "</t>", "ended_by_calls": true}],
            "efforts": [{"level": "high", "variable": "effort", "value": "high"}],
            "calls": [
                {"json": {"block": ["[", "]"], "open": "<c>", "close": "</c>", "name": "name", "arguments": ["arguments"]}},
                {"named": {"open": "<c>", "named": "<n>", "close": "</c>"}},
                {"python": {"open": "[", "close": "]"}},
                {"braced": {"open": "<", "close": ">", "quote": "q"}},
                {"lark": {"open": "<", "close": ">", "grammar": "start: name arguments"}},
            ],
        },
        "tokenizer": {
            "model": "byte_level", "pre": {"patterns": ["a"], "nfc": true, "whole_pieces": false}, "add_bos": true, "add_eos": false,
            "add_sep": true, "add_space_prefix": true, "remove_extra_whitespaces": false, "lowercase": true,
        },
    }})
}

/// A checkpoint with a value of each kind in its metadata, as an import gives it.
fn imported() -> Value {
    json!({"bantam_plugin": 0, "import": {
        "checkpoint": {
            "architecture": "a", "axes": "slowest_first",
            "metadata": {
                "b": {"bool": true}, "u": {"uint": "7"}, "i": {"int": "-7"}, "f": {"float": 0.5}, "n": {"float": "nan"},
                "t": {"text": "x"}, "y": {"bytes": "AA=="}, "l": {"array": [{"uint": "1"}, {"text": "x"}]},
                "o": {"omitted": {"type": "string", "length": "128256"}},
            },
            "tensors": {"t": {"shape": [2, 2], "type": "F32"}},
        },
        "tensors": {"t": {"tensor": "theirs"}}, "origins": {"k": "config.json: k"},
    }})
}

pub(crate) fn answers() -> Answers {
    let mut built = vec![
        json!({"bantam_plugin": 0, "error": {"message": "no"}}),
        json!({"bantam_plugin": 0, "error": {"key": "k", "expected": "e", "found": "f"}}),
        json!({"bantam_plugin": 0, "error": {"tensor": "t", "expected": "e", "found": "f"}}),
    ];
    let fixtures = repository().join("tests/fixtures");
    let plugin = |name: &str| checkpoint(fixtures.join("plugins").join(name).join("model.gguf"));
    let model = |checkpoint| BuildRequest::Model { checkpoint };
    for name in ["lfm2-dense", "lfm2moe-base"] {
        built.push(answer(&bantam_lfm2::Lfm2, &model(plugin(name))));
    }
    built.extend(minimal_c(&[model(plugin("minimal")).to_vec().unwrap()]));
    let mut descriptions: Vec<Value> = minimal_c(&[]);
    let mut families: Vec<&dyn Family> = vec![&bantam_lfm2::Lfm2];
    for checkpoint in checkpoints() {
        let family = bantam_families::family(&checkpoint.architecture).unwrap();
        families.push(family);
        built.push(answer(family, &model(checkpoint)));
    }
    let said = |family: &&dyn Family| serde_json::from_slice(&wire::description(*family, "1.0.0")).unwrap();
    descriptions.extend(families.iter().map(said));
    let carried: Vec<Value> = built.iter().filter_map(|built| built.pointer("/model/draft").cloned()).collect();
    assert!(!carried.is_empty(), "no fixture carries a draft");
    built.extend(carried.into_iter().map(|draft| json!({"bantam_plugin": 0, "draft": draft})));
    built.push(imported());
    built.push(rarely_used());
    let ops = vec![json!({"bantam_plugin": 0, "width": 7}), json!({"bantam_plugin": 0, "error": {"message": "no"}})];
    Answers { descriptions, built, ops }
}
