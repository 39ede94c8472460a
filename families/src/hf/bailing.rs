//! Bailing MoE V3 as Hugging Face checkpoints.
//!
//! The same names mean other tensors in the two kinds of layers. Keys and values of latent attention are one matrix there,
//! head after head. The draft block is the layer behind the last.

use bantam_family_api::{FamilyError, HfCheckpoint, Import, MetaValue};
use bantam_graph::WeightExpr;

use super::{Config, How, Importer, Row};

/// The class of the model. Older ones of the same `model_type` are other models.
pub(crate) const ARCHITECTURES: &[&str] = &["BailingMoeV3ForCausalLM"];

const KEYS: &[(&str, &str)] = &[
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("vocab_size", "vocab_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.value_length", "head_dim"),
    ("attention.value_length_mla", "v_head_dim"),
    ("attention.kv_lora_rank", "kv_lora_rank"),
    ("attention.q_lora_rank", "q_lora_rank"),
    ("rope.dimension_count", "qk_rope_head_dim"),
    ("ssm.conv_kernel", "short_conv_kernel_size"),
    ("kda.head_dim", "head_dim"),
    ("kda.safe_gate", "kda_safe_gate"),
    ("kda.gate_lower_bound", "kda_lower_bound"),
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_group_count", "n_group"),
    ("expert_group_used_count", "topk_group"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_count", "num_shared_experts"),
    ("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
    ("expert_weights_scale", "routed_scaling_factor"),
    ("expert_weights_norm", "norm_topk_prob"),
    ("leading_dense_block_count", "first_k_dense_replace"),
];

/// Bounds on the factors of routed and of shared experts.
const LIMITS: &[(&str, &str)] =
    &[("swiglu_clamp_exp", "expert_swiglu_limit_list"), ("swiglu_clamp_shexp", "share_expert_swiglu_limit_list")];

/// Flags of variants that are another model, and what they are where it is this one.
const FLAGS: &[(&str, bool)] = &[
    ("no_kda_lora", true),
    ("use_mla_nope", false),
    ("mtp_use_kda", false),
    ("use_bias", false),
    ("use_qkv_bias", false),
];

/// Words of variants, likewise.
const WORDS: &[(&str, &str)] = &[("gated_attention_proj_granularity_type", "head_wise"), ("score_function", "sigmoid")];

/// Outside the layers.
const GLOBAL: &[Row<Sizes>] = &[
    Row { to: "token_embd.weight", from: "word_embeddings.weight", how: How::Same },
    Row { to: "output_norm.weight", from: "norm.weight", how: How::Same },
];

/// Of a layer of any kind.
const LAYER: &[Row<Sizes>] = &[
    Row { to: "attn_norm.weight", from: "input_layernorm.weight", how: How::Same },
    Row { to: "ffn_norm.weight", from: "post_attention_layernorm.weight", how: How::Same },
    Row { to: "ffn_gate.weight", from: "mlp.gate_proj.weight", how: How::Same },
    Row { to: "ffn_up.weight", from: "mlp.up_proj.weight", how: How::Same },
    Row { to: "ffn_down.weight", from: "mlp.down_proj.weight", how: How::Same },
    Row { to: "ffn_gate_inp.weight", from: "mlp.gate.weight", how: How::Same },
    Row { to: "exp_probs_b.bias", from: "mlp.gate.expert_bias", how: How::Same },
    Row { to: "ffn_gate_exps.weight", from: "mlp.experts.{}.gate_proj.weight", how: How::Stacked(experts) },
    Row { to: "ffn_up_exps.weight", from: "mlp.experts.{}.up_proj.weight", how: How::Stacked(experts) },
    Row { to: "ffn_down_exps.weight", from: "mlp.experts.{}.down_proj.weight", how: How::Stacked(experts) },
    Row { to: "ffn_gate_shexp.weight", from: "mlp.shared_experts.gate_proj.weight", how: How::Same },
    Row { to: "ffn_up_shexp.weight", from: "mlp.shared_experts.up_proj.weight", how: How::Same },
    Row { to: "ffn_down_shexp.weight", from: "mlp.shared_experts.down_proj.weight", how: How::Same },
];

/// Of a layer with a delta rule.
const DELTA: &[Row<Sizes>] = &[
    Row { to: "attn_q.weight", from: "attention.q_proj.weight", how: How::Same },
    Row { to: "attn_k.weight", from: "attention.k_proj.weight", how: How::Same },
    Row { to: "attn_v.weight", from: "attention.v_proj.weight", how: How::Same },
    Row { to: "ssm_conv1d_q.weight", from: "attention.q_conv1d.weight", how: How::Same },
    Row { to: "ssm_conv1d_k.weight", from: "attention.k_conv1d.weight", how: How::Same },
    Row { to: "ssm_conv1d_v.weight", from: "attention.v_conv1d.weight", how: How::Same },
    Row { to: "ssm_f_a.weight", from: "attention.f_proj.weight", how: How::Same },
    Row { to: "ssm_dt.bias", from: "attention.dt_bias", how: How::Same },
    Row { to: "ssm_a", from: "attention.A_log", how: How::Made(exponential) },
    Row { to: "ssm_beta.weight", from: "attention.b_proj.weight", how: How::Same },
    Row { to: "ssm_g_a.weight", from: "attention.g_proj.weight", how: How::Same },
    Row { to: "ssm_norm.weight", from: "attention.o_norm.weight", how: How::Same },
    Row { to: "attn_output.weight", from: "attention.o_proj.weight", how: How::Same },
];

/// Of a layer with latent attention, the draft block's too.
const LATENT: &[Row<Sizes>] = &[
    Row { to: "attn_q.weight", from: "attention.q_proj.weight", how: How::Same },
    Row { to: "attn_q_a.weight", from: "attention.q_a_proj.weight", how: How::Same },
    Row { to: "attn_q_a_norm.weight", from: "attention.q_a_layernorm.weight", how: How::Same },
    Row { to: "attn_q_b.weight", from: "attention.q_b_proj.weight", how: How::Same },
    Row { to: "attn_kv_a_mqa.weight", from: "attention.kv_a_proj_with_mqa.weight", how: How::Same },
    Row { to: "attn_kv_a_norm.weight", from: "attention.kv_a_layernorm.weight", how: How::Same },
    Row { to: "attn_k_b.weight", from: "attention.kv_b_proj.weight", how: How::Made(keys) },
    Row { to: "attn_v_b.weight", from: "attention.kv_b_proj.weight", how: How::Made(values) },
    Row { to: "attn_gate.weight", from: "attention.g_proj.weight", how: How::Same },
    Row { to: "attn_output.weight", from: "attention.dense.weight", how: How::Same },
];

/// Of the draft block, beside those of its layer.
const DRAFT: &[Row<Sizes>] = &[
    Row { to: "nextn.eh_proj.weight", from: "eh_proj.weight", how: How::Same },
    Row { to: "nextn.enorm.weight", from: "enorm.weight", how: How::Same },
    Row { to: "nextn.hnorm.weight", from: "hnorm.weight", how: How::Same },
    Row { to: "layer_output_norm.weight", from: "final_layernorm.weight", how: How::Same },
];

/// What weights are cut by, and the order of the layers.
struct Sizes {
    layers: usize,
    /// Layers of a group, of which the last attends.
    group: usize,
    heads: usize,
    rank: usize,
    plain_dim: usize,
    turning_dim: usize,
    value_dim: usize,
    experts: usize,
}

impl Sizes {
    fn read(config: Config<'_>) -> Result<Self, FamilyError> {
        Ok(Sizes {
            layers: config.size("num_hidden_layers")?,
            group: config.size("layer_group_size")?,
            heads: config.size("num_attention_heads")?,
            rank: config.size("kv_lora_rank")?,
            plain_dim: config.size("qk_nope_head_dim")?,
            turning_dim: config.size("qk_rope_head_dim")?,
            value_dim: config.size("v_head_dim")?,
            experts: config.size("num_experts")?,
        })
    }

    /// The last layer of a group attends, and so do those of a last group that is incomplete, and the draft block.
    fn attends(&self, layer: usize) -> bool {
        (layer % self.group) + 1 == self.group || layer >= self.layers - self.layers % self.group
    }
}

/// Brings a checkpoint into the family's terms.
///
/// # Errors
/// A key or tensor that does not fit.
pub(crate) fn import(from: &HfCheckpoint) -> Result<Import, FamilyError> {
    let config = Config::new(&from.config);
    let sizes = Sizes::read(config)?;
    refuse_variants(config)?;
    let mut importer = Importer::new(from, "bailingmoe3");
    let prefix = |layer: usize| format!("model.layers.{layer}.");
    // Tools that do not know the draft block leave its tensors out and its key in.
    let has_draft = from.tensors.keys().any(|tensor| tensor.starts_with(&prefix(sizes.layers)));
    let drafts = config.size_opt("num_nextn_predict_layers")?.filter(|_| has_draft).unwrap_or(0);
    // There are no more layers than tensors: a damaged key makes nothing of its size before the family refuses it.
    let blocks = sizes.layers.saturating_add(drafts);
    let listed = blocks.min(from.tensors.len());
    metadata(&mut importer, config, &sizes, [blocks, listed, drafts])?;
    importer.tensors(GLOBAL, ["", "model."], &sizes)?;
    importer.output(config.bool_opt("tie_word_embeddings")?, &["lm_head.weight"])?;
    for layer in 0..listed {
        let (to, from) = (format!("blk.{layer}."), prefix(layer));
        let names = [to.as_str(), from.as_str()];
        importer.tensors(LAYER, names, &sizes)?;
        importer.tensors(if sizes.attends(layer) { LATENT } else { DELTA }, names, &sizes)?;
        if layer >= sizes.layers {
            importer.tensors(DRAFT, names, &sizes)?;
        }
    }
    Ok(importer.finish())
}

fn refuse_variants(config: Config<'_>) -> Result<(), FamilyError> {
    for &(key, expected) in FLAGS {
        match config.bool_opt(key)? {
            Some(found) if found != expected => {
                return Err(config.wrong(key, &expected.to_string(), &found.to_string()));
            }
            _ => {}
        }
    }
    for &(key, expected) in WORDS {
        match config.text_opt(key)? {
            Some(found) if found != expected => {
                return Err(config.wrong(key, &format!("`{expected}`"), &format!("`{found}`")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `listed` of the blocks are there for arrays with a value for each.
fn metadata(
    importer: &mut Importer<'_>,
    config: Config<'_>,
    sizes: &Sizes,
    [blocks, listed, drafts]: [usize; 3],
) -> Result<(), FamilyError> {
    let uint = |n: usize| MetaValue::Uint(n as u64);
    importer.keys(config, KEYS)?;
    importer.set("block_count", config.path("num_hidden_layers"), uint(blocks));
    importer.set("nextn_predict_layers", config.path("num_nextn_predict_layers"), uint(drafts));
    let attends = (0..listed).map(|layer| uint(usize::from(sizes.attends(layer))));
    importer.set("attention.head_count_kv", config.path("layer_group_size"), MetaValue::Array(attends.collect()));
    let key_dim = sizes.plain_dim.saturating_add(sizes.turning_dim);
    importer.set("attention.key_length_mla", config.path("qk_nope_head_dim"), uint(key_dim));
    let stored = sizes.rank.saturating_add(sizes.turning_dim);
    importer.set("attention.key_length", config.path("kv_lora_rank"), uint(stored));
    importer.set("expert_gating_func", config.path("score_function"), uint(2));
    for &(to, from) in LIMITS {
        if let Some(mut limits) = config.numbers_opt(from)? {
            limits.resize(listed.max(limits.len()), 0.0);
            let limits = limits.into_iter().map(|limit| MetaValue::Float(f64::from(limit as f32)));
            importer.set(to, config.path(from), MetaValue::Array(limits.collect()));
        }
    }
    rope(importer, config)
}

/// Newer files keep all of it in one object, older ones the base beside the scaling, of which there is none.
fn rope(importer: &mut Importer<'_>, config: Config<'_>) -> Result<(), FamilyError> {
    importer.keys(config, &[("rope.freq_base", "rope_theta")])?;
    let Some(rope) = config.object("rope_parameters").or_else(|| config.object("rope_scaling")) else { return Ok(()) };
    importer.keys(rope, &[("rope.freq_base", "rope_theta"), ("rope.dimension_sections", "mrope_section")])?;
    let key = if rope.get("rope_type").is_some() { "rope_type" } else { "type" };
    match rope.text_opt(key)? {
        None | Some("default" | "mrope") => Ok(()),
        Some(other) => Err(rope.wrong(key, "`default`", &format!("`{other}`"))),
    }
}

fn experts(sizes: &Sizes) -> usize {
    sizes.experts
}

fn exponential(_: &Sizes, of: WeightExpr) -> WeightExpr {
    WeightExpr::Exp(Box::new(of))
}

/// `len` rows from `start` of each head's keys and values.
fn rows_of_heads(sizes: &Sizes, of: WeightExpr, start: usize, len: usize) -> WeightExpr {
    let each = sizes.plain_dim.saturating_add(sizes.value_dim);
    let heads = WeightExpr::Reshape { of: Box::new(of), shape: vec![sizes.heads, each, sizes.rank] };
    WeightExpr::Slice { of: Box::new(heads), axis: 1, start, len }
}

/// Each head's matrix lies there the other way round.
fn keys(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    let rows = rows_of_heads(sizes, of, 0, sizes.plain_dim);
    WeightExpr::Permute { of: Box::new(rows), axes: vec![0, 2, 1] }
}

fn values(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    rows_of_heads(sizes, of, sizes.plain_dim, sizes.value_dim)
}
