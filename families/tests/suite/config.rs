//! What metadata says ends up in the graph.

use bantam_family_api::{FamilyError, MetaValue, Model};
use bantam_graph::{Attention, Op, Rope, RopeScaling, StateKind};

use crate::{
    interpreter::Tensor,
    support::{self, Fixture, fixture},
};

fn describe(fixture: &Fixture) -> Model {
    support::describe(&fixture.checkpoint).unwrap()
}

fn refusal(fixture: &Fixture) -> String {
    support::describe(&fixture.checkpoint).unwrap_err().to_string()
}

fn attentions(model: &Model) -> Vec<&Attention> {
    let ops = model.text.nodes.iter().map(|node| &node.op);
    ops.filter_map(|op| if let Op::Attention(o) = op { Some(o) } else { None }).collect()
}

fn ropes(model: &Model) -> Vec<&Rope> {
    let ops = model.text.nodes.iter().map(|node| &node.op);
    ops.filter_map(|op| if let Op::Rope(o) = op { Some(o) } else { None }).collect()
}

#[test]
fn scores_are_scaled_by_the_head_unless_a_key_or_the_27b_says_otherwise() {
    let scale = |fixture: &Fixture| attentions(&describe(fixture))[0].scale;
    let mut llama = fixture("llama-dense");
    assert_eq!(scale(&llama), (1.0 / 32_f64.sqrt()) as f32);
    llama.set("attention.scale", MetaValue::Float(0.0));
    assert_eq!(scale(&llama), (1.0 / 32_f64.sqrt()) as f32);
    llama.set("attention.scale", MetaValue::Float(0.25));
    assert_eq!(scale(&llama), 0.25);
    assert_eq!(scale(&fixture("gemma3-dense")), (1.0 / 32_f64.sqrt()) as f32);
    assert_eq!(scale(&fixture("gemma3-scale27b")), (1.0 / 8_f64.sqrt()) as f32);
}

#[test]
fn rope_scaling_is_read_in_all_its_spellings() {
    let scaling = |pairs: &[(&str, MetaValue)]| {
        let mut llama = fixture("llama-dense");
        pairs.iter().for_each(|(key, value)| llama.set(key, value.clone()));
        ropes(&describe(&llama))[0].scaling.clone()
    };
    let text = |t: &str| MetaValue::Text(t.into());
    let linear = Some(RopeScaling::Linear { factor: 4.0 });
    assert_eq!(scaling(&[]), None);
    assert_eq!(scaling(&[("rope.scaling.factor", MetaValue::Float(4.0))]), linear);
    assert_eq!(scaling(&[("rope.scale_linear", MetaValue::Float(4.0))]), linear);
    let typed = |kind| {
        let context = ("rope.scaling.original_context_length", MetaValue::Uint(1024));
        [("rope.scaling.type", text(kind)), ("rope.scaling.factor", MetaValue::Float(4.0)), context]
    };
    assert_eq!(scaling(&typed("linear")), linear);
    assert_eq!(scaling(&typed("none")), None);
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 1024,
        beta_fast: 32.0,
        beta_slow: 1.0,
        magnitude: 1.0 + 0.1 * 4_f32.ln(),
    };
    assert_eq!(scaling(&typed("yarn")), Some(yarn));
}

#[test]
fn unknown_or_incomplete_rope_scaling_is_refused_by_key() {
    let mut llama = fixture("llama-dense");
    llama.set("rope.scaling.type", MetaValue::Text("yarn".into()));
    assert!(refusal(&llama).contains("llama.rope.scaling.factor"));
    llama.set("rope.scaling.factor", MetaValue::Float(4.0));
    assert!(refusal(&llama).contains("llama.rope.scaling.original_context_length"));
    llama.set("rope.scaling.type", MetaValue::Text("longrope".into()));
    assert!(refusal(&llama).contains("llama.rope.scaling.type"));
}

#[test]
fn sliding_layers_follow_a_flag_per_layer_or_a_period() {
    let windows = |pattern: Option<MetaValue>| -> Vec<bool> {
        let mut gemma = fixture("gemma3-dense");
        if let Some(pattern) = pattern {
            gemma.set("attention.sliding_window_pattern", pattern);
        }
        let model = describe(&gemma);
        for attention in attentions(&model) {
            let kind = attention.window.map_or(StateKind::PerToken, |len| StateKind::Window { len });
            assert_eq!(model.text.state(&attention.k_state).unwrap().kind, kind);
        }
        for pair in ropes(&model).chunks(2).zip(attentions(&model)) {
            let (base, scaling) = match pair.1.window {
                Some(_) => (8000.0, None),
                None => (500_000.0, Some(RopeScaling::Linear { factor: 8.0 })),
            };
            assert!(pair.0.iter().all(|rope| rope.base == base && rope.scaling == scaling));
        }
        attentions(&model).iter().map(|attention| attention.window == Some(24)).collect()
    };
    let every_sixth = vec![true, true, true, true, true, false, true];
    assert_eq!(windows(None), every_sixth);
    assert_eq!(windows(Some(MetaValue::Uint(6))), every_sixth);
    assert_eq!(windows(Some(MetaValue::Uint(1))), vec![false; 7]);
    let flags = vec![true, false, false, true, true, false, false];
    let array = MetaValue::Array(flags.iter().map(|&flag| MetaValue::Bool(flag)).collect());
    assert_eq!(windows(Some(array)), flags);
}

