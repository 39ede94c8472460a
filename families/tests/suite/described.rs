//! What metadata says ends up in the graphs of families that have much of their own.

use bantam_family_api::{MetaValue, Model};
use bantam_graph::{Attention, Op, Pairing, Rope, Route};

use crate::support::{self, Fixture, fixture};

fn describe(fixture: &Fixture) -> Model {
    support::describe(&fixture.checkpoint).unwrap()
}

fn refusal(name: &str, damage: impl FnOnce(&mut Fixture)) -> String {
    let mut fixture = fixture(name);
    damage(&mut fixture);
    support::describe(&fixture.checkpoint).unwrap_err().to_string()
}

fn attentions(model: &Model) -> Vec<&Attention> {
    let ops = model.text.nodes.iter().map(|node| &node.op);
    ops.filter_map(|op| if let Op::Attention(o) = op { Some(o) } else { None }).collect()
}

fn rope<'m>(model: &'m Model, name: &str) -> Option<&'m Rope> {
    let node = model.text.nodes.iter().find(|node| node.name == name)?;
    if let Op::Rope(o) = &node.op { Some(o) } else { None }
}

fn routes(model: &Model) -> Vec<(&str, &Route)> {
    let nodes = model.text.nodes.iter();
    nodes.filter_map(|node| if let Op::Route(o) = &node.op { Some((node.name.as_str(), o)) } else { None }).collect()
}

#[test]
fn shared_layers_of_gemma_4_read_the_last_of_their_kind() {
    let model = describe(&fixture("gemma4-ple"));
    let states: Vec<(&str, bool)> = attentions(&model).iter().map(|a| (a.k_state.as_str(), a.k.is_some())).collect();
    let own = [("k.0", true), ("k.1", true), ("k.2", true), ("k.3", true)];
    let lent = [("k.2", false), ("k.2", false), ("k.2", false), ("k.3", false)];
    assert_eq!(states, [own, lent].concat());
    assert_eq!(model.text.states.len(), 8);
    assert_eq!(model.text.state("k.3").unwrap().dim, 64);
    assert_eq!(model.text.state("k.2").unwrap().dim, 32);
}

#[test]
fn layers_cannot_share_what_no_layer_has() {
    // Layers 0 to 2 slide, so a full layer among those behind layer 3 finds none to read.
    for shared in [5, 8, 9] {
        let message = refusal("gemma4-ple", |gemma| gemma.set("attention.shared_kv_layers", MetaValue::Uint(shared)));
        assert!(message.contains("gemma4.attention.shared_kv_layers"), "{shared}: {message}");
    }
}

#[test]
fn gemma_4_needs_its_window_and_its_pattern() {
    for key in ["gemma4.attention.sliding_window", "gemma4.attention.sliding_window_pattern"] {
        let message = refusal("gemma4-dense", |gemma| drop(gemma.checkpoint.metadata.remove(key)));
        assert!(message.contains(key), "{message}");
    }
}

#[test]
fn layers_of_laguna_slide_behind_the_first_of_each_period() {
    let windows = |period: Option<u64>| -> Vec<Option<usize>> {
        let mut laguna = fixture("laguna-perhead");
        if let Some(period) = period {
            laguna.set("attention.sliding_window_pattern", MetaValue::Uint(period));
        }
        let model = describe(&laguna);
        for (i, attention) in attentions(&model).iter().enumerate() {
            let rope = rope(&model, &format!("q_rope.{i}")).unwrap();
            let of_kind = if attention.window.is_some() { (16, 10_000.0, false) } else { (8, 500_000.0, true) };
            assert_eq!((rope.dims, rope.base, rope.scaling.is_some()), of_kind);
        }
        attentions(&model).iter().map(|attention| attention.window).collect()
    };
    assert_eq!(windows(None), [None, Some(24), Some(24), Some(24), None]);
    assert_eq!(windows(Some(4)), windows(None));
    let mut heads = fixture("laguna-perhead");
    heads.set("attention.sliding_window", MetaValue::Uint(0));
    assert!(attentions(&describe(&heads)).iter().all(|attention| attention.window.is_none()));
    assert_eq!(attentions(&describe(&heads)).iter().map(|a| a.heads).collect::<Vec<_>>(), [4, 6, 6, 6, 4]);
    assert_eq!(windows(Some(2)), [None, Some(24), None, Some(24), None]);
}

