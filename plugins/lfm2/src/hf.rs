//! The family's Hugging Face checkpoints, as tables.
//!
//! Layers are listed by kind, in older files by the indexes of those that attend. `w2` is the matrix down, `w3` the one up.
//! The width of dense layers is not in the file: the reference computes it.

use bantam_plugin_sdk::{
    blocks::hf::{Config, Fixed, How, Importer, Key, Row},
    family::{FamilyError, HfCheckpoint, Import, MetaValue},
    graph::WeightExpr,
};

const DENSE: &str = "Lfm2ForCausalLM";
const MIXTURE: &str = "Lfm2MoeForCausalLM";

/// The classes of the models.
pub(crate) const ARCHITECTURES: &[&str] = &[DENSE, MIXTURE];

/// Of both architectures.
const KEYS: &[Key] = &[
    Key::needed("context_length", "max_position_embeddings"),
    Key::needed("embedding_length", "hidden_size"),
    Key::needed("vocab_size", "vocab_size"),
    Key::needed("attention.head_count", "num_attention_heads"),
    Key::or("attention.layer_norm_rms_epsilon", "norm_eps", 1e-5),
    Key::or_size("shortconv.l_cache", "conv_L_cache", 3),
];

/// Of the mixture.
const EXPERT_KEYS: &[Key] = &[
    Key::needed("feed_forward_length", "intermediate_size"),
    Key::needed("expert_count", "num_experts"),
    Key::needed("expert_used_count", "num_experts_per_tok"),
    Key::needed("expert_feed_forward_length", "moe_intermediate_size"),
    Key::or_size("leading_dense_block_count", "num_dense_layers", 2),
    Key::or("expert_weights_scale", "routed_scaling_factor", 1.0),
];

/// What is otherwise in no model that there is.
const FIXED: &[(&str, Fixed)] =
    &[("conv_bias", Fixed::Flag(false)), ("use_expert_bias", Fixed::Flag(true)), ("norm_topk_prob", Fixed::Flag(true))];

/// Outside the layers.
const GLOBAL: &[Row<Sizes>] = &[
    Row { to: "token_embd.weight", from: "embed_tokens.weight", how: How::Same },
    Row { to: "token_embd_norm.weight", from: "embedding_norm.weight", how: How::Same },
];

/// Of a layer of any kind.
const LAYER: &[Row<Sizes>] = &[
    Row { to: "attn_norm.weight", from: "operator_norm.weight", how: How::Same },
    Row { to: "ffn_norm.weight", from: "ffn_norm.weight", how: How::Same },
    Row { to: "shortconv.in_proj.weight", from: "conv.in_proj.weight", how: How::Same },
    Row { to: "shortconv.conv.weight", from: "conv.conv.weight", how: How::Made(taps, without_middle) },
    Row { to: "shortconv.out_proj.weight", from: "conv.out_proj.weight", how: How::Same },
    Row { to: "attn_q.weight", from: "self_attn.q_proj.weight", how: How::Same },
    Row { to: "attn_k.weight", from: "self_attn.k_proj.weight", how: How::Same },
    Row { to: "attn_v.weight", from: "self_attn.v_proj.weight", how: How::Same },
    Row { to: "attn_q_norm.weight", from: "self_attn.q_layernorm.weight", how: How::Same },
    Row { to: "attn_k_norm.weight", from: "self_attn.k_layernorm.weight", how: How::Same },
    Row { to: "attn_output.weight", from: "self_attn.out_proj.weight", how: How::Same },
    Row { to: "ffn_gate.weight", from: "feed_forward.w1.weight", how: How::Same },
    Row { to: "ffn_up.weight", from: "feed_forward.w3.weight", how: How::Same },
    Row { to: "ffn_down.weight", from: "feed_forward.w2.weight", how: How::Same },
    Row { to: "ffn_gate_inp.weight", from: "feed_forward.gate.weight", how: How::Same },
    Row { to: "exp_probs_b.bias", from: "feed_forward.expert_bias", how: How::Same },
    Row {
        to: "ffn_gate_exps.weight",
        from: "feed_forward.experts.{}.w1.weight",
        how: How::Stacked(experts, expert_in),
    },
    Row { to: "ffn_up_exps.weight", from: "feed_forward.experts.{}.w3.weight", how: How::Stacked(experts, expert_in) },
    Row {
        to: "ffn_down_exps.weight",
        from: "feed_forward.experts.{}.w2.weight",
        how: How::Stacked(experts, expert_out),
    },
];

/// What weights are cut by.
struct Sizes {
    hidden: usize,
    taps: usize,
    experts: usize,
    expert_width: usize,
}

fn taps(s: &Sizes) -> Vec<usize> {
    vec![s.hidden, 1, s.taps]
}

fn without_middle(s: &Sizes, of: WeightExpr) -> WeightExpr {
    WeightExpr::Reshape { of: Box::new(of), shape: vec![s.hidden, s.taps] }
}

