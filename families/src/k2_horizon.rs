//! K2-Horizon: dense, with experts, and with value experts (MoVA).
//!
//! Every norm takes equal runs of the row for themselves. The larger models have experts behind a few dense layers; MoVA
//! also makes the values of those layers by experts, and multiplies the output of attention by a gate of its input.

use bantam_family_api::{Checkpoint, Family, FamilyError, Fields, Model};
use bantam_family_blocks::{
    Attending, AttentionShape, AttentionWeights, Decoder, DecoderSizes, Ffn, FfnShape, MixtureShape, Projection,
    RopeConfig, Routing, Tensors, attended, attention_output, attention_scale, counts, dense_layers, described, extent,
    extent_opt, ffn, scoring, wanted_rows, weights_scale,
};
use bantam_graph::{Act, GraphBuilder, InputSource, Pairing, Scoring};
use serde::Serialize;

use crate::chat;

/// `k2-horizon`.
#[derive(Clone, Copy, Debug)]
pub struct K2Horizon;

impl Family for K2Horizon {
    fn name(&self) -> &'static str {
        "K2-Horizon"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["k2-horizon"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let t = &mut Tensors::new(checkpoint, &mut graph);
        let gated = (0..config.sizes.layers).any(|i| t.layer(i).has("attn_gate"));
        let layer = |t: &mut Tensors<'_>, i: usize| Layer::declare(t, &config, i, gated);
        let weights = Decoder::declare(t, config.sizes.table(), config.sizes.layers, layer)?;
        let logits = forward(&mut graph, &config, &weights);
        described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::k2_horizon())
    }
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: DecoderSizes,
    /// Entries of a row that are normed together; none: all.
    norm_group: Option<usize>,
    attention_scale: f32,
    rope: RopeConfig,
    ffn: FfnShape,
    /// Layers below this one project their values.
    value_experts_from: usize,
    value_experts: Option<Routing>,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        refuse_what_no_model_has(&fields)?;
        let sizes = DecoderSizes::read(checkpoint)?;
        let mut rope = RopeConfig::read_given(&fields, Pairing::Halves, sizes.key_dim)?;
        if rope.dims < sizes.key_dim {
            rope.pairing = Pairing::HeadHalves;
        }
        Ok(Config {
            norm_group: norm_group(&fields, sizes.hidden)?,
            attention_scale: attention_scale(&fields, sizes.key_dim)?,
            rope,
            ffn: match fields.usize_opt("expert_count")?.unwrap_or(0) {
                0 => FfnShape::read(&fields, sizes.layers)?,
                _ => FfnShape::behind_dense(&fields, sizes.layers, experts(checkpoint)?)?,
            },
            value_experts_from: dense_layers(&fields)?,
            value_experts: value_experts(&fields)?,
            sizes,
        })
    }
}

fn refuse_what_no_model_has(fields: &Fields<'_>) -> Result<(), FamilyError> {
    const EVERY: &str = "moe_every_n_layers";
    const WINDOW: &str = "attention.sliding_window";
    match fields.usize_opt(EVERY)? {
        None | Some(0 | 1) => {}
        Some(n) => return Err(fields.wrong(EVERY, "1: experts in every layer behind the dense ones", &n.to_string())),
    }
    match fields.usize_opt(WINDOW)? {
        None | Some(0) => Ok(()),
        Some(n) => Err(fields.wrong(WINDOW, "no sliding window", &n.to_string())),
    }
}

fn norm_group(fields: &Fields<'_>, hidden: usize) -> Result<Option<usize>, FamilyError> {
    const GROUPS: &str = "attention.group_norm_groups";
    match fields.usize_opt(GROUPS)?.unwrap_or(0) {
        0 | 1 => Ok(None),
        groups if hidden.is_multiple_of(groups) => Ok(Some(hidden / groups)),
        groups => Err(fields.wrong(GROUPS, &format!("a divisor of embedding_length {hidden}"), &groups.to_string())),
    }
}

fn experts(checkpoint: &Checkpoint) -> Result<MixtureShape, FamilyError> {
    let fields = &checkpoint.fields();
    let (count, used) = counts(fields, ["expert_count", "expert_used_count"])?;
    let width = extent(fields, "expert_feed_forward_length")?;
    let routing = Routing {
        count,
        used,
        scoring: scoring(fields, Scoring::Sigmoid)?,
        biased_choice: true,
        groups: None,
        normalize: fields.bool_opt("expert_weights_norm")?.unwrap_or(false),
        scale: weights_scale(fields)?,
    };
    Ok(MixtureShape { routing, width, shared_width: shared_width(checkpoint, width)? })
}

