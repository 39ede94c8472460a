//! Directories of safetensors files: their weights are those of the GGUF file, and what is damaged is named.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bantam_backend::{WeightData, WeightSource};
use bantam_family_api::{HfCheckpoint, TensorMeta};
use bantam_gguf::{GgufFile, dequantize};
use bantam_plugins::Families;
use bantam_runtime::load::{ModelFiles, ModelSource, SafetensorsFiles, open};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The fixtures that have a directory beside their GGUF file.
fn fixtures() -> Vec<PathBuf> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
    let folders = fs::read_dir(models).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join("hf").is_dir()).collect()
}

fn directory(path: &Path) -> Arc<bantam_runtime::load::Directory> {
    match ModelFiles::open(path).unwrap() {
        ModelFiles::Directory(directory) => directory,
        ModelFiles::Gguf(_) => panic!("{} is a directory", path.display()),
    }
}

fn decoded(data: &WeightData) -> Vec<f32> {
    let mut out = vec![0.0; data.shape.iter().product()];
    dequantize(data.ty, &data.bytes, &mut out).unwrap();
    out
}

#[test]
fn weights_equal_those_of_the_gguf_file() {
    let folders = fixtures();
    assert!(!folders.is_empty());
    for folder in folders {
        let directory = directory(&folder.join("hf"));
        let meta = |(name, entry): (&str, &bantam_runtime::load::TensorEntry)| {
            (name.to_owned(), TensorMeta { shape: entry.shape.clone(), r#type: entry.dtype.to_string() })
        };
        let tensors = directory.tensors.iter().map(meta).collect();
        let import = bantam_families::import(&HfCheckpoint { config: directory.config.clone(), tensors }).unwrap();
        let model = bantam_families::describe(&import.checkpoint).unwrap();
        let source = ModelSource::imported(Arc::clone(&directory.tensors), import.tensors);
        let file = Arc::new(GgufFile::open(folder.join("model.gguf")).unwrap());
        let checkpoint = bantam_runtime::load::checkpoint(&file).unwrap();
        let of_gguf = bantam_families::describe(&checkpoint).unwrap();
        let expected = ModelSource::of_gguf(file);
        assert_eq!(model.text.nodes, of_gguf.text.nodes, "{}", folder.display());
        for weight in &of_gguf.text.weights {
            let of_directory = model.text.weight(&weight.name).unwrap();
            let (found, expected) = (source.load(of_directory).unwrap(), expected.load(weight).unwrap());
            assert_eq!(found.shape, expected.shape, "{}", weight.name);
            let pairs = decoded(&found).into_iter().zip(decoded(&expected));
            let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(difference <= 1e-6, "{}: {} differs by {difference}", folder.display(), weight.name);
            source.release(of_directory);
            assert_eq!(decoded(&found), decoded(&source.load(of_directory).unwrap()), "{}", weight.name);
        }
        let draft = model.draft.iter().map(|draft| &draft.graph);
        let unused = source.unused(std::iter::once(&model.text).chain(draft));
        assert!(unused.iter().all(|name| name.starts_with("model.visual.")), "{unused:?}");
    }
}

#[test]
fn the_texts_beside_the_tensors_are_read() {
    for folder in fixtures() {
        let (files, gguf) = (ModelFiles::open(&folder.join("hf")).unwrap(), folder.join("model.gguf"));
        let gguf = ModelFiles::open(&gguf).unwrap();
        let text = "Hello world, 12 + 34!\n\n  def f(x):\n    return x";
        let ids = |files: &ModelFiles| files.tokenizer().unwrap().encode(text, bantam_text::Specials::Plain).unwrap();
        assert_eq!(ids(&files), ids(&gguf), "{}", folder.display());
        assert!(files.tensor_bytes() > 0);
        if folder.join("hf/chat_template.jinja").is_file() {
            assert!(files.template().unwrap().is_some());
            assert_eq!(files.template_source().unwrap(), gguf.template_source().unwrap());
        }
    }
}

/// A copy of a directory in which a tensor, of as many entries as before, says another shape.
fn reshaped(of: &Path, tensor: &str, shape: &[usize]) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(of).unwrap().map(Result::unwrap) {
        let mut bytes = fs::read(entry.path()).unwrap();
        if entry.path().extension().is_some_and(|ending| ending == "safetensors") {
            let end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let mut header: Value = serde_json::from_slice(&bytes[8..end]).unwrap();
            header[tensor]["shape"] = json!(shape);
            let header = header.to_string().into_bytes();
            bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[end..]].concat();
        }
        fs::write(copy.path().join(entry.file_name()), bytes).unwrap();
    }
    copy
}

