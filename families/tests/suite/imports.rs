//! Checkpoints in Hugging Face's layout hold, in their family's terms, what the GGUF files made of them do.

use std::{collections::HashMap, path::Path, sync::LazyLock};

use bantam_family_api::{FamilyError, HfCheckpoint, Import, MetaValue, Model, TensorMeta};
use bantam_gguf::{GgmlType, dequantize};
use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::{
    golden::largest_difference,
    interpreter::{self, Tensor},
    support::{self, Fixture, fixtures, graphs},
};

struct HfFixture {
    gguf: Fixture,
    checkpoint: HfCheckpoint,
    tensors: HashMap<String, Tensor>,
}

impl HfFixture {
    fn read(gguf: Fixture, folder: &Path) -> Self {
        let config = std::fs::read(folder.join("config.json")).unwrap();
        let config = serde_json::from_slice(&config).unwrap();
        let mut fixture =
            HfFixture { gguf, checkpoint: HfCheckpoint { config, ..HfCheckpoint::default() }, tensors: HashMap::new() };
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "safetensors")) {
            let bytes = std::fs::read(file).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
                let ty = match view.dtype() {
                    Dtype::F32 => GgmlType::F32,
                    Dtype::BF16 => GgmlType::BF16,
                    other => panic!("no fixture holds {other:?}"),
                };
                let shape = view.shape().to_vec();
                let mut values = vec![0.0; shape.iter().product()];
                dequantize(ty, view.data(), &mut values).unwrap();
                let meta = TensorMeta { shape: shape.clone(), r#type: ty.name().into() };
                fixture.checkpoint.tensors.insert(name.into(), meta);
                let data = values.into_iter().map(f64::from).collect();
                fixture.tensors.insert(name.into(), Tensor { shape, data });
            }
        }
        fixture
    }

    fn value(&self, import: &Import, tensor: &str) -> Tensor {
        interpreter::weights::expression(&import.tensors[tensor], &|name| self.tensors[name].clone())
    }
}

static FIXTURES: LazyLock<Vec<HfFixture>> = LazyLock::new(|| {
    let with_hf = fixtures().into_iter().filter_map(|fixture| {
        let folder = fixture.folder.join("hf");
        folder.is_dir().then(|| HfFixture::read(fixture, &folder))
    });
    with_hf.collect()
});

/// The model of a checkpoint; errors name what the files do.
fn describe(checkpoint: &HfCheckpoint) -> Result<Model, FamilyError> {
    let import = bantam_families::import(checkpoint)?;
    support::describe(&import.checkpoint).map_err(|error| import.in_terms_of_the_files(error))
}

fn in_text_model(tensor: &str) -> bool {
    !tensor.starts_with("model.visual.")
}

#[test]
fn keys_that_the_gguf_has_are_the_same() {
    // What is only for images, or for people.
    let other = |key: &str| key.ends_with(".rope.dimension_sections");
    for fixture in &*FIXTURES {
        let (gguf, import) = (&fixture.gguf.checkpoint, bantam_families::import(&fixture.checkpoint).unwrap());
        assert_eq!(import.checkpoint.architecture, gguf.architecture);
        let keys = gguf.metadata.iter().filter(|(key, _)| key.starts_with(&gguf.architecture) && !other(key));
        for (key, expected) in keys {
            let found =
                import.checkpoint.metadata.get(key).unwrap_or_else(|| panic!("{}: no {key}", fixture.gguf.name));
            match (expected, found) {
                (MetaValue::Float(a), MetaValue::Float(b)) => assert_eq!(*a as f32, *b as f32, "{key}"),
                _ => assert_eq!(expected, found, "{}: {key}", fixture.gguf.name),
            }
        }
    }
}

#[test]
fn tensors_equal_those_of_the_gguf() {
    for fixture in &*FIXTURES {
        let import = bantam_families::import(&fixture.checkpoint).unwrap();
        for (name, meta) in &import.checkpoint.tensors {
            let found = fixture.value(&import, name);
            assert_eq!(found.shape, meta.shape, "{name}");
            let Some(expected) = fixture.gguf.tensors.get(name) else {
                // Gates and ups of experts may be one tensor in one file, and two in the other.
                assert!(name.contains("_exps."), "{}: {name}", fixture.gguf.name);
                continue;
            };
            assert_eq!(found.data.len(), expected.data.len(), "{name}");
            let differences = found.data.iter().zip(&expected.data).map(|(a, b)| (a - b).abs());
            let difference = differences.fold(0.0, f64::max);
            assert!(difference < 1e-6, "{}: {name} differs by {difference}", fixture.gguf.name);
        }
        for name in fixture.gguf.tensors.keys().filter(|name| !name.contains("_exps.")) {
            assert!(import.checkpoint.has(name), "{}: no {name}", fixture.gguf.name);
        }
        let read: Vec<&str> = import.tensors.values().flat_map(|expr| expr.tensors()).collect();
        for name in fixture.checkpoint.tensors.keys().filter(|name| in_text_model(name)) {
            assert!(read.contains(&name.as_str()), "{}: {name} is not used", fixture.gguf.name);
        }
    }
}