#[test]
fn rotary_keys_of_older_laguna_files_count() {
    let names = [
        ("rope.dimension_count_swa", "rope.swa.dimension_count", MetaValue::Uint(12)),
        ("rope.freq_base_swa", "rope.swa.freq_base", MetaValue::Float(7_000.0)),
        ("rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast", MetaValue::Float(48.0)),
        ("rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow", MetaValue::Float(3.0)),
    ];
    let (mut newer, mut older) = (fixture("laguna-perhead"), fixture("laguna-perhead"));
    for (new, old, value) in names {
        older.checkpoint.metadata.remove(&format!("laguna.{new}"));
        older.set(old, value.clone());
        newer.set(new, value);
    }
    assert_eq!(describe(&older).text, describe(&newer).text);
    assert_ne!(describe(&older).text, describe(&fixture("laguna-perhead")).text);
}

#[test]
fn a_gate_of_another_height_is_refused_by_name() {
    let message = refusal("laguna-perhead", |laguna| {
        let mut gate = laguna.take("blk.1.attn_gate.weight");
        gate.shape[0] = 5;
        laguna.put("blk.1.attn_gate.weight", gate);
    });
    assert!(message.contains("blk.1.attn_gate.weight"), "{message}");
}

#[test]
fn a_scale_of_0_on_expert_weights_means_none_where_the_key_may_be_missing() {
    for (scale, expected) in [(0.0, 1.0), (2.5, 2.5)] {
        let mut fixture = fixture("k2-horizon-mova");
        fixture.set("expert_weights_scale", MetaValue::Float(scale));
        assert!(routes(&describe(&fixture)).iter().all(|(_, route)| route.scale == expected));
    }
    for scale in [0.0, -1.0] {
        let message = refusal("laguna-perhead", |f| f.set("expert_weights_scale", MetaValue::Float(scale)));
        assert!(message.contains("laguna.expert_weights_scale"), "{message}");
    }
}

#[test]
fn heads_of_k2_horizon_that_turn_in_part_turn_in_halves_of_the_head() {
    let pairing = |name| rope(&describe(&fixture(name)), "q_rope.0").unwrap().pairing;
    assert_eq!(pairing("k2-horizon-moe"), Pairing::HeadHalves);
    assert_eq!(pairing("k2-horizon-dense"), Pairing::Halves);
}

#[test]
fn value_experts_are_normalized_whatever_the_key_says_of_the_others() {
    let mut mova = fixture("k2-horizon-mova");
    mova.checkpoint.metadata.remove("k2-horizon.expert_weights_norm");
    let model = describe(&mova);
    let normalized: Vec<_> = routes(&model).into_iter().map(|(name, route)| (name, route.normalize)).collect();
    assert_eq!(normalized, [("v_route.1", true), ("ffn_route.1", false), ("v_route.2", true), ("ffn_route.2", false)]);
}

#[test]
fn what_no_k2_horizon_has_is_refused_by_key_or_tensor() {
    let uints = [
        ("moe_every_n_layers", 2),
        ("attention.sliding_window", 64),
        ("attention.group_norm_groups", 3),
        ("expert_gating_func", 3),
        ("attention.value_expert_used_count", 7),
    ];
    for (key, value) in uints {
        let message = refusal("k2-horizon-mova", |k2| k2.set(key, MetaValue::Uint(value)));
        assert!(message.contains(&format!("k2-horizon.{key}")), "{key}: {message}");
    }
    let message = refusal("k2-horizon-dense", |k2| {
        let norm = k2.tensors["output_norm.weight"].clone();
        k2.put("blk.1.attn_q_norm.weight", norm);
    });
    assert!(message.contains("blk.1.attn_q_norm.weight"), "{message}");
}

