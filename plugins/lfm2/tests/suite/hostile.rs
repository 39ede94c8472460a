//! Damaged checkpoints are refused by the key or tensor at fault, and none makes the family panic.

use std::sync::LazyLock;

use bantam_plugin_sdk::{
    family::{Checkpoint, FamilyError, MetaValue, Model},
    graph::{Op, StateKind},
};
use proptest::prelude::*;

use crate::support::{both, dense, describe, mixture, refusal};

static CHECKPOINTS: LazyLock<[Checkpoint; 2]> = LazyLock::new(|| both().map(|fixture| fixture.checkpoint));

fn uints(values: &[u64]) -> MetaValue {
    MetaValue::Array(values.iter().copied().map(MetaValue::Uint).collect())
}

fn reads(model: &Model, tensor: &str) -> bool {
    model.text.weights.iter().any(|weight| weight.expr.tensors().contains(&tensor))
}

#[test]
fn every_tensor_is_used_and_missed() {
    for fixture in both() {
        let model = describe(&fixture.checkpoint).unwrap();
        for tensor in fixture.checkpoint.tensors.keys() {
            assert!(reads(&model, tensor), "{tensor}");
            let mut damaged = fixture.checkpoint.clone();
            damaged.tensors.remove(tensor);
            // Without its usual name, the last norm is looked for by the other.
            let missed = if tensor == "token_embd_norm.weight" { "output_norm.weight" } else { tensor };
            assert!(refusal(&damaged).contains(missed), "{tensor}");
        }
    }
}

#[test]
fn a_misshapen_tensor_is_named_with_both_shapes() {
    for fixture in both() {
        let checkpoint = &fixture.checkpoint;
        for (tensor, meta) in &checkpoint.tensors {
            let mut damaged = checkpoint.clone();
            let shape = &mut damaged.tensors.get_mut(tensor).unwrap().shape;
            *shape.last_mut().unwrap() += 2;
            let found = checkpoint.shown(shape);
            let message = refusal(&damaged);
            assert!(message.contains(tensor.as_str()) && message.contains(&found), "{tensor}: {message}");
            if tensor != "token_embd.weight" {
                assert!(message.contains(&checkpoint.shown(&meta.shape)), "{tensor}: {message}");
            }
        }
    }
}

#[test]
fn a_key_whose_absence_would_change_what_is_computed_is_needed() {
    /// What the reference says they mean where they are missing.
    const OPTIONAL: &[&str] = &["leading_dense_block_count"];
    for fixture in both() {
        let whole = describe(&fixture.checkpoint).unwrap().text;
        let prefix = format!("{}.", fixture.checkpoint.architecture);
        for key in fixture.checkpoint.metadata.keys().filter_map(|key| key.strip_prefix(&prefix)) {
            match describe(&fixture.without(key)) {
                Ok(model) => assert!(model.text == whole || OPTIONAL.contains(&key), "{key} is not missed"),
                Err(e) => assert!(matches!(e, FamilyError::Key { .. } | FamilyError::Tensor { .. }), "{key}: {e}"),
            }
        }
    }
}