#[test]
fn a_tensor_in_another_layout_is_refused_with_both_shapes_as_the_files_write_them() {
    for (model, tensor, found, expected) in [
        ("qwen35-mtp", "model.language_model.layers.0.linear_attn.in_proj_a.weight", &[64, 4][..], "[4, 64]"),
        ("qwen35-mtp", "model.language_model.layers.0.linear_attn.conv1d.weight", &[512], "[128, 1, 4]"),
        ("bailingmoe3-tiny", "model.layers.2.attention.kv_b_proj.weight", &[24, 128], "[128, 24]"),
    ] {
        let folder = fixtures().into_iter().find(|folder| folder.ends_with(model)).unwrap();
        let damaged = reshaped(&folder.join("hf"), tensor, found);
        let message = open(damaged.path(), &Families::default()).unwrap_err().to_string();
        let said = format!("tensor `{tensor}`: expected shape {expected}, found {found:?}");
        assert!(message.contains(&said), "{message}");
        assert!(message.starts_with(damaged.path().to_str().unwrap()), "{message}");
    }
}

/// A file with this header and so many bytes of data.
fn file(header: &Value, data: usize) -> Vec<u8> {
    let header = header.to_string().into_bytes();
    [&(header.len() as u64).to_le_bytes()[..], &header, &vec![0; data]].concat()
}

fn info(shape: &[usize], start: usize, end: usize) -> Value {
    json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]})
}

/// A directory of these files.
fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
    folder
}

fn refusal(files: &[(&str, Vec<u8>)]) -> String {
    SafetensorsFiles::open(folder(files).path()).unwrap_err().to_string()
}