#[test]
fn logits_equal_the_reference() {
    for fixture in &*FIXTURES {
        let import = bantam_families::import(&fixture.checkpoint).unwrap();
        let model = support::describe(&import.checkpoint).unwrap();
        let prompt = fixture.gguf.ids("prompt");
        let rows: Vec<usize> = (0..prompt.len()).collect();
        let mut values = interpreter::run(&model.text, &|name| fixture.value(&import, name), &prompt, &rows);
        let logits = values.remove(&model.text.output).unwrap();
        let difference = largest_difference(&logits.data, &fixture.gguf.numbers("logits.f32"));
        let bound = 2e-3 * fixture.gguf.expect["logits_std"].as_f64().unwrap().max(1.0);
        assert!(difference <= bound, "{}: logits differ by {difference}", fixture.gguf.name);
    }
}

#[test]
fn a_missing_or_misshapen_tensor_is_called_what_the_files_call_it() {
    for fixture in &*FIXTURES {
        for tensor in fixture.checkpoint.tensors.keys().filter(|name| in_text_model(name)) {
            let mut damaged = fixture.checkpoint.clone();
            damaged.tensors.remove(tensor);
            let message = describe(&damaged).unwrap_err().to_string();
            assert!(message.contains(tensor.as_str()), "{}: {tensor}: {message}", fixture.gguf.name);
            let mut damaged = fixture.checkpoint.clone();
            *damaged.tensors.get_mut(tensor).unwrap().shape.last_mut().unwrap() += 2;
            let message = describe(&damaged).err().unwrap_or_else(|| panic!("{tensor} is taken")).to_string();
            let name = tensor.rsplit_once("experts.").map_or(tensor.as_str(), |(layer, _)| layer);
            assert!(message.contains(name), "{}: {tensor}: {message}", fixture.gguf.name);
        }
    }
}

fn text_config(config: &mut serde_json::Map<String, Value>) -> &mut serde_json::Map<String, Value> {
    config["text_config"].as_object_mut().unwrap()
}

fn qwen35(name: &str) -> &'static HfFixture {
    FIXTURES.iter().find(|fixture| fixture.gguf.name == name).unwrap()
}

#[test]
fn what_cannot_be_is_refused_by_the_key_of_the_file() {
    for (key, value) in [
        ("hidden_size", json!(null)),
        ("hidden_size", json!(65)),
        ("num_hidden_layers", json!(0)),
        ("num_hidden_layers", json!(1_u64 << 40)),
        ("num_attention_heads", json!("four")),
        ("linear_num_value_heads", json!(5)),
        ("linear_value_head_dim", json!(8)),
        ("layer_types", json!(["full_attention"])),
        ("layer_types", json!(["linear_attention", "linear_attention", "linear_attention", "sliding_attention"])),
        ("attn_output_gate", json!(false)),
        ("rms_norm_eps", json!({"a": 1})),
    ] {
        let mut damaged = qwen35("qwen35-dense").checkpoint.clone();
        text_config(&mut damaged.config).insert(key.into(), value.clone());
        let message = describe(&damaged).unwrap_err().to_string();
        let shape = key == "hidden_size" && value == 65;
        assert!(message.contains(&format!("text_config.{key}")) || shape, "{key}: {message}");
    }
    for (key, value) in [("rope_type", json!("longrope")), ("partial_rotary_factor", json!(9.5)), ("mscale", json!(2))]
    {
        let mut damaged = qwen35("qwen35-dense").checkpoint.clone();
        text_config(&mut damaged.config)["rope_parameters"][key] = value;
        let message = describe(&damaged).unwrap_err().to_string();
        assert!(message.contains(&format!("rope_parameters.{key}")), "{key}: {message}");
    }
}