#[test]
fn values_that_cannot_be_are_refused_by_key() {
    let cases = [
        ("attention.head_count", MetaValue::Uint(0)),
        ("attention.head_count", MetaValue::Uint(3)),
        ("attention.head_count", uints(&[4, 5, 4])),
        ("attention.head_count", uints(&[4])),
        ("attention.head_count_kv", uints(&[0, 0, 0])),
        ("attention.head_count_kv", uints(&[0, 3, 0])),
        ("attention.head_count_kv", uints(&[0, 2])),
        ("attention.head_count_kv", MetaValue::Omitted { r#type: "i32".into(), length: 3 }),
        ("attention.causal", MetaValue::Bool(false)),
        ("attention.layer_norm_rms_epsilon", MetaValue::Float(0.0)),
        ("attention.sliding_window", MetaValue::Text("wide".into())),
        ("block_count", MetaValue::Uint(u64::MAX)),
        ("embedding_length", MetaValue::Uint(u64::MAX)),
        ("expert_gating_func", MetaValue::Uint(3)),
        ("expert_used_count", MetaValue::Uint(7)),
        ("expert_weights_scale", MetaValue::Float(-1.0)),
        ("feed_forward_length", MetaValue::Uint(u64::MAX)),
        ("rope.freq_base", MetaValue::Float(f64::NAN)),
        ("shortconv.l_cache", MetaValue::Uint(1)),
        ("shortconv.l_cache", MetaValue::Uint(1 << 40)),
    ];
    for (key, value) in cases {
        let message = refusal(&mixture().with(key, value.clone()));
        assert!(message.contains(&format!("lfm2moe.{key}")), "{key} = {value:?}: {message}");
    }
}

#[test]
fn the_last_norm_has_either_name() {
    let fixture = dense();
    let mut renamed = fixture.checkpoint.clone();
    let norm = renamed.tensors.remove("token_embd_norm.weight").unwrap();
    renamed.tensors.insert("output_norm.weight".into(), norm);
    assert!(reads(&describe(&renamed).unwrap(), "output_norm.weight"));
}

#[test]
fn a_window_narrows_the_layers_that_attend() {
    let model = |value| describe(&dense().with("attention.sliding_window", MetaValue::Uint(value))).unwrap().text;
    assert_eq!(model(0), describe(&dense().checkpoint).unwrap().text);
    let windowed = model(16);
    assert!(windowed.states.iter().all(|state| state.kind == StateKind::Window { len: 16 }));
    let windows = windowed.nodes.iter().filter_map(|node| match &node.op {
        Op::Attention(attention) => Some(attention.window),
        _ => None,
    });
    assert!(windows.collect::<Vec<_>>().iter().all(|window| *window == Some(16)));
}

fn meta_value() -> impl Strategy<Value = MetaValue> {
    let leaf = prop_oneof![
        4 => prop_oneof![0_u64..9, any::<u64>(), Just(1 << 31)].prop_map(MetaValue::Uint),
        1 => any::<bool>().prop_map(MetaValue::Bool),
        1 => (i64::MIN..0).prop_map(MetaValue::Int),
        2 => any::<f64>().prop_map(MetaValue::Float),
        1 => ".{0,8}".prop_map(MetaValue::Text),
        1 => any::<Vec<u8>>().prop_map(MetaValue::Bytes),
        1 => any::<u64>().prop_map(|length| MetaValue::Omitted { r#type: "u32".into(), length }),
    ];
    leaf.clone().prop_recursive(1, 4, 4, move |_| prop::collection::vec(leaf.clone(), 0..4).prop_map(MetaValue::Array))
}

/// Keys that the family reads, beside those that the fixtures have.
const KEYS: &[&str] = &[
    "attention.causal",
    "attention.key_length",
    "attention.scale",
    "attention.sliding_window",
    "expert_count",
    "expert_weights_scale",
    "nextn_predict_layers",
    "rope.dimension_count",
    "rope.dimension_sections",
    "rope.scaling.factor",
    "rope.scaling.type",
];

#[derive(Clone, Debug)]
enum Damage {
    Set(prop::sample::Index, MetaValue),
    RemoveKey(prop::sample::Index),
    Reshape(prop::sample::Index, Vec<usize>),
    RemoveTensor(prop::sample::Index),
    RenameTensor(prop::sample::Index, prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    let extent = prop_oneof![0_usize..200, any::<usize>()];
    prop_oneof![
        6 => (index(), meta_value()).prop_map(|(at, value)| Damage::Set(at, value)),
        2 => index().prop_map(Damage::RemoveKey),
        1 => (index(), prop::collection::vec(extent, 0..4)).prop_map(|(at, shape)| Damage::Reshape(at, shape)),
        1 => index().prop_map(Damage::RemoveTensor),
        1 => (index(), index()).prop_map(|(at, to)| Damage::RenameTensor(at, to)),
    ]
}

fn apply(checkpoint: &mut Checkpoint, damage: Damage) {
    let prefix = format!("{}.", checkpoint.architecture);
    let mut keys: Vec<String> = checkpoint.metadata.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
    keys.extend(KEYS.iter().map(|key| format!("{prefix}{key}")));
    let names: Vec<String> = checkpoint.tensors.keys().cloned().collect();
    match damage {
        Damage::Set(at, value) => drop(checkpoint.metadata.insert(at.get(&keys).clone(), value)),
        Damage::RemoveKey(at) => drop(checkpoint.metadata.remove(at.get(&keys))),
        Damage::Reshape(at, shape) => checkpoint.tensors.get_mut(at.get(&names)).unwrap().shape = shape,
        Damage::RemoveTensor(at) => drop(checkpoint.tensors.remove(at.get(&names))),
        Damage::RenameTensor(at, to) => {
            let meta = checkpoint.tensors.remove(at.get(&names)).unwrap();
            checkpoint.tensors.insert(to.get(&names).clone(), meta);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn damage_ends_in_an_error_or_in_a_graph_that_fits_the_checkpoint(
        which in prop::sample::select(vec![0_usize, 1]),
        damages in prop::collection::vec(damage(), 1..5),
    ) {
        let mut checkpoint = CHECKPOINTS[which].clone();
        damages.into_iter().for_each(|damage| apply(&mut checkpoint, damage));
        if let Ok(model) = describe(&checkpoint) {
            prop_assert!(model.text.nodes.len() <= 40 * checkpoint.tensors.len());
            for weight in &model.text.weights {
                let shape = weight.expr.shape(&|name| checkpoint.tensors.get(name).map(|meta| meta.shape.clone()));
                prop_assert!(shape.is_ok(), "{}: {shape:?}", weight.name);
            }
        }
    }
}
