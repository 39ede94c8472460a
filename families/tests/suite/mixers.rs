//! Families whose layers are of several kinds: what metadata says ends up in their graphs.

use bantam_family_api::{MetaValue, Model};
use bantam_graph::{GluLimit, Op, Pairing, RopeScaling};

use crate::support::{self, Fixture, fixture};

fn describe(fixture: &Fixture) -> Model {
    support::describe(&fixture.checkpoint).unwrap()
}

fn refusal(name: &str, damage: impl FnOnce(&mut Fixture)) -> String {
    let mut fixture = fixture(name);
    damage(&mut fixture);
    support::describe(&fixture.checkpoint).unwrap_err().to_string()
}

fn refused_by_key(name: &str, cases: &[(&str, u64)]) {
    for &(key, value) in cases {
        let message = refusal(name, |f| f.set(key, MetaValue::Uint(value)));
        assert!(message.contains(&format!("{}.{key}", fixture(name).checkpoint.architecture)), "{key}: {message}");
    }
}

fn uints(sizes: &[u64]) -> MetaValue {
    MetaValue::Array(sizes.iter().copied().map(MetaValue::Uint).collect())
}

/// Takes all tensors of a block out.
fn without_block(mut fixture: Fixture, block: usize) -> Fixture {
    let prefix = format!("blk.{block}.");
    fixture.checkpoint.tensors.retain(|name, _| !name.starts_with(&prefix));
    fixture
}

#[test]
fn a_draft_block_that_was_left_out_is_not_missed() {
    let whole = fixture("nemotron_h_moe-super");
    let trunk = describe(&without_block(whole.clone(), 5));
    assert_eq!((trunk.draft, &trunk.text), (None, &describe(&whole).text));
}

#[test]
fn what_drafts_is_counted_within_the_blocks_and_only_once() {
    refused_by_key("nemotron_h_moe-super", &[("nextn_predict_layers", 6), ("nextn_predict_layers", u64::MAX)]);
    let message = refusal("nemotron_h_moe-super", |f| {
        f.set("nextn_predict_layers", MetaValue::Uint(2));
        let norm = f.tensors["blk.5.nextn.enorm.weight"].clone();
        f.put("blk.4.nextn.enorm.weight", norm);
    });
    assert!(message.contains("nemotron_h_moe.nextn_predict_layers"), "{message}");
}

#[test]
fn a_draft_file_without_a_block_that_drafts_is_refused_by_tensor() {
    let target = fixture("nemotron_h_moe-super");
    let draft = without_block(target.clone(), 5);
    let family = support::family("nemotron_h_moe");
    let message = family.describe_draft(&draft.checkpoint, &target.checkpoint).unwrap_err().to_string();
    assert!(message.contains("blk.5.nextn.eh_proj.weight"), "{message}");
}

#[test]
fn layers_of_nemotron_mix_as_their_sizes_say() {
    let shown = describe(&fixture("nemotron_h_moe-super")).config;
    let kinds = ["state_space", "experts", "state_space", "attention", "experts"];
    assert_eq!(shown["mixers"], serde_json::json!(kinds));
    let mut no_experts = fixture("nemotron_h_moe-nano");
    no_experts.set("feed_forward_length", uints(&[0, 32, 0, 0, 0]));
    let message = support::describe(&no_experts.checkpoint).unwrap_err().to_string();
    assert!(message.contains("blk.4.ssm_in.weight"), "{message}");
}

#[test]
fn experts_of_nemotron_may_differ_by_layer() {
    let model = describe(&fixture("nemotron_h_moe-puzzle"));
    let used = model.text.nodes.iter().filter_map(|node| match &node.op {
        Op::Route(route) => Some((node.name.as_str(), route.used)),
        _ => None,
    });
    assert_eq!(used.collect::<Vec<_>>(), [("ffn_route.1", 2), ("ffn_route.3", 4), ("ffn_route.5", 3)]);
    let mut early = fixture("nemotron_h_moe-puzzle");
    early.checkpoint.metadata.remove("nemotron_h_moe.expert_feed_forward_length");
    assert_eq!(describe(&early).text, model.text);
}