#[test]
fn the_text_model_may_stand_alone_or_under_another_prefix() {
    let fixture = qwen35("qwen35-mtp");
    let expected = describe(&fixture.checkpoint).unwrap();
    for prefix in ["model.", "language_model.model."] {
        let mut alone = HfCheckpoint { config: fixture.checkpoint.config.clone(), ..HfCheckpoint::default() };
        alone.config = text_config(&mut alone.config).clone();
        alone.config.insert("architectures".into(), json!(["Qwen3_5ForCausalLM"]));
        for (name, meta) in fixture.checkpoint.tensors.iter().filter(|(name, _)| in_text_model(name)) {
            alone.tensors.insert(name.replace("model.language_model.", prefix), meta.clone());
        }
        assert_eq!(describe(&alone).unwrap(), expected);
    }
}

#[test]
fn an_output_matrix_in_the_files_counts_and_without_one_it_is_tied_unless_no_key_says_so() {
    let output = |outer: bool, inner: bool, present: bool| {
        let mut checkpoint = qwen35("qwen35-dense").checkpoint.clone();
        checkpoint.config.insert("tie_word_embeddings".into(), json!(outer));
        text_config(&mut checkpoint.config).insert("tie_word_embeddings".into(), json!(inner));
        if !present {
            checkpoint.tensors.remove("lm_head.weight");
        }
        describe(&checkpoint).map(|model| model.text.weight("output.weight").is_some()).map_err(|e| e.to_string())
    };
    assert_eq!([output(true, true, true), output(true, true, false)], [Ok(true), Ok(false)]);
    assert_eq!([output(true, false, true), output(false, true, false)], [Ok(true), Ok(false)]);
    assert_eq!(output(false, false, true), Ok(true));
    assert!(output(false, false, false).unwrap_err().contains("lm_head.weight"));
}

#[test]
fn a_draft_block_whose_tensors_were_left_out_is_not_described() {
    let mut without = qwen35("qwen35-mtp").checkpoint.clone();
    without.tensors.retain(|name, _| !name.starts_with("mtp."));
    let model = describe(&without).unwrap();
    assert!(model.draft.is_none());
    assert_eq!(model.text, describe(&qwen35("qwen35-mtp").checkpoint).unwrap().text);
}

#[test]
fn an_unknown_class_is_answered_with_the_known_ones() {
    let mut other = qwen35("qwen35-dense").checkpoint.clone();
    other.config.insert("architectures".into(), json!(["QuokkaForCausalLM"]));
    let message = describe(&other).unwrap_err().to_string();
    assert!(message.contains("QuokkaForCausalLM") && message.contains("Qwen3_5ForCausalLM"), "{message}");
    other.config.remove("architectures");
    assert!(describe(&other).unwrap_err().to_string().contains("architectures"));
}

#[test]
fn another_variant_of_bailing_is_refused_by_the_key_of_the_file() {
    let fixture = FIXTURES.iter().find(|fixture| fixture.gguf.name == "bailingmoe3-flash").unwrap();
    for (key, value) in [
        ("hidden_act", json!("gelu")),
        ("linear_silu", json!(false)),
        ("moe_router_enable_expert_bias", json!(false)),
        ("topk_method", json!("greedy")),
        ("rope_interleave", json!(false)),
        ("layer_types", json!(vec!["full_attention"; 6])),
        ("share_expert_swiglu_limit_list", json!([0, 0, 0, 0, 0, 0, 0, 0])),
        ("no_kda_lora", json!(false)),
        ("kda_safe_gate", json!(false)),
        ("kda_lower_bound", json!(0)),
        ("use_mla_nope", json!(true)),
        ("mtp_use_kda", json!(true)),
        ("use_qkv_bias", json!(true)),
        ("gated_attention_proj_granularity_type", json!("element_wise")),
        ("score_function", json!("softmax")),
        ("expert_swiglu_limit_list", json!([0, "none"])),
        ("rope_scaling", json!({ "type": "yarn" })),
        ("layer_group_size", json!(0)),
        ("num_hidden_layers", json!(1_u64 << 40)),
        ("n_group", json!(5)),
    ] {
        let mut damaged = fixture.checkpoint.clone();
        damaged.config.insert(key.into(), value);
        let message = describe(&damaged).unwrap_err().to_string();
        assert!(message.contains(&format!("config.json: {key}")), "{key}: {message}");
    }
}

