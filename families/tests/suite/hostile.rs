//! Damaged checkpoints are refused by the key or tensor at fault; none makes a family panic or build something huge.

use std::sync::LazyLock;

use bantam_family_api::{Checkpoint, FamilyError, MetaValue, Model};
use bantam_graph::Graph;
use proptest::prelude::*;

use crate::support::{Fixture, describe, drafts, family, fixture, fixtures, graphs};

static CHECKPOINTS: LazyLock<Vec<Checkpoint>> =
    LazyLock::new(|| fixtures().into_iter().map(|fixture| fixture.checkpoint).collect());

/// Drafts in files of their own, with their models and the graphs of these.
static DRAFT_FILES: LazyLock<Vec<(Checkpoint, Checkpoint, Graph)>> = LazyLock::new(|| {
    let target = |draft: &Fixture| fixture(draft.expect["target"].as_str().unwrap()).checkpoint;
    let apart = drafts().into_iter().map(|draft| (target(&draft), draft.checkpoint));
    let beside = fixtures().into_iter().filter_map(|f| Some((f.checkpoint.clone(), f.draft_file()?.checkpoint)));
    let pairs = apart.chain(beside);
    pairs.map(|(target, draft)| (draft, target.clone(), describe(&target).unwrap().text)).collect()
});

/// Tensors that a family can do without.
fn is_optional(tensor: &str) -> bool {
    // Without values of their own, attention reads its keys for them: all full layers of Gemma 4 or none.
    let values = tensor.ends_with(".attn_v.weight");
    tensor == "output.weight" || tensor == "rope_freqs.weight" || tensor.ends_with(".bias") || values
}

fn reads(model: &Model, tensor: &str) -> bool {
    graphs(model).iter().flat_map(|graph| &graph.weights).any(|weight| weight.expr.tensors().contains(&tensor))
}

#[test]
fn every_tensor_of_the_fixtures_is_used() {
    for checkpoint in &*CHECKPOINTS {
        let model = describe(checkpoint).unwrap();
        checkpoint.tensors.keys().for_each(|tensor| assert!(reads(&model, tensor), "{tensor}"));
    }
}

#[test]
fn a_missing_tensor_is_named_unless_it_is_optional() {
    for checkpoint in &*CHECKPOINTS {
        for tensor in checkpoint.tensors.keys() {
            let mut damaged = checkpoint.clone();
            damaged.tensors.remove(tensor);
            match describe(&damaged) {
                Ok(model) => assert!(is_optional(tensor) && !reads(&model, tensor), "{tensor}"),
                Err(e) => assert!(e.to_string().contains(tensor.as_str()), "{tensor}: {e}"),
            }
        }
    }
}

#[test]
fn a_misshapen_tensor_is_named_with_both_shapes() {
    for checkpoint in &*CHECKPOINTS {
        for (tensor, meta) in &checkpoint.tensors {
            let mut damaged = checkpoint.clone();
            let shape = &mut damaged.tensors.get_mut(tensor).unwrap().shape;
            *shape.last_mut().unwrap() += 2;
            let found = checkpoint.shown(shape);
            let message = describe(&damaged).unwrap_err().to_string();
            assert!(message.contains(tensor.as_str()) && message.contains(&found), "{tensor}: {message}");
            if tensor != "token_embd.weight" {
                assert!(message.contains(&checkpoint.shown(&meta.shape)), "{tensor}: {message}");
            }
        }
    }
}

#[test]
fn as_many_entries_in_another_shape_are_refused() {
    for checkpoint in &*CHECKPOINTS {
        for (tensor, meta) in &checkpoint.tensors {
            let reversed: Vec<usize> = meta.shape.iter().rev().copied().collect();
            let deeper = [&meta.shape[..], &[1]].concat();
            for shape in [reversed, deeper] {
                let plain = |shape: &[usize]| shape.iter().copied().skip_while(|&n| n == 1).collect::<Vec<_>>();
                if plain(&shape) == plain(&meta.shape) {
                    continue;
                }
                let mut damaged = checkpoint.clone();
                damaged.tensors.get_mut(tensor).unwrap().shape = shape.clone();
                let refused = describe(&damaged).err().unwrap_or_else(|| panic!("{tensor} {shape:?} is taken"));
                let message = refused.to_string();
                let both = message.contains(tensor.as_str()) && message.contains(&damaged.shown(&shape));
                assert!(both, "{tensor}: {message}");
            }
        }
    }
}

