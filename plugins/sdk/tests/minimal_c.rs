//! The plugin in C: it compiles without a warning, describes what the built-in family does, and survives damaged requests
//! under the address and undefined-behaviour sanitizers.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use bantam_gguf::{GgufFile, Value, writer::GgufWriter};
use bantam_plugin_sdk::{
    family::{
        Checkpoint, MetaValue, Model, TensorMeta,
        wire::{BuildAnswer, BuildRequest, Description, WireError},
    },
    graph::check,
};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn fixture(path: &str) -> PathBuf {
    repository().join("tests/fixtures").join(path)
}

/// Compiles the example's sources with the sanitizers, and any warning an error.
fn compile(arguments: &[&str], to: &str) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(to);
    let mut cc = Command::new("cc");
    cc.current_dir(repository().join("plugins/minimal-c"));
    cc.args(["-g", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsanitize=address,undefined"]);
    let output = cc.arg("-fno-sanitize-recover").args(arguments).arg("-o").arg(&to).arg("-lm").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    to
}

/// The program that asks a plugin, and the plugin.
static BUILT: LazyLock<[PathBuf; 2]> = LazyLock::new(|| {
    let plugin = compile(&["-fPIC", "-fvisibility=hidden", "-shared", "minimal.c", "json.c"], "libminimal.so");
    [compile(&["ask.c", "-ldl"], "ask"), plugin]
});

/// Its answers to these requests; to none: who it is.
fn ask(test: &str, requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let [ask, plugin] = &*BUILT;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(ask);
    command.arg(plugin);
    for (i, request) in requests.iter().enumerate() {
        let file = folder.join(i.to_string());
        fs::write(&file, request).unwrap();
        command.arg(file);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

fn answers(test: &str, requests: &[Vec<u8>]) -> Vec<BuildAnswer> {
    let answers = ask(test, requests);
    assert_eq!(answers.len(), requests.len());
    answers.iter().map(|answer| BuildAnswer::from_slice(answer).unwrap()).collect()
}

fn meta_value(value: &Value) -> MetaValue {
    match value {
        Value::U32(n) => MetaValue::Uint((*n).into()),
        Value::F32(x) => MetaValue::Float((*x).into()),
        Value::Bool(b) => MetaValue::Bool(*b),
        Value::String(s) => MetaValue::Text(s.to_str().unwrap().into()),
        Value::Array(array) => {
            MetaValue::Omitted { r#type: array.element_type_name().into(), length: array.len() as u64 }
        }
        other => panic!("no fixture holds a {other}"),
    }
}

fn checkpoint(path: &str) -> Checkpoint {
    let file = GgufFile::open(fixture(path)).unwrap();
    let architecture = file.metadata().require::<&str>("general.architecture").unwrap().into();
    let metadata = file.metadata().iter().map(|(key, value)| (key.into(), meta_value(value))).collect();
    let tensor = |info: &bantam_gguf::TensorInfo| {
        let shape = info.shape.iter().rev().map(|&n| n as usize).collect();
        (info.name.clone(), TensorMeta { shape, r#type: info.ty.name().into() })
    };
    let tensors = file.tensors().iter().map(tensor).collect();
    Checkpoint { architecture, metadata, tensors, ..Checkpoint::default() }
}

fn minimal() -> Checkpoint {
    checkpoint("plugins/minimal/model.gguf")
}

fn request(checkpoint: Checkpoint) -> Vec<u8> {
    BuildRequest::Model { checkpoint }.to_vec().unwrap()
}

fn described(test: &str, checkpoint: Checkpoint) -> Result<Model, WireError> {
    match answers(test, &[request(checkpoint)]).pop().unwrap() {
        BuildAnswer::Model(model) => Ok(*model),
        BuildAnswer::Error(error) => Err(error),
        other => panic!("expected a model or an error, found {other:?}"),
    }
}

/// The file of `llama-dense` with the architecture that the plugin takes.
fn renamed() -> Vec<u8> {
    let file = GgufFile::open(fixture("models/llama-dense/model.gguf")).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        match (key, key.strip_prefix("llama.")) {
            ("general.architecture", _) => writer.key(key, "minimal"),
            (_, Some(rest)) => writer.key(format!("minimal.{rest}"), value.clone()),
            _ => writer.key(key, value.clone()),
        };
    }
    for info in file.tensors() {
        writer.tensor(info.name.clone(), info.ty, &info.shape, file.tensor_bytes(info).unwrap());
    }
    writer.to_bytes()
}

#[test]
fn the_fixture_is_the_one_of_llama_under_another_name() {
    let path = fixture("plugins/minimal/model.gguf");
    if std::env::var_os("BANTAM_WRITE_FIXTURES").is_some() {
        fs::write(&path, renamed()).unwrap();
    }
    assert!(fs::read(path).unwrap() == renamed(), "set BANTAM_WRITE_FIXTURES to write it anew");
}

#[test]
fn it_says_who_it_is() {
    let said = Description::from_slice(&ask("description", &[])[0]).unwrap();
    assert_eq!((said.name.as_str(), said.architectures), ("Minimal", vec!["minimal".to_owned()]));
}

#[test]
fn it_describes_what_the_built_in_family_does() {
    let model = described("same", minimal()).unwrap();
    let mut expected = bantam_families::describe(&checkpoint("models/llama-dense/model.gguf")).unwrap();
    expected.text.name = "minimal".into();
    // The order in which weights are declared is of no consequence.
    let mut found = model.text.clone();
    for graph in [&mut found, &mut expected.text] {
        graph.weights.sort_by(|a, b| a.name.cmp(&b.name));
    }
    assert_eq!(found, expected.text);
    assert_eq!(model.context_length, expected.context_length);
    check(&model.text).unwrap();
}

#[test]
fn without_an_output_matrix_the_embeddings_are_it() {
    let mut tied = minimal();
    tied.tensors.remove("output.weight");
    check(&described("tied", tied).unwrap().text).unwrap();
}

#[test]
fn what_does_not_fit_is_named() {
    let mut cases = Vec::new();
    for key in ["block_count", "embedding_length", "attention.head_count", "attention.layer_norm_rms_epsilon"] {
        let (key, mut missing, mut wrong) = (format!("minimal.{key}"), minimal(), minimal());
        missing.metadata.remove(&key);
        wrong.metadata.insert(key.clone(), MetaValue::Text("many".into()));
        cases.extend([(key.clone(), missing), (key, wrong)]);
    }
    for tensor in
        minimal().tensors.keys().filter(|name| !["output.weight", "rope_freqs.weight"].contains(&name.as_str()))
    {
        let (mut missing, mut wrong, mut integers) = (minimal(), minimal(), minimal());
        missing.tensors.remove(tensor);
        *wrong.tensors.get_mut(tensor).unwrap().shape.last_mut().unwrap() += 2;
        integers.tensors.get_mut(tensor).unwrap().r#type = "I32".into();
        cases.extend([(tensor.clone(), missing), (tensor.clone(), wrong), (tensor.clone(), integers)]);
    }
    let mut unknown = minimal();
    unknown.tensors.insert("blk.0.attn_q.bias".into(), TensorMeta { shape: vec![96], r#type: "F32".into() });
    cases.push(("blk.0.attn_q.bias".into(), unknown));
    let requests: Vec<Vec<u8>> = cases.iter().map(|(_, checkpoint)| request(checkpoint.clone())).collect();
    for ((name, _), answer) in cases.iter().zip(answers("refusals", &requests)) {
        match answer {
            BuildAnswer::Error(WireError::Key { key: found, .. } | WireError::Tensor { tensor: found, .. }) => {
                assert_eq!(found, *name);
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// Numbers that look random (Marsaglia's xorshift), the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        for shift in [13, -7, 17] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        (self.0 % most as u64) as usize
    }
}

#[test]
fn damaged_requests_are_answered() {
    const PIECES: &[&str] = &[
        "\"",
        "\\",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "null",
        "-1",
        "1e999",
        "0",
        "\\u0000",
        "\\ud800",
        "\u{fe}",
        "18446744073709551615",
        "18446744073709551616",
        "2147483648",
        "{\"uint\":\"0\"}",
        "{\"float\":\"nan\"}",
        "[]",
    ];
    let whole = request(minimal());
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut requests = vec![vec![], b"[".repeat(100_000), b"{\"a\":".repeat(100_000), b"\"\xff\"".to_vec()];
    while requests.len() < 600 {
        let mut damaged = whole.clone();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(damaged.len().max(1)).min(damaged.len());
            let end = (at + numbers.below(12)).min(damaged.len());
            match numbers.below(4) {
                0 => damaged.truncate(at),
                1 => drop(damaged.splice(at..end, PIECES[numbers.below(PIECES.len())].bytes())),
                2 => drop(damaged.splice(at..end, [numbers.below(256) as u8])),
                _ => drop(damaged.drain(at..end)),
            }
        }
        requests.push(damaged);
    }
    let answers = answers("damaged", &requests);
    let models = answers.iter().filter(|answer| matches!(answer, BuildAnswer::Model(_))).count();
    assert!(0 < models && models < answers.len(), "{models} of {}", answers.len());
}