#[test]
fn layers_of_qwen_35_attend_by_flag_or_interval() {
    let attending = |change: &dyn Fn(&mut Fixture)| -> Vec<bool> {
        let mut qwen = fixture("qwen35-mtp");
        change(&mut qwen);
        let nodes = describe(&qwen).text.nodes;
        (0..3).map(|i| nodes.iter().any(|node| node.name == format!("attn.{i}"))).collect()
    };
    assert_eq!(attending(&|_| {}), [false, false, true]);
    let flags = MetaValue::Array([true, true, false, true].map(MetaValue::Bool).into());
    assert_eq!(attending(&|f| f.set("attention.recurrent_layers", flags.clone())), [false, false, true]);
    for (key, value) in [
        ("attention.recurrent_layers", MetaValue::Array(vec![MetaValue::Bool(true); 3])),
        ("attention.recurrent_layers", MetaValue::Bool(true)),
        ("nextn_predict_layers", MetaValue::Uint(2)),
        ("ssm.conv_kernel", MetaValue::Uint(1)),
        ("ssm.time_step_rank", MetaValue::Uint(3)),
        ("ssm.inner_size", MetaValue::Uint(63)),
    ] {
        let message = refusal("qwen35-mtp", |f| f.set(key, value));
        assert!(message.contains(&format!("qwen35.{key}")), "{key}: {message}");
    }
}

#[test]
fn what_no_qwen4exp_has_is_refused_by_key_or_tensor() {
    let uints = |numbers: &[u64]| MetaValue::Array(numbers.iter().map(|&n| MetaValue::Uint(n)).collect());
    for (key, value) in [
        ("attention.compress_ratios", uints(&[0, 0, 25, 0, 4])),
        ("attention.compress_ratios", uints(&[0, 4])),
        ("attention.indexer.key_length", MetaValue::Uint(10)),
        ("ple.layers", uints(&[0, 1])),
        ("ple.layers", uints(&[5])),
        ("ple.ngram_size", MetaValue::Uint(1)),
        ("ple.layer_multipliers", uints(&[1, 2])),
        ("ple.head_offsets", uints(&[0, 89, 186, 1 << 32])),
        ("ple.head_vocab_sizes", uints(&[89, 97, 101])),
        ("ple.eos_token_id", MetaValue::Uint(1 << 31)),
    ] {
        let message = refusal("qwen4exp-sparse", |f| f.set(key, value));
        assert!(message.contains(&format!("qwen4exp.{key}")), "{key}: {message}");
    }
    // A hash that reaches behind the table would read nothing.
    let message = refusal("qwen4exp-sparse", |f| f.set("ple.head_offsets", uints(&[0, 89, 186, 314])));
    assert!(message.contains("per_layer_token_embd.weight") && message.contains("[12, 417]"), "{message}");
}

#[test]
fn a_qwen4exp_without_n_grams_or_indexers_has_neither() {
    let mut plain = fixture("qwen4exp-dense");
    plain.checkpoint.metadata.retain(|key, _| !key.contains(".ple.") && !key.contains("compress_ratios"));
    plain.checkpoint.tensors.retain(|name, _| !name.contains("indexer.") && name != "per_layer_token_embd.weight");
    let model = describe(&plain);
    let ops: Vec<&Op> = model.text.nodes.iter().map(|node| &node.op).collect();
    assert!(!ops.iter().any(|op| matches!(op, Op::NgramHash(_) | Op::TopKeys(_) | Op::Pool(_))));
    assert!(attentions(&model).iter().all(|attention| attention.select.is_none()));
}