#[test]
fn sizes_of_nemotron_that_do_not_fit_each_other_are_refused_by_key() {
    let cases = [
        ("ssm.conv_kernel", 1),
        ("ssm.group_count", 3),
        ("ssm.inner_size", 255),
        ("ssm.time_step_rank", 0),
        ("expert_used_count", 0),
        ("expert_used_count", 9),
        ("expert_group_count", 3),
        ("attention.head_count", 0),
        ("attention.head_count_kv", 3),
    ];
    refused_by_key("nemotron_h_moe-nano", &cases);
    let message = refusal("nemotron_h_moe-nano", |f| {
        f.set("expert_group_count", MetaValue::Uint(4));
        f.set("expert_used_count", MetaValue::Uint(3));
    });
    assert!(message.contains("nemotron_h_moe.expert_used_count"), "{message}");
    refused_by_key("nemotron_h_moe-super", &[("moe_latent_size", u64::MAX)]);
}

#[test]
fn layers_of_bailing_attend_where_they_have_a_key() {
    let kinds = describe(&fixture("bailingmoe3-tiny")).config["layer_kinds"].clone();
    assert_eq!(kinds, serde_json::json!(["delta", "delta", "latent", "delta", "delta", "latent"]));
    for kv_heads in [[0, 0, 2, 0, 0, 1, 1], [0, 0, 1, 0, 0, 1, 0]] {
        let message = refusal("bailingmoe3-flash", |f| f.set("attention.head_count_kv", uints(&kv_heads)));
        assert!(message.contains("bailingmoe3.attention.head_count_kv"), "{message}");
    }
}

#[test]
fn factors_of_bailing_are_bounded_in_the_layers_that_say_so() {
    let limits = |change: &dyn Fn(&mut Fixture)| -> Vec<Option<GluLimit>> {
        let mut bailing = fixture("bailingmoe3-flash");
        change(&mut bailing);
        let nodes = describe(&bailing).text.nodes;
        nodes.iter().filter_map(|node| if let Op::Experts(o) = &node.op { Some(o.limit) } else { None }).collect()
    };
    let late = Some(GluLimit::AfterAct(0.7));
    assert_eq!(limits(&|_| {}), [None, None, late, late]);
    let early = MetaValue::Array([0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0].map(MetaValue::Float).into());
    assert_eq!(
        limits(&|f| f.set("swiglu_clamp_exp", early.clone())),
        [Some(GluLimit::AfterAct(3.0)), None, None, None]
    );
    assert_eq!(limits(&|f| drop(f.checkpoint.metadata.remove("bailingmoe3.swiglu_clamp_exp"))), [None; 4]);
    let message = refusal("bailingmoe3-flash", |f| f.set("swiglu_clamp_shexp", MetaValue::Bool(true)));
    assert!(message.contains("bailingmoe3.swiglu_clamp_shexp"), "{message}");
}

#[test]
fn pairs_of_bailing_turn_in_halves_where_images_have_axes() {
    let pairing = |fixture: &Fixture| {
        let ropes = describe(fixture).text.nodes.into_iter();
        let mut pairings = ropes.filter_map(|node| if let Op::Rope(o) = node.op { Some(o.pairing) } else { None });
        pairings.next().unwrap()
    };
    let mut bailing = fixture("bailingmoe3-tiny");
    assert_eq!(pairing(&bailing), Pairing::Interleaved);
    bailing.set("rope.dimension_sections", uints(&[2, 1, 1, 0]));
    assert_eq!(pairing(&bailing), Pairing::Halves);
}

