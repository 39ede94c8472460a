//! A checkpoint in Hugging Face's layout becomes the one of the GGUF file that is made of it.

use bantam_lfm2::Lfm2;
use bantam_plugin_sdk::{
    family::{Checkpoint, Family, FamilyError, HfCheckpoint, Import, TensorMeta},
    graph::Graph,
};
use serde_json::{Value, json};

use crate::support::{Fixture, both, dense, describe, mixture};

/// The files' name for a tensor outside the experts.
fn origin(name: &str) -> String {
    const PARTS: &[(&str, &str)] = &[
        ("attn_norm", "operator_norm"),
        ("shortconv.in_proj", "conv.in_proj"),
        ("shortconv.conv", "conv.conv"),
        ("shortconv.out_proj", "conv.out_proj"),
        ("attn_q_norm", "self_attn.q_layernorm"),
        ("attn_k_norm", "self_attn.k_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.out_proj"),
        ("ffn_gate_inp", "feed_forward.gate"),
        ("ffn_gate", "feed_forward.w1"),
        ("ffn_up", "feed_forward.w3"),
        ("ffn_down", "feed_forward.w2"),
        ("ffn_norm", "ffn_norm"),
    ];
    match name {
        "token_embd.weight" => return "model.embed_tokens.weight".into(),
        "token_embd_norm.weight" => return "model.embedding_norm.weight".into(),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("blk.").unwrap().split_once('.').unwrap();
    if part == "exp_probs_b.bias" {
        return format!("model.layers.{layer}.feed_forward.expert_bias");
    }
    let part = part.strip_suffix(".weight").unwrap();
    let (_, theirs) = PARTS.iter().find(|(ours, _)| *ours == part).unwrap();
    format!("model.layers.{layer}.{theirs}.weight")
}

fn tensors(checkpoint: &Checkpoint) -> impl Iterator<Item = (String, TensorMeta)> {
    checkpoint.tensors.iter().flat_map(|(name, meta)| {
        let with = |shape: &[usize]| TensorMeta { shape: shape.to_vec(), ..meta.clone() };
        let matrix = ["gate", "down", "up"].into_iter().find(|kind| name.ends_with(&format!("ffn_{kind}_exps.weight")));
        match (matrix, meta.shape.as_slice()) {
            (Some(kind), [experts, shape @ ..]) => {
                let base = origin(&name.replace(&format!("ffn_{kind}_exps"), &format!("ffn_{kind}")));
                let part = |i| (base.replace("feed_forward.", &format!("feed_forward.experts.{i}.")), with(shape));
                (0..*experts).map(part).collect::<Vec<_>>()
            }
            (None, [hidden, taps]) if name.ends_with("shortconv.conv.weight") => {
                vec![(origin(name), with(&[*hidden, 1, *taps]))]
            }
            _ => vec![(origin(name), meta.clone())],
        }
    })
}

/// The checkpoint of which the fixture was made, as newer files have it.
fn of(fixture: &Fixture) -> HfCheckpoint {
    let is_mixture = fixture.checkpoint.architecture == "lfm2moe";
    let key = |name: &str| {
        let fields = fixture.checkpoint.fields();
        fields.usize_opt(name).unwrap().unwrap()
    };
    let heads = fixture.checkpoint.fields().per_layer("attention.head_count_kv", key("block_count")).unwrap().unwrap();
    let kinds: Vec<&str> = heads.iter().map(|&n| if n > 0 { "full_attention" } else { "conv" }).collect();
    let mut config = json!({
        "architectures": [if is_mixture { "Lfm2MoeForCausalLM" } else { "Lfm2ForCausalLM" }],
        "max_position_embeddings": key("context_length"),
        "hidden_size": key("embedding_length"),
        "vocab_size": key("vocab_size"),
        "num_hidden_layers": key("block_count"),
        "num_attention_heads": key("attention.head_count"),
        "num_key_value_heads": heads.iter().max().unwrap(),
        "norm_eps": fixture.checkpoint.fields().f32("attention.layer_norm_rms_epsilon").unwrap(),
        "conv_L_cache": key("shortconv.l_cache"),
        "layer_types": kinds,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": true,
        "intermediate_size": key("feed_forward_length"),
        "block_auto_adjust_ff_dim": false,
        "conv_bias": false,
    });
    if is_mixture {
        config["num_experts"] = key("expert_count").into();
        config["num_experts_per_tok"] = key("expert_used_count").into();
        config["moe_intermediate_size"] = key("expert_feed_forward_length").into();
        config["num_dense_layers"] = key("leading_dense_block_count").into();
    }
    let Value::Object(config) = config else { unreachable!() };
    HfCheckpoint { config, tensors: tensors(&fixture.checkpoint).collect() }
}

fn import(checkpoint: &HfCheckpoint) -> Result<(Import, Graph), FamilyError> {
    let import = Lfm2.import(checkpoint)?;
    match describe(&import.checkpoint) {
        Ok(model) => Ok((import, model.text)),
        Err(error) => Err(import.in_terms_of_the_files(error)),
    }
}

#[test]
fn the_model_is_the_one_of_the_gguf_file() {
    for fixture in both() {
        let checkpoint = of(&fixture);
        let (import, graph) = import(&checkpoint).unwrap();
        assert_eq!(graph, describe(&fixture.checkpoint).unwrap().text);
        assert_eq!(import.checkpoint.tensors, fixture.checkpoint.tensors);
        let read: Vec<&str> = import.tensors.values().flat_map(|expr| expr.tensors()).collect();
        let unread: Vec<&String> = checkpoint.tensors.keys().filter(|name| !read.contains(&name.as_str())).collect();
        assert_eq!(unread, Vec::<&String>::new());
    }
}

#[test]
fn older_files_say_the_same_in_other_words() {
    let fixture = dense();
    let mut older = of(&fixture);
    let config = &mut older.config;
    let kinds = config.remove("layer_types").unwrap();
    let attends = kinds.as_array().unwrap().iter().enumerate().filter(|(_, kind)| *kind == "full_attention");
    config.insert("full_attn_idxs".into(), attends.map(|(i, _)| i).collect());
    config.remove("rope_parameters");
    config.insert("rope_theta".into(), json!(1e6));
    config.remove("tie_word_embeddings");
    config.insert("tie_embedding".into(), json!(true));
    assert_eq!(import(&older).unwrap().1, import(&of(&fixture)).unwrap().1);
}

/// The dense width in the family's terms, of these keys of the files.
fn width(keys: &Value) -> u64 {
    let mut checkpoint = of(&dense());
    checkpoint.config.remove("block_auto_adjust_ff_dim");
    checkpoint.config.extend(keys.as_object().unwrap().clone());
    let import = Lfm2.import(&checkpoint).unwrap();
    import.checkpoint.fields().usize_opt("feed_forward_length").unwrap().unwrap() as u64
}

#[test]
fn dense_widths_are_those_of_the_published_models() {
    assert_eq!(width(&json!({"block_ff_dim": 6656, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256})), 4608);
    assert_eq!(width(&json!({"intermediate_size": 12288, "block_ffn_dim_multiplier": 1.0})), 8192);
    assert_eq!(width(&json!({"intermediate_size": 6656, "block_ffn_dim_multiplier": null})), 4437);
    assert_eq!(width(&json!({"intermediate_size": 700, "block_auto_adjust_ff_dim": false})), 700);
}

#[test]
fn what_is_another_model_is_refused_by_the_files_name_for_it() {
    let cases = [
        ("conv_bias", json!(true)),
        ("use_expert_bias", json!(false)),
        ("norm_topk_prob", json!(false)),
        ("layer_types", json!(["conv", "conv"])),
        ("layer_types", json!(["conv", "attention", "conv"])),
        ("num_attention_heads", json!(3)),
        ("rope_parameters.rope_type", json!("yarn")),
        ("num_hidden_layers", json!(1_u64 << 60)),
    ];
    for (key, value) in cases {
        let mut checkpoint = of(&mixture());
        match key.split_once('.') {
            Some((outer, inner)) => checkpoint.config[outer][inner] = value.clone(),
            None => drop(checkpoint.config.insert(key.into(), value.clone())),
        }
        let refusal = import(&checkpoint).unwrap_err().to_string();
        assert!(refusal.contains(&format!("config.json: {key}")), "{key} = {value}: {refusal}");
    }
    let mut checkpoint = of(&mixture());
    checkpoint.tensors.remove("model.layers.1.feed_forward.experts.3.w2.weight");
    let refusal = import(&checkpoint).unwrap_err().to_string();
    assert!(refusal.contains("`model.layers.1.feed_forward.experts.3.w2.weight`"), "{refusal}");
}