fn experts(s: &Sizes) -> usize {
    s.experts
}

fn expert_in(s: &Sizes) -> Vec<usize> {
    vec![s.expert_width, s.hidden]
}

fn expert_out(s: &Sizes) -> Vec<usize> {
    vec![s.hidden, s.expert_width]
}

/// Brings a checkpoint into the family's terms.
///
/// # Errors
/// A key or tensor that does not fit.
pub(crate) fn import(from: &HfCheckpoint) -> Result<Import, FamilyError> {
    let config = Config::new(&from.config);
    let is_mixture = from.architecture()? == MIXTURE;
    let layers = config.layers("num_hidden_layers", from.tensors.len())?;
    config.fixed(FIXED)?;
    let sizes = Sizes {
        hidden: config.size("hidden_size")?,
        taps: config.size_opt("conv_L_cache")?.unwrap_or(3),
        experts: if is_mixture { config.size("num_experts")? } else { 0 },
        expert_width: if is_mixture { config.size("moe_intermediate_size")? } else { 0 },
    };
    let mut importer = Importer::new(from, if is_mixture { "lfm2moe" } else { "lfm2" });
    importer.keys(config, KEYS)?;
    importer.set("block_count", config.path("num_hidden_layers"), MetaValue::Uint(layers as u64));
    kinds(&mut importer, config, layers)?;
    rope(&mut importer, config)?;
    match is_mixture {
        true => importer.keys(config, EXPERT_KEYS)?,
        false => dense_width(&mut importer, config)?,
    }
    importer.tensors(GLOBAL, ["", "model."], &sizes)?;
    importer.output(tied(config)?, &["lm_head.weight"])?;
    for layer in 0..layers {
        importer.tensors(LAYER, [&format!("blk.{layer}."), &format!("model.layers.{layer}.")], &sizes)?;
    }
    Ok(importer.finish())
}

/// Older files have a word of their own for it; without either the matrix is the embeddings'.
fn tied(config: Config<'_>) -> Result<Option<bool>, FamilyError> {
    let older = config.bool_opt("tie_embedding")?;
    Ok(if older.is_some() { older } else { config.bool_opt("tie_word_embeddings")? })
}

/// Key/value heads of each layer: 0 where it convolves.
fn kinds(importer: &mut Importer<'_>, config: Config<'_>, layers: usize) -> Result<(), FamilyError> {
    const TYPES: &str = "layer_types";
    const INDEXES: &str = "full_attn_idxs";
    let heads = config.size("num_key_value_heads")?;
    let (key, attends) = if let Some(types) = config.texts_or_null(TYPES, layers)? {
        let attends = |kind| match kind {
            "full_attention" => Ok(true),
            "conv" => Ok(false),
            other => Err(config.wrong(TYPES, "`full_attention` or `conv`", &format!("`{other}`"))),
        };
        (TYPES, types.into_iter().map(attends).collect::<Result<Vec<_>, _>>()?)
    } else if let Some(indexes) = config.numbers_or_null(INDEXES, layers)? {
        (INDEXES, (0..layers).map(|layer| indexes.contains(&(layer as f64))).collect())
    } else {
        return Err(config.missing(TYPES, "the kind of each layer"));
    };
    let heads = attends.into_iter().map(|attends| MetaValue::Uint(if attends { heads as u64 } else { 0 }));
    importer.set("attention.head_count_kv", config.path(key), MetaValue::Array(heads.collect()));
    Ok(())
}

/// Newer files keep the base in an object of its own. There is no scaling.
fn rope(importer: &mut Importer<'_>, config: Config<'_>) -> Result<(), FamilyError> {
    const BASE: &[Key] = &[Key::or("rope.freq_base", "rope_theta", 1e6)];
    let Some(rope) = config.object_or_null("rope_parameters")? else { return importer.keys(config, BASE) };
    rope.fixed(&[("rope_type", Fixed::Word("default"))])?;
    importer.keys(if rope.has("rope_theta") { rope } else { config }, BASE)
}

/// Two thirds of what is written, times a factor, up to the next multiple, unless told otherwise.
fn dense_width(importer: &mut Importer<'_>, config: Config<'_>) -> Result<(), FamilyError> {
    const FACTOR: &str = "block_ffn_dim_multiplier";
    let key = if config.has("block_ff_dim") { "block_ff_dim" } else { "intermediate_size" };
    let mut width = config.size(key)?;
    if config.bool_opt("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        width = width.saturating_mul(2) / 3;
        if !config.is_null(FACTOR) {
            let factor = config.number_opt(FACTOR)?.unwrap_or(1.0);
            let multiple = config.size_opt("block_multiple_of")?.unwrap_or(256).max(1);
            let scaled = (factor * width as f64) as usize;
            width = scaled.checked_next_multiple_of(multiple).unwrap_or(usize::MAX);
        }
    }
    importer.set("feed_forward_length", config.path(key), MetaValue::Uint(width as u64));
    Ok(())
}