#[test]
fn an_incomplete_last_group_of_bailing_attends() {
    let fixture = FIXTURES.iter().find(|fixture| fixture.gguf.name == "bailingmoe3-tiny").unwrap();
    let mut checkpoint = fixture.checkpoint.clone();
    checkpoint.config.insert("layer_group_size".into(), json!(4));
    let import = bantam_families::import(&checkpoint).unwrap().checkpoint;
    let kv_heads = MetaValue::Array([0, 0, 0, 1, 1, 1].map(MetaValue::Uint).into());
    assert_eq!(import.metadata["bailingmoe3.attention.head_count_kv"], kv_heads);
}

/// The keys of a checkpoint that its text model is read from.
fn read_config(config: &mut serde_json::Map<String, Value>) -> &mut serde_json::Map<String, Value> {
    if config.contains_key("text_config") { text_config(config) } else { config }
}

fn refused_by_key(checkpoint: &HfCheckpoint, key: &str, what: &str) {
    let message = describe(checkpoint).err().unwrap_or_else(|| panic!("{key} {what} is taken")).to_string();
    assert!(message.contains("config.json: ") && message.contains(key), "{key} {what}: {message}");
}

/// Keys that say nothing of what is computed.
const UNREAD: &[&str] = &[
    "attention_dropout",
    "dtype",
    "embedding_dropout",
    "eos_token_id",
    "initializer_range",
    "mamba_ssm_dtype",
    "model_type",
    "mtp_loss_scaling_factor",
    "output_dropout",
    "output_router_logits",
    "pad_token_id",
    "router_aux_loss_coef",
    "router_dtype",
    "seq_aux",
    "use_cache",
];

/// Keys that have lost their meaning in the version of Bailing that is described.
const UNREAD_OF_BAILING: &[&str] = &[
    "group_norm_size",
    "max_window_layers",
    "num_key_value_heads",
    "num_kv_heads_for_linear_attn",
    "partial_rotary_factor",
    "qk_head_dim",
    "rotary_dim",
    "use_qk_norm",
];

#[test]
fn a_key_of_another_type_is_refused_unless_nothing_reads_it() {
    for fixture in &*FIXTURES {
        let keys: Vec<String> = read_config(&mut fixture.checkpoint.config.clone()).keys().cloned().collect();
        let bailing = fixture.gguf.name.starts_with("bailing");
        let unread = |key: &str| UNREAD.contains(&key) || bailing && UNREAD_OF_BAILING.contains(&key);
        for key in keys.iter().filter(|key| !unread(key)) {
            let other_object = if key.starts_with("rope_") { json!({"rope_theta": {}}) } else { json!({"a": 1}) };
            for value in [other_object, json!([{}]), json!(-1e9), json!("x")] {
                let mut damaged = fixture.checkpoint.clone();
                read_config(&mut damaged.config).insert(key.clone(), value.clone());
                refused_by_key(&damaged, key, &value.to_string());
            }
        }
    }
}

#[test]
fn an_object_of_another_type_is_not_taken_for_none() {
    let dense = &qwen35("qwen35-dense").checkpoint;
    let mut whole = dense.clone();
    whole.config.insert("text_config".into(), json!([]));
    refused_by_key(&whole, "text_config", "as a list");
    for value in [json!("x"), json!([]), json!(5), json!(true)] {
        for key in ["rope_parameters", "rope_scaling"] {
            let mut damaged = dense.clone();
            text_config(&mut damaged.config).insert(key.into(), value.clone());
            refused_by_key(&damaged, &format!("text_config.{key}"), &value.to_string());
            let mut damaged = qwen35("bailingmoe3-tiny").checkpoint.clone();
            damaged.config.insert(key.into(), value.clone());
            refused_by_key(&damaged, key, &value.to_string());
        }
    }
}

#[test]
fn the_base_of_positions_is_never_guessed() {
    let dense = &qwen35("qwen35-dense").checkpoint;
    let rope = |config: &mut HfCheckpoint, value: Option<Value>| match value {
        Some(value) => drop(text_config(&mut config.config).insert("rope_parameters".into(), value)),
        None => drop(text_config(&mut config.config).remove("rope_parameters")),
    };
    for value in [None, Some(Value::Null), Some(json!({})), Some(json!({"rope_type": "default"}))] {
        let mut damaged = dense.clone();
        rope(&mut damaged, value.clone());
        refused_by_key(&damaged, "rope_parameters.rope_theta", &format!("{value:?}"));
    }
    for value in [Value::Null, json!("x"), json!(0), json!(-1)] {
        let mut damaged = dense.clone();
        text_config(&mut damaged.config)["rope_parameters"]["rope_theta"] = value.clone();
        refused_by_key(&damaged, "text_config.rope_parameters.rope_theta", &value.to_string());
    }
    let mut older = dense.clone();
    rope(&mut older, None);
    text_config(&mut older.config).insert("rope_theta".into(), json!(1e7));
    assert_eq!(describe(&older).unwrap().text, describe(dense).unwrap().text);
}

