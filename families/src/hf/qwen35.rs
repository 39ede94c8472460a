//! Qwen 3.5, 3.6 and 3.8 as Hugging Face checkpoints.
//!
//! Gains of norms lie there as distances from 1, but for the norm in the DeltaNets. Value heads are grouped by their key
//! head, where the family deals them out in turn.

use bantam_family_api::{FamilyError, HfCheckpoint, Import, MetaValue};
use bantam_family_blocks::hf::{Config, Fixed, How, Importer, Key, Row};
use bantam_graph::WeightExpr;

/// Classes of the text model alone, and with its vision tower.
pub(crate) const ARCHITECTURES: &[&str] = &[
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
];

const KEYS: &[Key] = &[
    Key::needed("context_length", "max_position_embeddings"),
    Key::needed("embedding_length", "hidden_size"),
    Key::optional("feed_forward_length", "intermediate_size"),
    Key::needed("attention.head_count", "num_attention_heads"),
    Key::needed("attention.head_count_kv", "num_key_value_heads"),
    Key::needed("attention.key_length", "head_dim"),
    Key::needed("attention.value_length", "head_dim"),
    Key::or("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6),
    Key::optional("expert_count", "num_experts"),
    Key::optional("expert_used_count", "num_experts_per_tok"),
    Key::optional("expert_feed_forward_length", "moe_intermediate_size"),
    Key::optional("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    Key::needed("ssm.conv_kernel", "linear_conv_kernel_dim"),
    Key::needed("ssm.state_size", "linear_key_head_dim"),
    Key::needed("ssm.group_count", "linear_num_key_heads"),
    Key::needed("ssm.time_step_rank", "linear_num_value_heads"),
];

/// Layers from one that attends to the next, where no list says of which kind each is.
const INTERVAL: Key = Key::or_size("full_attention_interval", "full_attention_interval", 4);

const FIXED: &[(&str, Fixed)] = &[
    ("hidden_act", Fixed::Word("silu")),
    ("attn_output_gate", Fixed::Flag(true)),
    ("norm_topk_prob", Fixed::Flag(true)),
    ("decoder_sparse_step", Fixed::Size(1)),
];

/// Of the scaling of rotary frequencies.
const SCALING: &[Key] = &[
    Key::optional("rope.scaling.factor", "factor"),
    Key::optional("rope.scaling.yarn_beta_fast", "beta_fast"),
    Key::optional("rope.scaling.yarn_beta_slow", "beta_slow"),
    Key::optional("rope.dimension_sections", "mrope_section"),
];

/// Outside the layers, behind the prefix of the text model.
const GLOBAL: &[Row<Sizes>] = &[
    Row { to: "token_embd.weight", from: "embed_tokens.weight", how: How::Made(table, as_it_is) },
    Row { to: "output_norm.weight", from: "norm.weight", how: How::PlusOne },
];

/// Of a layer of any kind, the draft block's too.
const LAYER: &[Row<Sizes>] = &[
    Row { to: "attn_norm.weight", from: "input_layernorm.weight", how: How::PlusOne },
    Row { to: "attn_q.weight", from: "self_attn.q_proj.weight", how: How::Same },
    Row { to: "attn_k.weight", from: "self_attn.k_proj.weight", how: How::Same },
    Row { to: "attn_v.weight", from: "self_attn.v_proj.weight", how: How::Same },
    Row { to: "attn_q.bias", from: "self_attn.q_proj.bias", how: How::Same },
    Row { to: "attn_k.bias", from: "self_attn.k_proj.bias", how: How::Same },
    Row { to: "attn_v.bias", from: "self_attn.v_proj.bias", how: How::Same },
    Row { to: "attn_q_norm.weight", from: "self_attn.q_norm.weight", how: How::PlusOne },
    Row { to: "attn_k_norm.weight", from: "self_attn.k_norm.weight", how: How::PlusOne },
    Row { to: "attn_output.weight", from: "self_attn.o_proj.weight", how: How::Same },
    Row { to: "attn_output.bias", from: "self_attn.o_proj.bias", how: How::Same },
    Row {
        to: "attn_qkv.weight",
        from: "linear_attn.in_proj_qkv.weight",
        how: How::Made(|s| vec![s.channels(), s.hidden], qkv_rows),
    },
    Row {
        to: "attn_gate.weight",
        from: "linear_attn.in_proj_z.weight",
        how: How::Made(|s| vec![s.value_rows(), s.hidden], value_rows),
    },
    Row {
        to: "ssm_alpha.weight",
        from: "linear_attn.in_proj_a.weight",
        how: How::Made(|s| vec![s.value_heads, s.hidden], head_rows),
    },
    Row {
        to: "ssm_beta.weight",
        from: "linear_attn.in_proj_b.weight",
        how: How::Made(|s| vec![s.value_heads, s.hidden], head_rows),
    },
    Row {
        to: "ssm_conv1d.weight",
        from: "linear_attn.conv1d.weight",
        how: How::Made(|s| vec![s.channels(), 1, s.taps], conv_rows),
    },
    Row { to: "ssm_a", from: "linear_attn.A_log", how: How::Made(|s| vec![s.value_heads], decay) },
    Row { to: "ssm_dt.bias", from: "linear_attn.dt_bias", how: How::Made(|s| vec![s.value_heads], head_entries) },
    Row { to: "ssm_norm.weight", from: "linear_attn.norm.weight", how: How::Same },
    Row {
        to: "ssm_out.weight",
        from: "linear_attn.out_proj.weight",
        how: How::Made(|s| vec![s.hidden, s.value_rows()], value_columns),
    },
    Row { to: "post_attention_norm.weight", from: "post_attention_layernorm.weight", how: How::PlusOne },
    Row { to: "ffn_gate.weight", from: "mlp.gate_proj.weight", how: How::Same },
    Row { to: "ffn_up.weight", from: "mlp.up_proj.weight", how: How::Same },
    Row { to: "ffn_down.weight", from: "mlp.down_proj.weight", how: How::Same },
    Row { to: "ffn_gate_inp.weight", from: "mlp.gate.weight", how: How::Same },
    Row { to: "ffn_gate_up_exps.weight", from: "mlp.experts.gate_up_proj", how: How::Same },
    Row { to: "ffn_down_exps.weight", from: "mlp.experts.down_proj", how: How::Same },
    Row { to: "ffn_gate_exps.weight", from: "mlp.experts.{}.gate_proj.weight", how: How::Stacked(experts, expert_in) },
    Row { to: "ffn_up_exps.weight", from: "mlp.experts.{}.up_proj.weight", how: How::Stacked(experts, expert_in) },
    Row { to: "ffn_down_exps.weight", from: "mlp.experts.{}.down_proj.weight", how: How::Stacked(experts, expert_out) },
    Row { to: "ffn_gate_shexp.weight", from: "mlp.shared_expert.gate_proj.weight", how: How::Same },
    Row { to: "ffn_up_shexp.weight", from: "mlp.shared_expert.up_proj.weight", how: How::Same },
    Row { to: "ffn_down_shexp.weight", from: "mlp.shared_expert.down_proj.weight", how: How::Same },
    Row {
        to: "ffn_gate_inp_shexp.weight",
        from: "mlp.shared_expert_gate.weight",
        how: How::Made(|s| vec![1, s.hidden], as_it_is),
    },
];

/// Of the draft block, beside those of its layer.
const DRAFT: &[Row<Sizes>] = &[
    Row { to: "nextn.eh_proj.weight", from: "mtp.fc.weight", how: How::Same },
    Row { to: "nextn.enorm.weight", from: "mtp.pre_fc_norm_embedding.weight", how: How::PlusOne },
    Row { to: "nextn.hnorm.weight", from: "mtp.pre_fc_norm_hidden.weight", how: How::PlusOne },
    Row { to: "nextn.shared_head_norm.weight", from: "mtp.norm.weight", how: How::PlusOne },
    Row { to: "nextn.embed_tokens.weight", from: "mtp.embed_tokens.weight", how: How::Made(table, as_it_is) },
];

/// What weights are cut by.
struct Sizes {
    vocab: usize,
    hidden: usize,
    key_heads: usize,
    value_heads: usize,
    head_dim: usize,
    taps: usize,
    experts: usize,
    /// Entries between an expert's matrices.
    expert_width: usize,
}

impl Sizes {
    fn read(config: Config<'_>) -> Result<Self, FamilyError> {
        let (key_heads, value_heads) = (config.size("linear_num_key_heads")?, config.size("linear_num_value_heads")?);
        if !value_heads.is_multiple_of(key_heads) {
            let expected = format!("a multiple of the {key_heads} key heads");
            return Err(config.wrong("linear_num_value_heads", &expected, &value_heads.to_string()));
        }
        let head_dim = config.size("linear_key_head_dim")?;
        let value_dim = config.size("linear_value_head_dim")?;
        if head_dim != value_dim {
            let expected = format!("{head_dim}, as linear_key_head_dim");
            return Err(config.wrong("linear_value_head_dim", &expected, &value_dim.to_string()));
        }
        Ok(Sizes {
            vocab: config.size("vocab_size")?,
            hidden: config.size("hidden_size")?,
            key_heads,
            value_heads,
            head_dim,
            taps: config.size("linear_conv_kernel_dim")?,
            experts: config.size_or_null("num_experts")?.unwrap_or(0),
            expert_width: config.size_or_null("moe_intermediate_size")?.unwrap_or(0),
        })
    }

    fn key_rows(&self) -> usize {
        self.key_heads.saturating_mul(self.head_dim)
    }

    fn value_rows(&self) -> usize {
        self.value_heads.saturating_mul(self.head_dim)
    }

    /// Entries that go through the convolution: queries, keys, values.
    fn channels(&self) -> usize {
        self.key_rows().saturating_mul(2).saturating_add(self.value_rows())
    }
}

/// Brings a checkpoint into the family's terms.
///
/// # Errors
/// A key or tensor that does not fit.
pub(crate) fn import(from: &HfCheckpoint) -> Result<Import, FamilyError> {
    let whole = Config::new(&from.config);
    let config = whole.object_or_null("text_config")?.unwrap_or(whole);
    config.fixed(FIXED)?;
    config.refuse(&["mlp_only_layers"])?;
    let sizes = Sizes::read(config)?;
    let architecture = if sizes.experts > 0 { "qwen35moe" } else { "qwen35" };
    let mut importer = Importer::new(from, architecture);
    let layers = config.layers("num_hidden_layers", from.tensors.len())?;
    // Tools that do not know the draft block leave its tensors out and its key in.
    let has_draft = from.tensors.keys().any(|tensor| tensor.starts_with("mtp."));
    let drafts = config.size_opt("mtp_num_hidden_layers")?.filter(|_| has_draft).unwrap_or(0);
    metadata(&mut importer, config, layers, drafts)?;
    let prefix = prefix(&importer)?;
    tensors_as_flagged(from, config, prefix, drafts)?;
    importer.tensors(GLOBAL, ["", prefix], &sizes)?;
    importer.output(tied([whole, config])?, &["lm_head.weight", "language_model.lm_head.weight"])?;
    for i in 0..layers {
        importer.tensors(LAYER, [&format!("blk.{i}."), &format!("{prefix}layers.{i}.")], &sizes)?;
    }
    if drafts > 0 {
        let block = format!("blk.{layers}.");
        importer.tensors(LAYER, [&block, "mtp.layers.0."], &sizes)?;
        importer.tensors(DRAFT, [&block, ""], &sizes)?;
    }
    Ok(importer.finish())
}

fn metadata(importer: &mut Importer<'_>, config: Config<'_>, layers: usize, drafts: usize) -> Result<(), FamilyError> {
    let uint = |n: usize| MetaValue::Uint(n as u64);
    importer.keys(config, KEYS)?;
    importer.set("block_count", config.path("num_hidden_layers"), uint(layers.saturating_add(drafts)));
    importer.set("nextn_predict_layers", config.path("mtp_num_hidden_layers"), uint(drafts));
    let inner = config.size("linear_num_value_heads")?.saturating_mul(config.size("linear_value_head_dim")?);
    importer.set("ssm.inner_size", config.path("linear_value_head_dim"), uint(inner));
    let kinds = config.texts_or_null("layer_types", layers)?;
    if kinds.is_none() || config.has("full_attention_interval") {
        importer.keys(config, &[INTERVAL])?;
    }
    if let Some(kinds) = kinds {
        let kinds = kinds.into_iter().map(|kind| match kind {
            "linear_attention" => Ok(MetaValue::Bool(true)),
            "full_attention" => Ok(MetaValue::Bool(false)),
            other => Err(config.wrong("layer_types", "`linear_attention` or `full_attention`", &format!("`{other}`"))),
        });
        let mut recurrent = kinds.collect::<Result<Vec<_>, _>>()?;
        recurrent.extend(std::iter::repeat_n(MetaValue::Bool(false), drafts.min(1)));
        importer.set("attention.recurrent_layers", config.path("layer_types"), MetaValue::Array(recurrent));
    }
    rope(importer, config)
}

/// Checks flags that say which tensors there are.
fn tensors_as_flagged(from: &HfCheckpoint, config: Config<'_>, prefix: &str, drafts: usize) -> Result<(), FamilyError> {
    let attention = format!("{prefix}layers.");
    let has_bias = |name: &String| name.starts_with(&attention) && name.ends_with(".self_attn.q_proj.bias");
    let biased = from.tensors.keys().any(has_bias);
    let own_table = from.tensors.contains_key("mtp.embed_tokens.weight");
    let flags = [("attention_bias", biased, true), ("mtp_use_dedicated_embeddings", own_table, drafts > 0)];
    for (key, found, read) in flags {
        let said = config.bool_opt(key)?.unwrap_or(false);
        if read && said != found {
            let there = if found { "true, as there are such tensors" } else { "false, as there are no such tensors" };
            return Err(config.wrong(key, there, &said.to_string()));
        }
    }
    Ok(())
}

/// Newer files keep all of it in one object, older ones the base beside the scaling.
fn rope(importer: &mut Importer<'_>, config: Config<'_>) -> Result<(), FamilyError> {
    const BASE: &str = "rope_theta";
    const ORIGINAL: &str = "original_max_position_embeddings";
    const SHARE: &str = "partial_rotary_factor";
    // The reference prefers the older key.
    let older = config.object_or_null("rope_scaling")?.filter(|object| !object.is_empty());
    let rope = match older {
        Some(older) => older,
        None => config.object_or_null("rope_parameters")?.unwrap_or(config),
    };
    let holder = |key: &str| if rope.has(key) { rope } else { config };
    if !holder(BASE).has(BASE) {
        // No model of the family was trained with the base that the reference's library has for any model.
        return Err(config.missing("rope_parameters.rope_theta", "a number"));
    }
    importer.keys(holder(BASE), &[Key::needed("rope.freq_base", BASE)])?;
    importer.keys(rope, SCALING)?;
    rope.refuse(&["attention_factor", "mscale", "mscale_all_dim"])?;
    rope.fixed(&[("truncate", Fixed::Flag(true))])?;
    let key = if rope.has("rope_type") { "rope_type" } else { "type" };
    if let Some(kind) = rope.text_opt(key)? {
        let kind = if kind == "default" { "none" } else { kind };
        importer.set("rope.scaling.type", rope.path(key), MetaValue::Text(kind.into()));
        let (from, key) = if rope.has(ORIGINAL) { (rope, ORIGINAL) } else { (config, "max_position_embeddings") };
        importer.keys(from, &[Key::needed("rope.scaling.original_context_length", key)])?;
    }
    let share = holder(SHARE).number_opt(SHARE)?.unwrap_or(0.25);
    if !(0.0..=1.0).contains(&share) {
        return Err(holder(SHARE).wrong(SHARE, "a number from 0 to 1", &share.to_string()));
    }
    let turning = config.size("head_dim")? as f64 * share;
    importer.set("rope.dimension_count", holder(SHARE).path(SHARE), MetaValue::Uint(turning as u64));
    Ok(())
}

/// What the names of the text model begin with.
fn prefix(importer: &Importer<'_>) -> Result<&'static str, FamilyError> {
    const PREFIXES: [&str; 3] = ["model.language_model.", "language_model.model.", "model."];
    let found = PREFIXES.into_iter().find(|prefix| importer.has(&format!("{prefix}embed_tokens.weight")));
    found.ok_or_else(|| FamilyError::Tensor {
        tensor: "model.language_model.embed_tokens.weight".into(),
        expected: "to be in the files, under this prefix or `language_model.model.` or `model.`".into(),
        found: "no tensor of any of these names".into(),
    })
}

/// Whether the output matrix is the embedding table, which the key says: it may stand beside the text model's keys or among
/// them, and where the two differ the tensors tell.
fn tied(configs: [Config<'_>; 2]) -> Result<Option<bool>, FamilyError> {
    const TIED: &str = "tie_word_embeddings";
    let [outer, inner] = configs;
    match (outer.bool_opt(TIED)?, inner.bool_opt(TIED)?) {
        (Some(a), Some(b)) if a != b => Ok(None),
        (outer, inner) => Ok(Some(inner.or(outer).unwrap_or(false))),
    }
}

fn experts(sizes: &Sizes) -> usize {
    sizes.experts
}

fn table(sizes: &Sizes) -> Vec<usize> {
    vec![sizes.vocab, sizes.hidden]
}

fn as_it_is(_: &Sizes, of: WeightExpr) -> WeightExpr {
    of
}

fn expert_in(sizes: &Sizes) -> Vec<usize> {
    vec![sizes.expert_width, sizes.hidden]
}

fn expert_out(sizes: &Sizes) -> Vec<usize> {
    vec![sizes.hidden, sizes.expert_width]
}

fn reshaped(of: WeightExpr, shape: &[usize]) -> WeightExpr {
    WeightExpr::Reshape { of: Box::new(of), shape: shape.into() }
}

/// Value heads dealt out to the key heads in turn, where they were grouped by them: `unit` rows of `row` each.
fn dealt(sizes: &Sizes, of: WeightExpr, unit: usize, row: &[usize]) -> WeightExpr {
    let each = sizes.value_heads / sizes.key_heads.max(1);
    if each == 1 || sizes.key_heads == 1 {
        return of;
    }
    let grouped = reshaped(of, &[&[sizes.key_heads, each, unit], row].concat());
    let axes = [1, 0].into_iter().chain(2..3 + row.len()).collect();
    let dealt = WeightExpr::Permute { of: Box::new(grouped), axes };
    reshaped(dealt, &[&[sizes.value_heads.saturating_mul(unit)], row].concat())
}

/// Rows of queries and keys as they are, and behind them those of values.
fn behind_keys(sizes: &Sizes, of: WeightExpr, row: &[usize]) -> WeightExpr {
    let keys = sizes.key_rows().saturating_mul(2);
    let slice = |of, start, len| WeightExpr::Slice { of: Box::new(of), axis: 0, start, len };
    let values = dealt(sizes, slice(of.clone(), keys, sizes.value_rows()), sizes.head_dim, row);
    WeightExpr::Concat { of: vec![slice(of, 0, keys), values], axis: 0 }
}

fn qkv_rows(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    behind_keys(sizes, of, &[sizes.hidden])
}

/// The file has an axis of 1 between channels and taps.
fn conv_rows(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    behind_keys(sizes, reshaped(of, &[sizes.channels(), sizes.taps]), &[sizes.taps])
}

fn value_rows(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    dealt(sizes, of, sizes.head_dim, &[sizes.hidden])
}

fn head_rows(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    dealt(sizes, of, 1, &[sizes.hidden])
}

fn head_entries(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    dealt(sizes, of, 1, &[])
}

fn decay(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    let negative = WeightExpr::Affine { of: Box::new(WeightExpr::Exp(Box::new(of))), scale: -1.0, offset: 0.0 };
    head_entries(sizes, negative)
}

fn value_columns(sizes: &Sizes, of: WeightExpr) -> WeightExpr {
    let each = sizes.value_heads / sizes.key_heads.max(1);
    if each == 1 || sizes.key_heads == 1 {
        return of;
    }
    let grouped = reshaped(of, &[sizes.hidden, sizes.key_heads, each, sizes.head_dim]);
    let dealt = WeightExpr::Permute { of: Box::new(grouped), axes: vec![0, 2, 1, 3] };
    reshaped(dealt, &[sizes.hidden, sizes.value_rows()])
}