#[test]
fn weights_of_a_type_that_no_weight_has_are_refused() {
    for checkpoint in &*CHECKPOINTS {
        for (tensor, meta) in checkpoint.tensors.iter().filter(|(_, meta)| meta.r#type != "I32") {
            for ty in ["I8", "I32", "I64", "F64", "U8", ""] {
                let mut damaged = checkpoint.clone();
                damaged.tensors.get_mut(tensor).unwrap().r#type = ty.into();
                let message =
                    describe(&damaged).err().unwrap_or_else(|| panic!("{tensor} as {ty} is taken")).to_string();
                let (name, expected) = (message.contains(tensor.as_str()), message.contains("F32, F16, BF16"));
                assert!(name && expected && message.ends_with(ty), "{tensor}, {}: {message}", meta.r#type);
            }
        }
    }
}

#[test]
fn a_draft_alone_is_refused_with_what_it_is_for() {
    for (draft, target, _) in &*DRAFT_FILES {
        let message = describe(draft).unwrap_err().to_string();
        assert!(message.contains("--draft") && message.contains(&target.architecture), "{message}");
    }
}

/// The keys of an architecture, without it, and their values.
fn keys(checkpoint: &Checkpoint) -> impl Iterator<Item = (&str, &MetaValue)> {
    let of_family = |(key, value)| Some((str::strip_prefix(key, &checkpoint.architecture)?.strip_prefix('.')?, value));
    checkpoint.metadata.iter().map(|(key, value)| (key.as_str(), value)).filter_map(of_family)
}

fn with(checkpoint: &Checkpoint, key: &str, value: MetaValue) -> Checkpoint {
    let mut damaged = checkpoint.clone();
    damaged.metadata.insert(format!("{}.{key}", checkpoint.architecture), value);
    damaged
}

fn refused_by_key(damaged: &Checkpoint, key: &str, what: &str) {
    let name = format!("{}.{key}", damaged.architecture);
    let message = describe(damaged).err().unwrap_or_else(|| panic!("{name} {what} is taken")).to_string();
    assert!(message.contains(&name), "{name} {what}: {message}");
}

/// Keys that say nothing of what is computed.
const UNREAD: &[&str] = &[
    "embedding_length_out",
    "ple.image_token_id",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_attn_factor",
    "vocab_size",
];

#[test]
fn numbers_beyond_sense_are_refused_by_key() {
    for checkpoint in &*CHECKPOINTS {
        let numbers = keys(checkpoint).filter(|(_, value)| matches!(value, MetaValue::Float(_)));
        for (key, _) in numbers.filter(|(key, _)| !UNREAD.contains(key)) {
            for x in [1e30, -1e30, f64::NAN, f64::INFINITY] {
                refused_by_key(&with(checkpoint, key, MetaValue::Float(x)), key, &x.to_string());
            }
        }
        let epsilon = keys(checkpoint).map(|(key, _)| key).filter(|key| key.ends_with("epsilon"));
        epsilon.for_each(|key| refused_by_key(&with(checkpoint, key, MetaValue::Float(0.0)), key, "0"));
        let bases = keys(checkpoint).map(|(key, _)| key).filter(|key| key.contains("freq_base"));
        bases.for_each(|key| refused_by_key(&with(checkpoint, key, MetaValue::Float(1e-38)), key, "1e-38"));
    }
}

#[test]
fn arrays_of_another_length_or_type_are_refused_by_key() {
    // Its rest is of blocks that drafts have.
    let may_go_on = |checkpoint: &Checkpoint, key| checkpoint.architecture == "deepseek4" && key == RATIOS;
    const RATIOS: &str = "attention.compress_ratios";
    const SECTIONS: &str = "rope.dimension_sections";
    for checkpoint in &*CHECKPOINTS {
        for (key, value) in keys(checkpoint) {
            let MetaValue::Array(values) = value else { continue };
            let mut wrong = values.clone();
            wrong[0] = MetaValue::Text("x".into());
            refused_by_key(&with(checkpoint, key, MetaValue::Array(wrong)), key, "with a text");
            refused_by_key(&with(checkpoint, key, MetaValue::Array(vec![])), key, "empty");
            let longer = [&values[..], &values[..1]].concat();
            if !may_go_on(checkpoint, key) {
                refused_by_key(&with(checkpoint, key, MetaValue::Array(longer)), key, "longer");
            }
            let blocks = keys(checkpoint).find(|(key, _)| *key == "block_count").unwrap().1;
            if key != SECTIONS && (MetaValue::Uint(values.len() as u64) == *blocks || key.starts_with("ple.head")) {
                let shorter = values[1..].to_vec();
                refused_by_key(&with(checkpoint, key, MetaValue::Array(shorter)), key, "shorter");
            }
        }
    }
}

#[test]
fn limits_below_0_are_refused_by_key() {
    for checkpoint in &*CHECKPOINTS {
        for (key, value) in keys(checkpoint).filter(|(key, _)| key.starts_with("swiglu_clamp")) {
            let MetaValue::Array(mut values) = value.clone() else { panic!("{key}") };
            values[1] = MetaValue::Float(-1.0);
            refused_by_key(&with(checkpoint, key, MetaValue::Array(values)), key, "of -1");
        }
    }
}

/// Keys that their documentation gives a meaning to where they are missing, with the architectures of which that is true.
const OPTIONAL: &[(&str, &[&str])] = &[
    ("attention.group_norm_groups", &["k2-horizon"]),
    ("attention.sliding_window", &["gemma3"]),
    ("attention.sliding_window_pattern", &["muse-glimmer"]),
    ("expert_weights_norm", &["k2-horizon"]),
    ("expert_weights_scale", &["k2-horizon"]),
    ("final_logit_softcapping", &["gemma3", "gemma4", "muse-glimmer"]),
    ("rope.freq_base", &["gemma3", "gemma4", "llama", "muse-glimmer", "qwen3", "qwen3moe"]),
    ("rope.freq_base_swa", &["gemma3", "gemma4"]),
    ("rope.scaling.yarn_beta_fast", &["k2-horizon"]),
    ("rope.scaling.yarn_beta_slow", &["k2-horizon"]),
    ("swiglu_clamp_exp", &["bailingmoe3"]),
    ("swiglu_clamp_shexp", &["bailingmoe3"]),
];

#[test]
fn a_key_whose_absence_would_change_what_is_computed_is_needed() {
    for checkpoint in &*CHECKPOINTS {
        let whole = describe(checkpoint).unwrap();
        let architecture = checkpoint.architecture.as_str();
        for (key, _) in keys(checkpoint) {
            let mut damaged = checkpoint.clone();
            damaged.metadata.remove(&format!("{architecture}.{key}"));
            match describe(&damaged) {
                Ok(model) => {
                    let optional = OPTIONAL.iter().any(|(name, of)| *name == key && of.contains(&architecture));
                    let same = model.text == whole.text && model.draft == whole.draft;
                    assert!(same || optional, "{architecture}.{key} is not missed");
                }
                Err(e) => assert!(matches!(e, FamilyError::Key { .. } | FamilyError::Tensor { .. }), "{key}: {e}"),
            }
        }
    }
}

/// Sizes that are no mistake of the key, by architecture: it is not read, or says of which kind layers are.
const OTHER_MEANINGS: &[(&str, &str, u64)] = &[
    ("bailingmoe3", "attention.head_count_kv", 0),
    ("nemotron_h_moe", "attention.head_count_kv", 0),
    ("nemotron_h_moe", "rope.dimension_count", 3),
    ("nemotron_h_moe", "rope.dimension_count", 1 << 20),
];

#[test]
fn sizes_that_cannot_be_are_refused_by_key() {
    let cases = [
        ("attention.head_count", 0),
        ("attention.head_count", u64::MAX),
        ("attention.head_count_kv", 0),
        ("attention.head_count_kv", 5),
        ("block_count", 0),
        ("block_count", u64::MAX),
        ("embedding_length", 0),
        ("context_length", u64::MAX),
        ("attention.key_length", 0),
        ("attention.key_length", 1 << 40),
        ("rope.dimension_count", 3),
        ("rope.dimension_count", 1 << 20),
        ("feed_forward_length", u64::MAX),
    ];
    for checkpoint in &*CHECKPOINTS {
        let has_dense_layers = checkpoint.has("blk.0.ffn_gate.weight");
        for (name, value) in cases.into_iter().filter(|(key, _)| has_dense_layers || *key != "feed_forward_length") {
            let key = format!("{}.{name}", checkpoint.architecture);
            let mut damaged = checkpoint.clone();
            damaged.metadata.insert(key.clone(), MetaValue::Uint(value));
            if OTHER_MEANINGS.contains(&(&checkpoint.architecture, name, value)) {
                continue;
            }
            let message = describe(&damaged).err().unwrap_or_else(|| panic!("{key} = {value} is taken")).to_string();
            assert!(message.contains(&key), "{key} = {value}: {message}");
        }
    }
}

#[test]
fn more_tokens_than_embeddings_are_refused() {
    let mut damaged = CHECKPOINTS[0].clone();
    let tokens = MetaValue::Omitted { r#type: "string".into(), length: 1 << 20 };
    damaged.metadata.insert("tokenizer.ggml.tokens".into(), tokens);
    assert!(describe(&damaged).unwrap_err().to_string().contains("tokenizer.ggml.tokens"));
}

fn meta_value() -> impl Strategy<Value = MetaValue> {
    let number = prop_oneof![0_u64..70, any::<u64>(), Just(1 << 31), Just(u64::from(u32::MAX)), Just(i64::MAX as u64)];
    let leaf = prop_oneof![
        4 => number.clone().prop_map(MetaValue::Uint),
        1 => any::<bool>().prop_map(MetaValue::Bool),
        1 => any::<i64>().prop_map(|n| MetaValue::Int(n.min(-1))),
        2 => any::<f64>().prop_map(MetaValue::Float),
        1 => prop_oneof!["linear", "yarn", "none", ".{0,8}"].prop_map(MetaValue::Text),
        1 => number.prop_map(|length| MetaValue::Omitted { r#type: "u32".into(), length }),
    ];
    leaf.clone()
        .prop_recursive(1, 8, 8, move |_| proptest::collection::vec(leaf.clone(), 0..8).prop_map(MetaValue::Array))
}

#[derive(Clone, Debug)]
enum Damage {
    Set(usize, MetaValue),
    RemoveKey(usize),
    Extent(usize, usize, usize),
    RemoveAxis(usize),
    RemoveTensor(usize),
    RenameTensor(usize, String),
}

fn damage() -> impl Strategy<Value = Damage> {
    let extent = prop_oneof![0_usize..9, any::<usize>(), Just(1 << 31)];
    prop_oneof![
        6 => (any::<usize>(), meta_value()).prop_map(|(at, value)| Damage::Set(at, value)),
        1 => any::<usize>().prop_map(Damage::RemoveKey),
        2 => (any::<usize>(), any::<usize>(), extent).prop_map(|(at, axis, n)| Damage::Extent(at, axis, n)),
        1 => any::<usize>().prop_map(Damage::RemoveAxis),
        1 => any::<usize>().prop_map(Damage::RemoveTensor),
        1 => (any::<usize>(), "blk\\.[0-2]\\.(attn_qkv|ffn_gate_up_exps|attn_q)\\.(weight|bias|scale)")
            .prop_map(|(at, name)| Damage::RenameTensor(at, name)),
    ]
}

/// Keys that families read, beside those that the fixture has.
const KEYS: &[&str] = &[
    "attention.group_norm_groups",
    "attention.compress_ratios",
    "attention.indexer.head_count",
    "attention.indexer.key_length",
    "attention.indexer.top_k",
    "attention.key_length_swa",
    "attention.recurrent_layers",
    "attention.shared_kv_layers",
    "attention.value_expert_count",
    "attention.value_expert_used_count",
    "embedding_length_per_layer_input",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_weights_norm",
    "expert_weights_scale",
    "attention.q_lora_rank",
    "attention.output_group_count",
    "attention.output_lora_rank",
    "expert_group_count",
    "expert_group_used_count",
    "leading_dense_block_count",
    "block_size",
    "hash_layer_count",
    "hyper_connection.sinkhorn_iterations",
    "kda.gate_lower_bound",
    "moe_latent_size",
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "final_logit_softcapping",
    "full_attention_interval",
    "nextn_predict_layers",
    "ple.layers",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.dimension_sections",
    "rope.freq_base_swa",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "sample_from_anchor",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
    "target_layers",
];

fn apply(checkpoint: &mut Checkpoint, damage: Damage) {
    let prefix = format!("{}.", checkpoint.architecture);
    let mut keys: Vec<String> = checkpoint.metadata.keys().filter(|k| k.starts_with(&prefix)).cloned().collect();
    keys.extend(KEYS.iter().map(|key| format!("{prefix}{key}")));
    let names: Vec<String> = checkpoint.tensors.keys().cloned().collect();
    if names.is_empty() {
        return;
    }
    let name = |at: usize| &names[at % names.len()];
    match damage {
        Damage::Set(at, value) => drop(checkpoint.metadata.insert(keys[at % keys.len()].clone(), value)),
        Damage::RemoveKey(at) => drop(checkpoint.metadata.remove(&keys[at % keys.len()])),
        Damage::Extent(at, axis, extent) => {
            let shape = &mut checkpoint.tensors.get_mut(name(at)).unwrap().shape;
            if !shape.is_empty() {
                let axis = axis % shape.len();
                shape[axis] = extent;
            }
        }
        Damage::RemoveAxis(at) => drop(checkpoint.tensors.get_mut(name(at)).unwrap().shape.pop()),
        Damage::RemoveTensor(at) => drop(checkpoint.tensors.remove(name(at))),
        Damage::RenameTensor(at, to) => {
            let meta = checkpoint.tensors.remove(name(at)).unwrap();
            checkpoint.tensors.insert(to, meta);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn damage_ends_in_an_error_or_in_a_graph_that_fits_the_checkpoint(
        which in any::<usize>(),
        damages in proptest::collection::vec(damage(), 1..5),
    ) {
        let mut checkpoint = CHECKPOINTS[which % CHECKPOINTS.len()].clone();
        damages.into_iter().for_each(|damage| apply(&mut checkpoint, damage));
        if let Ok(model) = describe(&checkpoint) {
            for graph in graphs(&model) {
                prop_assert!(graph.nodes.len() <= 40 * checkpoint.tensors.len());
                for tensor in graph.weights.iter().flat_map(|weight| weight.expr.tensors()) {
                    prop_assert!(checkpoint.has(tensor), "{tensor}");
                }
            }
        }
    }

    #[test]
    fn damage_to_a_draft_file_ends_in_an_error_or_in_graphs_that_fit_the_model(
        which in any::<usize>(),
        damages in proptest::collection::vec(damage(), 1..5),
    ) {
        let (draft, target, trunk) = &DRAFT_FILES[which % DRAFT_FILES.len()];
        let mut damaged = draft.clone();
        damages.into_iter().for_each(|damage| apply(&mut damaged, damage));
        if let Ok(draft) = family(&target.architecture).describe_draft(&damaged, target) {
            for graph in draft.graphs(trunk).unwrap() {
                prop_assert!(graph.nodes.len() <= 40 * (damaged.tensors.len() + target.tensors.len()));
                for tensor in graph.weights.iter().flat_map(|weight| weight.expr.tensors()) {
                    let found = tensor.strip_prefix("draft.").map_or(target.has(tensor), |name| damaged.has(name));
                    prop_assert!(found, "{tensor}");
                }
            }
        }
    }
}