#[test]
fn a_tensor_is_refused_by_its_shape_in_the_files_however_many_entries_it_has() {
    for fixture in &*FIXTURES {
        for (tensor, meta) in fixture.checkpoint.tensors.iter().filter(|(name, _)| in_text_model(name)) {
            let reversed: Vec<usize> = meta.shape.iter().rev().copied().collect();
            let flat = vec![meta.shape.iter().product()];
            let deeper = [&meta.shape[..], &[1]].concat();
            for shape in [reversed, flat, deeper] {
                // A list of decays may have any axes of 1.
                let same = shape == meta.shape || tensor.ends_with("A_log") && fixture.gguf.name.starts_with("bailing");
                if same {
                    continue;
                }
                let mut damaged = fixture.checkpoint.clone();
                damaged.tensors.get_mut(tensor).unwrap().shape = shape.clone();
                let message =
                    describe(&damaged).err().unwrap_or_else(|| panic!("{tensor} {shape:?} is taken")).to_string();
                let (found, expected) = (format!("found {shape:?}"), format!("shape {:?}", meta.shape));
                let said = message.contains(tensor.as_str()) && message.contains(&found) && message.contains(&expected);
                assert!(said, "{tensor}: {message}");
            }
        }
    }
}

#[test]
fn another_variant_of_qwen_is_refused_by_the_key_of_the_file() {
    for (key, value) in [
        ("hidden_act", json!("gelu")),
        ("hidden_act", json!(0)),
        ("norm_topk_prob", json!(false)),
        ("attention_bias", json!(true)),
        ("mtp_use_dedicated_embeddings", json!(true)),
        ("mlp_only_layers", json!([0])),
        ("decoder_sparse_step", json!(2)),
        ("layer_types", json!([])),
    ] {
        let mut damaged = qwen35("qwen35moe-mtp").checkpoint.clone();
        text_config(&mut damaged.config).insert(key.into(), value.clone());
        refused_by_key(&damaged, &format!("text_config.{key}"), &value.to_string());
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![0_u64..70, any::<u64>(), Just(1 << 31), Just(u64::from(u32::MAX))];
    prop_oneof![
        4 => number.prop_map(|n| json!(n)),
        1 => any::<f64>().prop_map(|x| json!(x)),
        1 => any::<bool>().prop_map(|b| json!(b)),
        1 => "[a-z_]{0,12}".prop_map(|text| json!(text)),
        1 => proptest::collection::vec(any::<bool>(), 0..6).prop_map(|flags| json!(flags)),
        1 => Just(json!({})),
        1 => Just(Value::Null),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn damage_ends_in_an_error_or_in_graphs_over_tensors_of_the_files(
        which in any::<usize>(),
        values in proptest::collection::vec((any::<usize>(), json_value()), 0..3),
        extents in proptest::collection::vec((any::<usize>(), any::<usize>(), prop_oneof![0_usize..9, any::<usize>()]), 0..2),
    ) {
        let mut checkpoint = FIXTURES[which % FIXTURES.len()].checkpoint.clone();
        for (at, value) in values {
            let nested = checkpoint.config.contains_key("text_config");
            let config = if nested { text_config(&mut checkpoint.config) } else { &mut checkpoint.config };
            let keys: Vec<String> = config.keys().cloned().collect();
            config.insert(keys[at % keys.len()].clone(), value);
        }
        for (at, axis, extent) in extents {
            let names: Vec<String> = checkpoint.tensors.keys().cloned().collect();
            let shape = &mut checkpoint.tensors.get_mut(&names[at % names.len()]).unwrap().shape;
            let axis = axis % shape.len();
            shape[axis] = extent;
        }
        if let Ok(import) = bantam_families::import(&checkpoint) {
            for tensor in import.tensors.values().flat_map(|expr| expr.tensors()) {
                prop_assert!(checkpoint.tensors.contains_key(tensor));
            }
            if let Ok(model) = support::describe(&import.checkpoint) {
                prop_assert!(!graphs(&model).is_empty());
            }
        }
    }
}