#[test]
fn what_no_bailing_has_is_refused_by_key() {
    let cases = [
        ("attention.key_length", 31),
        ("attention.key_length_mla", 8),
        ("rope.dimension_count", 26),
        ("ssm.conv_kernel", 1),
        ("expert_used_count", 7),
        ("expert_group_count", 5),
        ("expert_group_used_count", 5),
        ("expert_gating_func", 3),
    ];
    refused_by_key("bailingmoe3-tiny", &cases);
    for (key, value) in [("kda.safe_gate", MetaValue::Bool(false)), ("kda.gate_lower_bound", MetaValue::Float(0.0))] {
        let message = refusal("bailingmoe3-tiny", |f| f.set(key, value));
        assert!(message.contains(&format!("bailingmoe3.{key}")), "{key}: {message}");
    }
}

#[test]
fn what_no_deepseek_has_is_refused_by_key() {
    let cases = [
        ("attention.head_count_kv", 2),
        ("attention.value_length", 31),
        ("attention.output_group_count", 3),
        ("attention.indexer.key_length", 8),
        ("attention.indexer.top_k", 0),
        ("attention.sliding_window", 0),
        ("hyper_connection.count", 0),
        ("hyper_connection.sinkhorn_iterations", 1001),
        ("expert_gating_func", 3),
        ("expert_used_count", 7),
    ];
    refused_by_key("deepseek4-within", &cases);
    for ratios in [&[0, 4, 128][..], &[0, 4, 64, 4]] {
        let message = refusal("deepseek4-within", |f| f.set("attention.compress_ratios", uints(ratios)));
        assert!(message.contains("deepseek4.attention.compress_ratios"), "{message}");
    }
    for key in ["attention.compress_rope_freq_base", "attention.compress_ratios", "hyper_connection.epsilon"] {
        let key = format!("deepseek4.{key}");
        let message = refusal("deepseek4-within", |f| drop(f.checkpoint.metadata.remove(&key)));
        assert!(message.contains(&key), "{message}");
    }
}

#[test]
fn first_layers_of_deepseek_look_experts_up_by_the_token() {
    let routed_by = |fixture: &Fixture| -> Vec<(bool, bool)> {
        let nodes = describe(fixture).text.nodes.into_iter();
        let routes = nodes.filter_map(|node| if let Op::Route(o) = node.op { Some(o) } else { None });
        routes.map(|route| (route.ids.is_some(), route.bias.is_some())).collect()
    };
    let (by_token, by_score) = ((true, false), (false, true));
    assert_eq!(routed_by(&fixture("deepseek4-within")), [by_token, by_token, by_score, by_score]);
    let message = refusal("deepseek4-within", |f| {
        let table = f.tensors["blk.0.ffn_gate_tid2eid.weight"].clone();
        f.put("blk.0.ffn_gate_tid2eid.weight", table);
    });
    assert!(message.contains("blk.0.ffn_gate_tid2eid.weight") && message.contains("type I32, found F32"), "{message}");
}

#[test]
fn layers_of_deepseek_with_keys_of_blocks_turn_by_another_base() {
    let model = describe(&fixture("deepseek4-within"));
    for (layer, base) in [(0, 10_000.0), (1, 160_000.0), (2, 160_000.0)] {
        let turned = ["q_rope", "k_rope", "attn_rope"].map(|name| format!("{name}.{layer}"));
        let of_layer = model.text.nodes.iter().filter(|node| turned.contains(&node.name));
        let ropes: Vec<_> =
            of_layer.filter_map(|node| if let Op::Rope(o) = &node.op { Some(o) } else { None }).collect();
        assert_eq!(ropes.iter().map(|rope| rope.inverse).collect::<Vec<_>>(), [false, false, true]);
        for rope in ropes {
            assert_eq!((rope.base, rope.offset, rope.dims), (base, 16, 16));
            match rope.scaling {
                Some(RopeScaling::Yarn { magnitude, .. }) => assert_eq!((magnitude, layer > 0), (1.0, true)),
                _ => assert_eq!(layer, 0),
            }
        }
    }
}