#[test]
fn files_that_break_the_format_are_named_with_the_tensor_at_fault() {
    let length = |n: u64| [&n.to_le_bytes()[..], b"{}"].concat();
    let cases: [(Vec<u8>, &str); 11] = [
        (vec![], "header"),
        (length(3), "header"),
        (length(u64::MAX), "header"),
        ([&4_u64.to_le_bytes()[..], b"nope"].concat(), "header"),
        (file(&json!({"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}), 4), "header"),
        (file(&json!({"a": info(&[2], 0, 8), "b": info(&[2], 4, 12)}), 12), "tensor `b`"),
        (file(&json!({"a": info(&[2], 0, 8), "b": info(&[2], 12, 20)}), 20), "tensor `b`"),
        (file(&json!({"a": info(&[2], 0, 8), "b": info(&[3], 8, 16)}), 16), "tensor `b`"),
        (file(&json!({"a": info(&[2], 0, 8), "b": info(&[usize::MAX, 3], 8, 16)}), 16), "tensor `b`"),
        (file(&json!({"a": info(&[2], 8, 0)}), 8), "tensor `a`"),
        (file(&json!({"a": info(&[2], 0, 8)}), 9), "without a rest"),
    ];
    for (bytes, at_fault) in cases {
        let message = refusal(&[("x.safetensors", bytes)]);
        assert!(message.contains("x.safetensors") && message.contains(at_fault), "{at_fault}: {message}");
    }
}

#[test]
fn what_an_index_promises_must_be_there() {
    let index = |map: Value| json!({ "weight_map": map }).to_string().into_bytes();
    let a = || ("a.safetensors", file(&json!({"a": info(&[2], 0, 8)}), 8));
    const INDEX: &str = "model.safetensors.index.json";
    let cases = [
        (vec![a(), (INDEX, index(json!({"a": "a.safetensors", "b": "b.safetensors"})))], ["`b`", "b.safetensors"]),
        (vec![a(), (INDEX, index(json!({"a": "a.safetensors", "b": "a.safetensors"})))], ["`b`", "a.safetensors"]),
        (vec![a(), (INDEX, index(json!({"a": "../a.safetensors"})))], ["`a`", "../a.safetensors"]),
        (vec![a(), (INDEX, index(json!({"a": 7})))], [INDEX, "weight_map"]),
        (vec![a(), (INDEX, b"{".to_vec())], [INDEX, "weight_map"]),
    ];
    for (files, named) in cases {
        let message = refusal(&files);
        assert!(named.iter().all(|name| message.contains(name)), "{named:?}: {message}");
    }
    let listed = folder(&[a(), (INDEX, index(json!({"a": "a.safetensors"})))]);
    assert_eq!(SafetensorsFiles::open(listed.path()).unwrap().iter().len(), 1);
}

#[test]
fn without_an_index_all_files_count_and_no_shard_may_be_missing() {
    let with = |name: &str| file(&json!({name: info(&[2], 0, 8)}), 8);
    assert!(refusal(&[("model.gguf", vec![])]).contains(".safetensors"));
    let message = refusal(&[("m-00001-of-00003.safetensors", with("a")), ("m-00003-of-00003.safetensors", with("b"))]);
    assert!(message.contains("m-00002-of-00003.safetensors"), "{message}");
    let message = refusal(&[("m-1-of-99999999999.safetensors", with("a"))]);
    assert!(message.contains("m-2-of-99999999999.safetensors"), "{message}");
    let message = refusal(&[("a.safetensors", with("t")), ("b.safetensors", with("t"))]);
    assert!(message.contains("`t`") && message.contains("a.safetensors"), "{message}");
    let both = folder(&[("a.safetensors", with("t")), ("b.safetensors", with("u"))]);
    assert_eq!(SafetensorsFiles::open(both.path()).unwrap().iter().len(), 2);
}

#[test]
fn number_formats_that_nothing_reads_are_named() {
    let of = |dtype: &str| file(&json!({"a": {"dtype": dtype, "shape": [2], "data_offsets": [0, 16]}}), 16);
    let wide = SafetensorsFiles::open(folder(&[("x.safetensors", of("I64"))]).path()).unwrap();
    let refused = wide.tensor("a").unwrap().data("a").unwrap_err();
    assert!(refused.contains("`a`") && refused.contains("I64") && refused.contains("BF16"), "{refused}");
}

#[test]
fn what_is_missing_beside_the_tensors_is_named() {
    let tensors = || ("x.safetensors", file(&json!({"a": info(&[2], 0, 8)}), 8));
    let message = |files: &[(&str, Vec<u8>)]| open(folder(files).path(), &Families::default()).unwrap_err().to_string();
    assert!(message(&[tensors()]).contains("config.json"));
    assert!(message(&[tensors(), ("config.json", b"[]".to_vec())]).contains("config.json"));
    let quokka = json!({"architectures": ["Quokka"]}).to_string().into_bytes();
    assert!(message(&[tensors(), ("config.json", quokka.clone())]).contains("`Quokka`"));
    let files = folder(&[tensors(), ("config.json", quokka)]);
    let missing = ModelFiles::open(files.path()).unwrap().tokenizer().unwrap_err().to_string();
    assert!(missing.contains("tokenizer.json"), "{missing}");
}

proptest! {
    #[test]
    fn no_damage_to_a_file_makes_it_panic_or_tensors_lie_outside(
        damages in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..8),
        cut in 0_usize..400,
    ) {
        let header = json!({"a": info(&[2, 3], 0, 24), "b": info(&[4], 24, 40), "c": info(&[], 40, 44)});
        let mut bytes = file(&header, 44);
        for (at, byte) in damages {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let len = bytes.len();
        let folder = folder(&[("x.safetensors", bytes)]);
        if let Ok(files) = SafetensorsFiles::open(folder.path()) {
            for (name, entry) in files.iter() {
                prop_assert!(entry.bytes() <= len);
                if let Ok(data) = entry.data(name) {
                    prop_assert_eq!(data.bytes.len(), entry.bytes());
                }
            }
        }
    }
}
