//! Other layouts of the same numbers give the same logits.

use bantam_family_api::MetaValue;

use crate::{
    interpreter::{self, Tensor},
    support::{Fixture, describe, fixture},
};

fn logits(fixture: &Fixture) -> Vec<f64> {
    let model = describe(&fixture.checkpoint).unwrap();
    let tokens = fixture.ids("prompt");
    let rows: Vec<usize> = (0..tokens.len()).collect();
    let mut values = interpreter::run(&model.text, &|name| fixture.tensors[name].clone(), &tokens, &rows);
    values.remove(&model.text.output).unwrap().data
}

fn assert_same_logits(changed: &Fixture, original: &Fixture) {
    let (changed, original) = (logits(changed), logits(original));
    let difference = changed.iter().zip(&original).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(difference < 1e-9, "logits differ by {difference}");
}

fn layers(fixture: &Fixture) -> usize {
    let has_layer = |i: &usize| fixture.tensors.keys().any(|name| name.starts_with(&format!("blk.{i}.")));
    (0..).take_while(has_layer).count()
}

/// Joins tensors along their first axis.
fn joined(parts: Vec<Tensor>) -> Tensor {
    let mut shape = parts[0].shape.clone();
    shape[0] = parts.iter().map(|part| part.shape[0]).sum();
    Tensor { shape, data: parts.into_iter().flat_map(|part| part.data).collect() }
}

#[test]
fn queries_keys_and_values_may_be_fused() {
    let plain = ["llama-dense", "qwen2-dense", "qwen3-dense", "gemma3-dense"];
    let others = ["gemma4-ple", "laguna-perhead", "k2-horizon-yarn", "muse-glimmer-dense", "qwen35-yarn"];
    for name in plain.into_iter().chain(others) {
        let original = fixture(name);
        let mut fused = original.clone();
        for i in 0..layers(&original) {
            for part in ["weight", "bias"] {
                let names = ["q", "k", "v"].map(|x| format!("blk.{i}.attn_{x}.{part}"));
                if names.iter().all(|name| fused.tensors.contains_key(name)) {
                    let qkv = joined(names.iter().map(|name| fused.take(name)).collect());
                    fused.put(&format!("blk.{i}.attn_qkv.{part}"), qkv);
                }
            }
        }
        assert_same_logits(&fused, &original);
    }
}

#[test]
fn gates_and_ups_of_experts_may_be_fused() {
    let later = [("qwen35moe-a", 0), ("qwen4exp-sparse", 0)];
    for (name, first) in [("qwen3moe-a", 0), ("laguna-perhead", 1), ("k2-horizon-mova", 1)].into_iter().chain(later) {
        let original = fixture(name);
        let mut fused = original.clone();
        for i in first..layers(&original) {
            let gate = fused.take(&format!("blk.{i}.ffn_gate_exps.weight"));
            let up = fused.take(&format!("blk.{i}.ffn_up_exps.weight"));
            let &[experts, ffn, hidden] = gate.shape.as_slice() else { panic!("{:?}", gate.shape) };
            let size = ffn * hidden;
            let pairs = gate.data.chunks_exact(size).zip(up.data.chunks_exact(size));
            let data = pairs.flat_map(|(gate, up)| [gate, up].concat()).collect();
            let shape = vec![experts, 2 * ffn, hidden];
            fused.put(&format!("blk.{i}.ffn_gate_up_exps.weight"), Tensor { shape, data });
        }
        assert_same_logits(&fused, &original);
    }
}

#[test]
fn values_that_are_the_keys_may_be_left_out() {
    let original = fixture("gemma4-dense");
    let mut explicit = original.clone();
    for i in [3, 5] {
        let keys = original.tensors[&format!("blk.{i}.attn_k.weight")].clone();
        explicit.put(&format!("blk.{i}.attn_v.weight"), keys);
    }
    assert_same_logits(&explicit, &original);
}

#[test]
fn a_gate_per_entry_that_is_alike_in_each_head_equals_one_per_head() {
    let original = fixture("laguna-perhead");
    let mut widened = original.clone();
    for i in 0..layers(&original) {
        let name = format!("blk.{i}.attn_gate.weight");
        let gate = widened.take(&name);
        let (heads, hidden, dim) = (gate.shape[0], gate.shape[1], 16);
        let data = gate.data.chunks_exact(hidden).flat_map(|row| row.repeat(dim)).collect();
        widened.put(&name, Tensor { shape: vec![heads * dim, hidden], data });
    }
    assert_same_logits(&widened, &original);
}

#[test]
fn experts_that_are_all_alike_equal_the_dense_block() {
    let original = fixture("llama-dense");
    let mut mixture = original.clone();
    for i in 0..layers(&original) {
        for name in ["gate", "up", "down"] {
            let dense = mixture.take(&format!("blk.{i}.ffn_{name}.weight"));
            let shape = [&[3], dense.shape.as_slice()].concat();
            mixture.put(&format!("blk.{i}.ffn_{name}_exps.weight"), Tensor { shape, data: dense.data.repeat(3) });
        }
        let norm = &original.tensors[&format!("blk.{i}.ffn_norm.weight")].data;
        let router = Tensor { shape: vec![3, norm.len()], data: norm.repeat(3) };
        mixture.put(&format!("blk.{i}.ffn_gate_inp.weight"), router);
    }
    mixture.set("expert_count", MetaValue::Uint(3));
    mixture.set("expert_used_count", MetaValue::Uint(2));
    assert_same_logits(&mixture, &original);
}

#[test]
fn biases_of_zero_change_nothing_and_others_do() {
    let original = fixture("llama-dense");
    for (entry, same) in [(0.0, true), (0.5, false)] {
        let mut biased = original.clone();
        for i in 0..layers(&original) {
            for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
                let rows = original.tensors[&format!("blk.{i}.{name}.weight")].shape[0];
                biased.put(&format!("blk.{i}.{name}.bias"), Tensor { shape: vec![rows], data: vec![entry; rows] });
            }
        }
        assert_eq!(logits(&biased) == logits(&original), same);
    }
}

#[test]
fn an_output_matrix_may_be_missing_where_it_equals_the_embedding() {
    let mut untied = fixture("qwen3-untied");
    untied.put("output.weight", untied.tensors["token_embd.weight"].clone());
    let mut tied = untied.clone();
    tied.take("output.weight");
    assert_same_logits(&tied, &untied);
}

#[test]
fn indexers_of_layers_that_say_0_take_blocks_of_4() {
    let original = fixture("qwen4exp-sparse");
    let mut zeros = original.clone();
    zeros.set("attention.compress_ratios", MetaValue::Array([0; 5].map(MetaValue::Uint).into()));
    assert_same_logits(&zeros, &original);
    zeros.checkpoint.metadata.remove("qwen4exp.attention.compress_ratios");
    assert_same_logits(&zeros, &original);
}
