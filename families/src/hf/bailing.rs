//! Bailing MoE V3 as Hugging Face checkpoints.
//!
//! The same names mean other tensors in the two kinds of layers. Keys and values of latent attention are one matrix there,
//! head after head. The draft block is the layer behind the last.

use bantam_family_api::{FamilyError, HfCheckpoint, Import, MetaValue};
use bantam_family_blocks::hf::{Config, Fixed, How, Importer, Key, Row};
use bantam_graph::WeightExpr;

/// The class of the model. Older ones of the same `model_type` are other models.
pub(crate) const ARCHITECTURES: &[&str] = &["BailingMoeV3ForCausalLM"];

const KEYS: &[Key] = &[
    Key::needed("context_length", "max_position_embeddings"),
    Key::needed("embedding_length", "hidden_size"),
    Key::needed("vocab_size", "vocab_size"),
    Key::needed("feed_forward_length", "intermediate_size"),
    Key::needed("attention.head_count", "num_attention_heads"),
    Key::or("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6),
    Key::needed("attention.value_length", "head_dim"),
    Key::needed("attention.value_length_mla", "v_head_dim"),
    Key::needed("attention.kv_lora_rank", "kv_lora_rank"),
    Key::optional("attention.q_lora_rank", "q_lora_rank"),
    Key::needed("rope.dimension_count", "qk_rope_head_dim"),
    Key::needed("ssm.conv_kernel", "short_conv_kernel_size"),
    Key::needed("kda.head_dim", "head_dim"),
    Key::or_flag("kda.safe_gate", "kda_safe_gate", true),
    Key::or("kda.gate_lower_bound", "kda_lower_bound", -5.0),
    Key::needed("expert_count", "num_experts"),
    Key::needed("expert_used_count", "num_experts_per_tok"),
    Key::needed("expert_group_count", "n_group"),
    Key::needed("expert_group_used_count", "topk_group"),
    Key::needed("expert_feed_forward_length", "moe_intermediate_size"),
    Key::needed("expert_shared_count", "num_shared_experts"),
    Key::optional("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
    Key::or("expert_weights_scale", "routed_scaling_factor", 2.5),
    Key::or_flag("expert_weights_norm", "norm_topk_prob", true),
    Key::needed("leading_dense_block_count", "first_k_dense_replace"),
];

/// The base of the rotation, in the object that has it.
const BASE: Key = Key::or("rope.freq_base", "rope_theta", 6e6);

/// Bounds on the factors of routed and of shared experts.
const LIMITS: &[(&str, &str)] =
    &[("swiglu_clamp_exp", "expert_swiglu_limit_list"), ("swiglu_clamp_shexp", "share_expert_swiglu_limit_list")];

/// What is otherwise in variants that are another model.
const FIXED: &[(&str, Fixed)] = &[
    ("hidden_act", Fixed::Word("silu")),
    ("linear_silu", Fixed::Flag(true)),
    ("no_kda_lora", Fixed::Flag(true)),
    ("use_kda_lora", Fixed::Flag(false)),
    ("use_mla_nope", Fixed::Flag(false)),
    ("mtp_use_kda", Fixed::Flag(false)),
    ("use_bias", Fixed::Flag(false)),
    ("use_qkv_bias", Fixed::Flag(false)),
    ("attention_bias", Fixed::Flag(false)),
    ("use_nGPT", Fixed::Flag(false)),
    ("value_norm", Fixed::Flag(false)),
    ("up_proj_norm", Fixed::Flag(false)),
    ("scale_router_input", Fixed::Flag(false)),
    ("moe_router_enable_expert_bias", Fixed::Flag(true)),
    ("gated_attention_proj_granularity_type", Fixed::Word("head_wise")),
    ("score_function", Fixed::Word("sigmoid")),
    ("scoring_func", Fixed::Word("sigmoid")),
    ("topk_method", Fixed::Word("noaux_tc")),
];

/// Outside the layers.
const GLOBAL: &[Row<Sizes>] = &[
    Row {
        to: "token_embd.weight",
        from: "word_embeddings.weight",
        how: How::Made(|s| vec![s.vocab, s.hidden], as_it_is),
    },
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
    Row { to: "ffn_gate_exps.weight", from: "mlp.experts.{}.gate_proj.weight", how: How::Stacked(experts, expert_in) },
    Row { to: "ffn_up_exps.weight", from: "mlp.experts.{}.up_proj.weight", how: How::Stacked(experts, expert_in) },
    Row { to: "ffn_down_exps.weight", from: "mlp.experts.{}.down_proj.weight", how: How::Stacked(experts, expert_out) },
    Row { to: "ffn_gate_shexp.weight", from: "mlp.shared_experts.gate_proj.weight", how: How::Same },
    Row { to: "ffn_up_shexp.weight", from: "mlp.shared_experts.up_proj.weight", how: How::Same },
    Row { to: "ffn_down_shexp.weight", from: "mlp.shared_experts.down_proj.weight", how: How::Same },
];

/// Of a layer with a delta rule.
const DELTA: &[Row<Sizes>] = &[
    Row { to: "attn_q.weight", from: "attention.q_proj.weight", how: How::Same },
    Row { to: "attn_k.weight", from: "attention.k_proj.weight", how: How::Same },
    Row { to: "attn_v.weight", from: "attention.v_proj.weight", how: How::Same },
    Row { to: "ssm_conv1d_q.weight", from: "attention.q_conv1d.weight", how: How::Made(taps, as_it_is) },
    Row { to: "ssm_conv1d_k.weight", from: "attention.k_conv1d.weight", how: How::Made(taps, as_it_is) },
    Row { to: "ssm_conv1d_v.weight", from: "attention.v_conv1d.weight", how: How::Made(taps, as_it_is) },
    Row { to: "ssm_f_a.weight", from: "attention.f_proj.weight", how: How::Same },
    Row { to: "ssm_dt.bias", from: "attention.dt_bias", how: How::Same },
    Row { to: "ssm_a", from: "attention.A_log", how: How::Entries(|s| s.heads, exponential) },
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
    Row { to: "attn_k_b.weight", from: "attention.kv_b_proj.weight", how: How::Made(keys_values, keys) },
    Row { to: "attn_v_b.weight", from: "attention.kv_b_proj.weight", how: How::Made(keys_values, values) },
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
    /// Entries between an expert's matrices.
    expert_width: usize,
    vocab: usize,
    hidden: usize,
    /// Entries that go through each of the convolutions, and tokens that these see.
    channels: usize,
    taps: usize,
}

impl Sizes {
    fn read(config: Config<'_>, tensors: usize) -> Result<Self, FamilyError> {
        let heads = config.size("num_attention_heads")?;
        Ok(Sizes {
            layers: config.layers("num_hidden_layers", tensors)?,
            group: config.size("layer_group_size")?,
            heads,
            rank: config.size("kv_lora_rank")?,
            plain_dim: config.size("qk_nope_head_dim")?,
            turning_dim: config.size("qk_rope_head_dim")?,
            value_dim: config.size("v_head_dim")?,
            experts: config.size("num_experts")?,
            expert_width: config.size("moe_intermediate_size")?,
            vocab: config.size("vocab_size")?,
            hidden: config.size("hidden_size")?,
            channels: heads.saturating_mul(config.size("head_dim")?),
            taps: config.size("short_conv_kernel_size")?,
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
    let sizes = Sizes::read(config, from.tensors.len())?;
    config.fixed(FIXED)?;
    check_lists(config, &sizes)?;
    let mut importer = Importer::new(from, "bailingmoe3");
    let prefix = |layer: usize| format!("model.layers.{layer}.");
    // Tools that do not know the draft block leave its tensors out and its key in.
    let has_draft = from.tensors.keys().any(|tensor| tensor.starts_with(&prefix(sizes.layers)));
    let drafts = config.size_opt("num_nextn_predict_layers")?.filter(|_| has_draft).unwrap_or(0);
    // There are no more layers than tensors: a damaged number of drafts makes nothing of its size before the family refuses it.
    let blocks = sizes.layers.saturating_add(drafts);
    let listed = blocks.min(from.tensors.len());
    metadata(&mut importer, config, &sizes, [blocks, listed, drafts])?;
    importer.tensors(GLOBAL, ["", "model."], &sizes)?;
    importer.output(Some(config.bool_opt("tie_word_embeddings")?.unwrap_or(false)), &["lm_head.weight"])?;
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
        if let Some(mut limits) = config.numbers_or_null(from, blocks)? {
            limits.resize(listed, 0.0);
            let limits = limits.into_iter().map(|limit| MetaValue::Float(f64::from(limit as f32)));
            importer.set(to, config.path(from), MetaValue::Array(limits.collect()));
        }
    }
    rope(importer, config)
}

/// Newer files keep all of it in one object, older ones the base beside the scaling, of which there is none.
fn rope(importer: &mut Importer<'_>, config: Config<'_>) -> Result<(), FamilyError> {
    let older = config.object_or_null("rope_scaling")?.filter(|object| !object.is_empty());
    let rope = match older {
        Some(older) => older,
        None => config.object_or_null("rope_parameters")?.unwrap_or(config),
    };
    importer.keys(if rope.has("rope_theta") { rope } else { config }, &[BASE])?;
    importer.keys(rope, &[Key::optional("rope.dimension_sections", "mrope_section")])?;
    let key = if rope.has("rope_type") { "rope_type" } else { "type" };
    match rope.text_opt(key)? {
        None | Some("default" | "mrope") => {}
        Some(other) => return Err(rope.wrong(key, "`default`", &format!("`{other}`"))),
    }
    // With sections other pairs turn, whatever this says.
    if rope.has("mrope_section") { Ok(()) } else { config.fixed(&[("rope_interleave", Fixed::Flag(true))]) }
}

/// Lists that say per layer what follows from other keys.
fn check_lists(config: Config<'_>, sizes: &Sizes) -> Result<(), FamilyError> {
    let dense = config.size_opt("first_k_dense_replace")?.unwrap_or(0);
    let attention = |layer| if sizes.attends(layer) { "full_attention" } else { "linear_attention" };
    let mlp = |layer| if layer < dense { "dense" } else { "sparse" };
    let lists: [(&str, &dyn Fn(usize) -> &'static str); 2] = [("layer_types", &attention), ("mlp_layer_types", &mlp)];
    for (key, of) in lists {
        let Some(found) = config.texts_or_null(key, sizes.layers)? else { continue };
        if let Some((layer, kind)) = found.iter().enumerate().find(|(layer, kind)| of(*layer) != **kind) {
            return Err(config.wrong(key, &format!("`{}` for layer {layer}", of(layer)), &format!("`{kind}`")));
        }
    }
    Ok(())
}

fn experts(sizes: &Sizes) -> usize {
    sizes.experts
}

fn as_it_is(_: &Sizes, of: WeightExpr) -> WeightExpr {
    of
}

fn taps(sizes: &Sizes) -> Vec<usize> {
    vec![sizes.channels, 1, sizes.taps]
}

fn keys_values(sizes: &Sizes) -> Vec<usize> {
    vec![sizes.heads.saturating_mul(sizes.plain_dim.saturating_add(sizes.value_dim)), sizes.rank]
}

fn expert_in(sizes: &Sizes) -> Vec<usize> {
    vec![sizes.expert_width, sizes.hidden]
}

fn expert_out(sizes: &Sizes) -> Vec<usize> {
    vec![sizes.hidden, sizes.expert_width]
}

/// One number a head, in a row of its own.
fn exponential(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    WeightExpr::Reshape { of: Box::new(WeightExpr::Exp(Box::new(of))), shape: vec![sizes.heads, 1] }
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
