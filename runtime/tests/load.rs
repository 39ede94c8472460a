//! Opening models and evaluating their weights.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../families/tests/suite/interpreter/mod.rs"]
#[allow(dead_code, reason = "only the weight expressions of the families' oracle are needed here")]
mod interpreter;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bantam_backend::{WeightData, WeightError, WeightSource};
use bantam_family_api::MetaValue;
use bantam_gguf::{GgmlType, GgufFile, StringArray, Value, dequantize, writer::GgufWriter};
use bantam_graph::{Graph, Weight, WeightExpr};
use bantam_plugins::Families;
use bantam_runtime::load::{LoadError, ModelFiles, ModelSource, checkpoint, open};
use proptest::prelude::*;

use interpreter::Tensor;

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(name).join("model.gguf")
}

fn tensor(name: &str) -> WeightExpr {
    WeightExpr::Tensor(name.into())
}

fn slice(of: WeightExpr, axis: usize, start: usize, len: usize) -> WeightExpr {
    WeightExpr::Slice { of: Box::new(of), axis, start, len }
}

/// Bytes of blocks that begin with `header` and go on with anything.
fn blocks(ty: GgmlType, values: usize, header: &[u8]) -> Vec<u8> {
    let mut state = 1_u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let rest = ty.block_bytes() - header.len();
    let block = |_| [header.to_vec(), (0..rest).map(|_| byte()).collect()].concat();
    (0..values / ty.block_len()).flat_map(block).collect()
}

/// 0.0125 and 0.005 as half floats: scales that keep values small.
const HALVES: [u8; 4] = [0x66, 0x22, 0x1f, 0x1d];

/// A file with a tensor of each kind of format: `f` `[4, 3, 64]` F32, `q` `[4, 3, 64]` Q8_0, `k` `[2, 4, 512]` Q4_K.
fn file() -> Arc<GgufFile> {
    let mut writer = GgufWriter::new();
    let numbers: Vec<f32> = (0..4 * 3 * 64).map(|i| (i as f32 * 0.37).sin()).collect();
    writer.key("general.architecture", "none");
    writer.tensor_f32("f", &[64, 3, 4], &numbers);
    writer.tensor("q", GgmlType::Q8_0, &[64, 3, 4], blocks(GgmlType::Q8_0, numbers.len(), &HALVES[..2]));
    writer.tensor("k", GgmlType::Q4_K, &[512, 4, 2], blocks(GgmlType::Q4_K, 4096, &HALVES));
    Arc::new(GgufFile::from_bytes("weights.gguf", writer.to_bytes()).unwrap())
}

fn load(expr: WeightExpr, shape: &[usize]) -> Result<WeightData, WeightError> {
    ModelSource::of_gguf(file()).load(&Weight { name: "w".into(), shape: shape.into(), expr })
}

fn graph_of(weight: Weight) -> Graph {
    Graph { weights: vec![weight], ..Graph::default() }
}

fn decoded(ty: GgmlType, bytes: &[u8], values: usize) -> Vec<f64> {
    let mut out = vec![0.0; values];
    dequantize(ty, bytes, &mut out).unwrap();
    out.into_iter().map(f64::from).collect()
}

/// What the oracle reads from [`file`].
fn oracle(expr: &WeightExpr, shape: &[usize]) -> Vec<f64> {
    let file = file();
    let read = |name: &str| {
        let info = file.tensor(name).unwrap();
        let shape: Vec<usize> = info.shape.iter().rev().map(|&n| n as usize).collect();
        let data = decoded(info.ty, file.tensor_bytes(info).unwrap(), shape.iter().product());
        Tensor { shape, data }
    };
    let graph = graph_of(Weight { name: "w".into(), shape: shape.into(), expr: expr.clone() });
    interpreter::evaluate(&graph, &read).remove("w").unwrap().data
}

#[test]
fn every_weight_of_the_fixtures_is_read_where_it_lies() {
    for name in ["llama-dense", "qwen2-dense", "qwen3-dense", "qwen3moe-a", "gemma3-dense"] {
        let loaded = open(model(name), &Families::default()).unwrap();
        let ModelFiles::Gguf(file) = &loaded.files else { panic!("{name} is a file") };
        assert!(loaded.source.unused([&loaded.model.text]).is_empty());
        for weight in &loaded.model.text.weights {
            let data = loaded.source.load(weight).unwrap();
            let info = file.tensor(&weight.name).unwrap();
            assert_eq!((data.ty, &data.shape), (info.ty, &weight.shape));
            let bytes = file.tensor_bytes(info).unwrap();
            assert_eq!(data.bytes.as_ptr_range(), bytes.as_ptr_range());
            let before = bytes.to_vec();
            loaded.source.release(weight);
            assert_eq!(*data.bytes, before);
        }
    }
}