/// The shared experts are one block as wide as all of them.
fn shared_width(checkpoint: &Checkpoint, width: usize) -> Result<Option<usize>, FamilyError> {
    const COUNT: &str = "expert_shared_count";
    let fields = checkpoint.fields();
    let is_there = checkpoint.tensors.keys().any(|tensor| tensor.contains("_shexp."));
    if fields.usize_opt(COUNT)?.unwrap_or(0) == 0 && !is_there {
        return Ok(None);
    }
    let all = width.saturating_mul(extent(&fields, COUNT)?);
    Ok(Some(extent_opt(&fields, "expert_shared_feed_forward_length")?.unwrap_or(all)))
}

/// Their router shares its function and scale with the other one, and divides by the sum whatever the key for that says.
fn value_experts(fields: &Fields<'_>) -> Result<Option<Routing>, FamilyError> {
    const COUNT: &str = "attention.value_expert_count";
    if fields.usize_opt(COUNT)?.unwrap_or(0) == 0 {
        return Ok(None);
    }
    let (count, used) = counts(fields, [COUNT, "attention.value_expert_used_count"])?;
    Ok(Some(Routing {
        count,
        used,
        scoring: scoring(fields, Scoring::Sigmoid)?,
        biased_choice: true,
        groups: None,
        normalize: used > 1,
        scale: weights_scale(fields)?,
    }))
}

struct Layer {
    attn_norm: String,
    attn: AttentionWeights,
    gate: Option<Projection>,
    ffn_norm: String,
    ffn: Ffn,
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize, gated: bool) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        let shape = AttentionShape::of(&c.sizes, i);
        t.refuse("attn_q_norm", "weight")?;
        t.refuse("attn_k_norm", "weight")?;
        Ok(Layer {
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: match c.value_experts {
                Some(experts) if i >= c.value_experts_from => AttentionWeights::with_value_experts(t, shape, experts)?,
                _ => AttentionWeights::declare(t, shape)?,
            },
            gate: gated.then(|| t.matrix("attn_gate", shape.attended_rows(), hidden)).transpose()?,
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            ffn: Ffn::declare(t, &c.ffn, i, hidden)?,
        })
    }
}

fn forward(g: &mut GraphBuilder, c: &Config, w: &Decoder<Layer>) -> String {
    let (eps, group) = (c.sizes.norm_eps, c.norm_group);
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let how = Attending {
        positions: &positions,
        rope: Some(&c.rope),
        rope_factors: None,
        scale: c.attention_scale,
        window: None,
        norm_eps: eps,
    };
    let mut x = g.embed("embed", &ids, &w.embed, 1.0);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let h = g.rms_norm("attn_norm", &x, Some(&layer.attn_norm), eps, group);
        let mut heads = attended(g, &h, &layer.attn, how);
        if let Some(gate) = &layer.gate {
            let gate = gate.apply(g, "attn_gate", &h);
            heads = binary_softplus_gated(g, &gate, &heads);
        }
        let mut a = attention_output(g, &heads, &layer.attn);
        if i + 1 == w.layers.len() {
            [x, a] = wanted_rows(g, [("residual_rows", &x), ("attn_rows", &a)]);
        }
        x = g.add("attn_residual", &x, &a);
        let h = g.rms_norm("ffn_norm", &x, Some(&layer.ffn_norm), eps, group);
        let f = ffn(g, &h, &layer.ffn, Act::Silu);
        x = g.add("layer_out", &x, &f);
    }
    g.layer(None);
    let h = g.rms_norm("output_norm", &x, Some(&w.output_norm), eps, group);
    w.output.apply(g, "logits", &h)
}

/// `log₂(1 + 2^gate) ⊙ x`: a softplus to the base of 2, which is 1 at 0.
fn binary_softplus_gated(g: &mut GraphBuilder, gate: &str, x: &str) -> String {
    let gate = g.scale("attn_gate_e", gate, std::f32::consts::LN_2);
    let gated = g.glu("attn_gated_e", &gate, x, Act::Softplus);
    g.scale("attn_gated", &gated, std::f32::consts::LOG2_E)
}