#[test]
fn a_sliding_pattern_of_another_length_is_refused_by_key() {
    let mut gemma = fixture("gemma3-dense");
    gemma.set("attention.sliding_window_pattern", MetaValue::Array(vec![MetaValue::Bool(true); 6]));
    assert!(refusal(&gemma).contains("gemma3.attention.sliding_window_pattern"));
}

#[test]
fn without_a_window_every_layer_is_full() {
    let mut gemma = fixture("gemma3-dense");
    gemma.checkpoint.metadata.remove("gemma3.attention.sliding_window");
    assert!(attentions(&describe(&gemma)).iter().all(|attention| attention.window.is_none()));
}

#[test]
fn only_sliding_layers_of_muse_glimmer_know_positions() {
    let sliding = |pattern: Option<MetaValue>| -> Vec<bool> {
        let mut muse = fixture("muse-glimmer-dense");
        if let Some(pattern) = pattern {
            muse.set("attention.sliding_window_pattern", pattern);
        } else {
            muse.checkpoint.metadata.remove("muse-glimmer.attention.sliding_window_pattern");
        }
        let model = describe(&muse);
        let windows = attentions(&model).into_iter().map(|attention| attention.window.is_some());
        let windows: Vec<bool> = windows.collect();
        let rotated =
            (0..windows.len()).map(|i| model.text.nodes.iter().any(|node| node.name == format!("k_rope.{i}")));
        assert_eq!(rotated.collect::<Vec<_>>(), windows);
        windows
    };
    assert_eq!(sliding(None), [true, true, true, false, true, true, true]);
    assert_eq!(sliding(Some(MetaValue::Uint(3))), [true, true, false, true, true, false, true]);
}

#[test]
fn muse_glimmer_needs_the_factor_on_its_logits() {
    let mut muse = fixture("muse-glimmer-dense");
    muse.checkpoint.metadata.remove("muse-glimmer.logit_scale");
    assert!(refusal(&muse).contains("muse-glimmer.logit_scale"));
}

#[test]
fn scales_beside_weights_are_refused_by_name() {
    let scale = Tensor { shape: vec![1], data: vec![2.0] };
    for tensor in ["blk.1.ffn_down_exps.scale", "blk.0.attn_q.scale", "output.scale", "blk.0.ffn_up_exps.bias"] {
        let mut qwen = fixture("qwen3moe-a");
        qwen.put(tensor, scale.clone());
        assert!(refusal(&qwen).contains(tensor));
    }
}

#[test]
fn the_shown_configuration_has_the_resolved_numbers() {
    let shown = describe(&fixture("gemma3-dense")).config;
    assert_eq!(shown["kv_heads"], 2);
    assert_eq!(shown["sliding_window"], 24);
    assert_eq!(shown["layer_kinds"][5], "full");
    assert_eq!(shown["layer_kinds"][6], "sliding");
    let shown = describe(&fixture("qwen3moe-a")).config;
    assert_eq!(shown["ffn"]["kind"], "experts");
    assert_eq!([&shown["ffn"]["count"], &shown["ffn"]["used"], &shown["ffn"]["width"]], [8, 2, 32]);
    assert_eq!(shown["ffn"]["scoring"], "softmax");
}

#[test]
fn key_value_heads_may_differ_by_layer() {
    let mut llama = fixture("llama-dense");
    let (hidden, dim) = (96, 32);
    for name in ["attn_k", "attn_v"] {
        let rows = Tensor { shape: vec![3 * dim, hidden], data: vec![0.0; 3 * dim * hidden] };
        llama.put(&format!("blk.2.{name}.weight"), rows);
    }
    llama.set("attention.head_count_kv", MetaValue::Array([1, 1, 3, 1].map(MetaValue::Uint).into()));
    let model = describe(&llama);
    assert_eq!(model.text.state("k.2").unwrap().heads, 3);
    assert_eq!(model.config["kv_heads"], serde_json::json!([1, 1, 3, 1]));
}

#[test]
fn an_unknown_architecture_is_answered_with_the_known_ones() {
    let mut llama = fixture("llama-dense");
    llama.checkpoint.architecture = "quokka".into();
    let error = bantam_families::describe(&llama.checkpoint).unwrap_err();
    assert!(matches!(&error, FamilyError::UnknownArchitecture { found, .. } if found == "quokka"));
    bantam_families::architectures().for_each(|known| assert!(error.to_string().contains(known)));
}