#[test]
fn contiguous_slices_share_the_bytes_of_the_file() {
    let file = file();
    let weight = Weight { name: "w".into(), shape: vec![2, 3, 64], expr: slice(tensor("q"), 0, 1, 2) };
    let data = ModelSource::of_gguf(Arc::clone(&file)).load(&weight).unwrap();
    let whole = file.tensor_bytes(file.tensor("q").unwrap()).unwrap();
    let row = GgmlType::Q8_0.row_bytes(64).unwrap();
    assert_eq!(data.bytes.as_ptr_range(), whole[3 * row..9 * row].as_ptr_range());
}

#[test]
fn whatever_moves_whole_blocks_keeps_the_format() {
    let reshaped = WeightExpr::Reshape { of: Box::new(tensor("q")), shape: vec![24, 32] };
    let axes_swapped = WeightExpr::Permute { of: Box::new(tensor("k")), axes: vec![1, 0, 2] };
    let cases = [
        (slice(tensor("q"), 1, 1, 2), vec![4, 2, 64], GgmlType::Q8_0),
        (slice(tensor("k"), 2, 256, 256), vec![2, 4, 256], GgmlType::Q4_K),
        (slice(tensor("k"), 2, 128, 256), vec![2, 4, 256], GgmlType::F32),
        (WeightExpr::Concat { of: vec![tensor("q"), tensor("q")], axis: 1 }, vec![4, 6, 64], GgmlType::Q8_0),
        (WeightExpr::Concat { of: vec![tensor("q"), tensor("f")], axis: 1 }, vec![4, 6, 64], GgmlType::F32),
        (WeightExpr::Stack(vec![tensor("k"), tensor("k")]), vec![2, 2, 4, 512], GgmlType::Q4_K),
        (reshaped, vec![24, 32], GgmlType::Q8_0),
        (axes_swapped, vec![4, 2, 512], GgmlType::Q4_K),
    ];
    for (expr, shape, ty) in cases {
        let data = load(expr.clone(), &shape).unwrap();
        assert_eq!(data.ty, ty, "{expr:?}");
        let values = shape.iter().product();
        assert_eq!(decoded(ty, &data.bytes, values), oracle(&expr, &shape), "{expr:?}");
    }
}

#[test]
fn first_axes_of_one_may_be_missing_in_the_file() {
    let one = slice(tensor("f"), 0, 2, 1);
    assert_eq!(load(one.clone(), &[1, 3, 64]).unwrap().shape, [1, 3, 64]);
    assert_eq!(load(one, &[3, 64]).unwrap().shape, [3, 64]);
}

#[test]
fn refusals_name_weight_and_tensor_and_say_what_was_found() {
    let refusal = |expr, shape: &[usize]| load(expr, shape).unwrap_err().to_string();
    assert_eq!(refusal(tensor("absent"), &[1]), "weight `w`: tensor `absent` is not in the file");
    assert_eq!(refusal(tensor("q"), &[12, 64]), "weight `w`: expected shape [12, 64], found [4, 3, 64] in `q`");
    assert!(refusal(slice(tensor("q"), 0, 3, 2), &[2, 3, 64]).contains("[4, 3, 64]"));
    assert!(refusal(slice(tensor("q"), 3, 0, 1), &[1]).contains("axis 3"));
    assert!(refusal(slice(tensor("q"), 0, usize::MAX, 2), &[2, 3, 64]).contains("axis 0"));
    let unlike = WeightExpr::Concat { of: vec![tensor("q"), tensor("k")], axis: 0 };
    assert!(refusal(unlike, &[6, 3, 64]).contains("[2, 4, 512]"));
    assert!(refusal(WeightExpr::Stack(vec![]), &[1]).contains("nothing"));
}

#[test]
fn unused_tensors_are_reported_in_file_order() {
    let graph = graph_of(Weight { name: "w".into(), shape: vec![4, 3, 64], expr: tensor("q") });
    assert_eq!(ModelSource::of_gguf(file()).unused([&graph]), ["f", "k"]);
}

#[test]
fn metadata_reaches_families_whatever_integer_type_it_has() {
    let mut writer = GgufWriter::new();
    let tokens: StringArray = (0..1025).map(|i| i.to_string()).collect();
    writer
        .key("general.architecture", "x")
        .key("x.a", Value::I64(7))
        .key("x.b", Value::U8(7))
        .key("x.c", Value::I8(-7));
    writer.key("x.latin", Value::String(b"caf\xe9".to_vec().into()));
    writer.key("x.flags", vec![true, false]).key("x.tokens", tokens).key("x.widths", vec![3_i32, -1]);
    writer.tensor_f32("t", &[2, 3], &[0.0; 6]);
    let checkpoint = checkpoint(&GgufFile::from_bytes("x.gguf", writer.to_bytes()).unwrap()).unwrap();
    let value = |key: &str| checkpoint.metadata[key].clone();
    assert_eq!(
        [value("x.a"), value("x.b"), value("x.c")],
        [MetaValue::Uint(7), MetaValue::Uint(7), MetaValue::Int(-7)]
    );
    assert_eq!(value("x.flags"), MetaValue::Array(vec![MetaValue::Bool(true), MetaValue::Bool(false)]));
    assert_eq!(value("x.widths"), MetaValue::Array(vec![MetaValue::Uint(3), MetaValue::Int(-1)]));
    assert_eq!(value("x.latin"), MetaValue::Bytes(b"caf\xe9".to_vec()));
    assert_eq!(value("x.tokens"), MetaValue::Omitted { r#type: "string".into(), length: 1025 });
    assert_eq!(checkpoint.tensors["t"].shape, [3, 2]);
}

#[test]
fn errors_of_opening_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quokka.gguf");
    let mut writer = GgufWriter::new();
    writer.key("general.architecture", "quokka").tensor_f32("t", &[1], &[0.0]);
    std::fs::write(&path, writer.to_bytes()).unwrap();
    let unknown = open(&path, &Families::default()).unwrap_err();
    assert!(matches!(unknown, LoadError::Family { .. }));
    for error in [unknown, open(folder.path().join("absent.gguf"), &Families::default()).unwrap_err()] {
        assert!(error.to_string().contains(&*folder.path().to_string_lossy()), "{error}");
    }
}

/// A step that keeps an expression valid, picked and sized by three numbers.
fn grow((kind, a, b): (u8, usize, usize), expr: WeightExpr, shape: &mut Vec<usize>) -> WeightExpr {
    let (of, axis) = (Box::new(expr.clone()), a % shape.len());
    match kind % 7 {
        0 => {
            let start = b % shape[axis];
            let len = 1 + a % (shape[axis] - start);
            shape[axis] = len;
            WeightExpr::Slice { of, axis, start, len }
        }
        1 if shape.len() > 1 => {
            let first = shape.remove(0);
            shape[0] *= first;
            WeightExpr::Reshape { of, shape: shape.clone() }
        }
        2 => {
            let mut axes: Vec<usize> = (0..shape.len()).collect();
            axes.rotate_left(a % shape.len());
            axes.swap(0, b % shape.len());
            *shape = axes.iter().map(|&axis| shape[axis]).collect();
            WeightExpr::Permute { of, axes }
        }
        3 => {
            shape[axis] *= 2;
            WeightExpr::Concat { of: vec![expr.clone(), expr], axis }
        }
        4 if shape.len() < 4 => {
            shape.insert(0, 2);
            WeightExpr::Stack(vec![expr.clone(), expr])
        }
        5 => WeightExpr::Affine { of, scale: 0.25, offset: 0.5 },
        _ => WeightExpr::Exp(Box::new(WeightExpr::Affine { of, scale: 0.125, offset: 0.0 })),
    }
}

fn any_expr() -> impl Strategy<Value = WeightExpr> {
    let size = prop_oneof![0_usize..70, any::<usize>()];
    let leaf = prop_oneof!["[fqk]", "absent"].prop_map(WeightExpr::Tensor);
    leaf.prop_recursive(4, 12, 3, move |inner| {
        let of = inner.clone().prop_map(Box::new);
        let sizes = proptest::collection::vec(size.clone(), 0..4);
        let axes = proptest::collection::vec(0_usize..4, 0..4);
        let several = proptest::collection::vec(inner, 0..3);
        prop_oneof![
            (of.clone(), 0_usize..4, size.clone(), size.clone()).prop_map(|(of, axis, start, len)| WeightExpr::Slice {
                of,
                axis,
                start,
                len
            }),
            (of.clone(), sizes).prop_map(|(of, shape)| WeightExpr::Reshape { of, shape }),
            (of.clone(), axes).prop_map(|(of, axes)| WeightExpr::Permute { of, axes }),
            (several.clone(), 0_usize..4).prop_map(|(of, axis)| WeightExpr::Concat { of, axis }),
            several.prop_map(WeightExpr::Stack),
            of.prop_map(WeightExpr::Exp),
        ]
    })
}

proptest! {
    #[test]
    fn expressions_have_the_value_that_the_oracle_computes(
        name in "[fqk]",
        steps in proptest::collection::vec(any::<(u8, usize, usize)>(), 0..6),
    ) {
        let mut shape = if name == "k" { vec![2, 4, 512] } else { vec![4, 3, 64] };
        let mut expr = tensor(&name);
        for step in steps {
            expr = grow(step, expr, &mut shape);
        }
        let data = load(expr.clone(), &shape).unwrap();
        let expected = oracle(&expr, &shape);
        for (found, expected) in decoded(data.ty, &data.bytes, expected.len()).iter().zip(&expected) {
            let same = found == expected || (found - expected).abs() <= 1e-5 * expected.abs().max(1.0);
            prop_assert!(same || *expected > f64::from(f32::MAX), "{found} for {expected}");
        }
    }

    #[test]
    fn no_expression_panics_and_what_is_loaded_has_its_size(
        expr in any_expr(),
        shape in proptest::collection::vec(0_usize..70, 0..4),
    ) {
        let found = load(expr, &shape);
        if let Ok(data) = found {
            let values: usize = shape.iter().product();
            prop_assert_eq!(data.bytes.len(), data.ty.row_bytes(values).unwrap());
        }
    }
}
