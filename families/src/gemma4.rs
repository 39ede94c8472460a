//! Gemma 4: dense, with experts beside the dense block, and with per-layer embeddings.
//!
//! As in Gemma 3 norms stand before and after each block, and most layers slide. New are: heads of two sizes, larger ones
//! in the full layers, where values may be the raw keys; a weightless norm on values; a factor on the residual stream
//! behind every layer; last layers that read the keys and values of earlier ones; and a second embedding, of which each
//! layer mixes in a slice of its own.

use bantam_family_api::{Checkpoint, Family, FamilyError, Fields, Model};
use bantam_family_blocks::{
    Attending, AttentionShape, DecoderSizes, Gated, Mixture, MixtureShape, PerLayer, Projection, RopeConfig, Tensors,
    Windows, caches, dense_width, described, extent, extent_opt, final_softcap, output_matrix, prepared, wanted_rows,
};
use bantam_graph::{Act, Attention, GraphBuilder, InputSource, Pairing};
use serde::Serialize;

use crate::chat;

/// `gemma4`.
#[derive(Clone, Copy, Debug)]
pub struct Gemma4;

impl Family for Gemma4 {
    fn name(&self) -> &'static str {
        "Gemma 4"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["gemma4"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let weights = Weights::declare(&mut Tensors::new(checkpoint, &mut graph), &config)?;
        let logits = forward(&mut graph, &config, &weights);
        described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::gemma4())
    }
}

#[derive(Serialize)]
struct Config {
    /// Those of the full layers.
    #[serde(flatten)]
    sizes: DecoderSizes,
    sliding_key_dim: usize,
    sliding_value_dim: usize,
    #[serde(flatten)]
    windows: Windows,
    rope: RopeConfig,
    rope_sliding: RopeConfig,
    /// The first layer that reads the keys and values of an earlier one, and for it and each behind it that one.
    shared_from: usize,
    shared_with: Vec<usize>,
    ffn_width: PerLayer,
    experts: Option<MixtureShape>,
    per_layer_embedding: Option<usize>,
    final_softcap: Option<f32>,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        extent(&fields, "attention.sliding_window")?;
        let windows = Windows::read(checkpoint, sizes.layers, None)?;
        let sliding_key_dim = extent_opt(&fields, "attention.key_length_swa")?.unwrap_or(sizes.key_dim);
        let has_experts = checkpoint.tensors.keys().any(|tensor| tensor.contains("_exps."));
        let experts = match fields.usize_opt("expert_count")?.unwrap_or(0) {
            0 if !has_experts => None,
            _ => Some(MixtureShape::read(&fields)?),
        };
        const PER_LAYER: &str = "embedding_length_per_layer_input";
        let shared_from = shared_from(&fields, sizes.layers)?;
        Ok(Config {
            sliding_value_dim: extent_opt(&fields, "attention.value_length_swa")?.unwrap_or(sliding_key_dim),
            rope: RopeConfig::read(&fields, Pairing::Halves, sizes.key_dim)?,
            rope_sliding: RopeConfig::read_sliding(&fields, Pairing::Halves, sliding_key_dim)?,
            shared_from,
            shared_with: (shared_from..sizes.layers)
                .map(|layer| lender(&fields, &windows, shared_from, layer))
                .collect::<Result<_, _>>()?,
            ffn_width: dense_width(&fields, sizes.layers)?,
            experts,
            per_layer_embedding: match fields.usize_opt(PER_LAYER)? {
                Some(0) if !checkpoint.has("per_layer_token_embd.weight") => None,
                _ => Some(extent(&fields, PER_LAYER)?),
            },
            final_softcap: final_softcap(&fields)?,
            sliding_key_dim,
            windows,
            sizes,
        })
    }

    fn shape(&self, layer: usize) -> AttentionShape {
        let shape = AttentionShape::of(&self.sizes, layer);
        match self.windows.of(layer) {
            Some(_) => AttentionShape { key_dim: self.sliding_key_dim, value_dim: self.sliding_value_dim, ..shape },
            None => shape,
        }
    }

    /// The layer whose keys and values this one reads, if it has none of its own.
    fn lender(&self, layer: usize) -> Option<usize> {
        self.shared_with.get(layer.checked_sub(self.shared_from)?).copied()
    }
}

const SHARED: &str = "attention.shared_kv_layers";

fn shared_from(fields: &Fields<'_>, layers: usize) -> Result<usize, FamilyError> {
    let shared = fields.usize_opt(SHARED)?.unwrap_or(0);
    match layers.checked_sub(shared) {
        None | Some(0) => Err(fields.wrong(SHARED, &format!("fewer than the {layers} layers"), &shared.to_string())),
        Some(first) => Ok(first),
    }
}

/// The last layer of the same kind that has keys and values of its own.
fn lender(fields: &Fields<'_>, windows: &Windows, first: usize, layer: usize) -> Result<usize, FamilyError> {
    let alike = |own: &usize| windows.of(*own).is_some() == windows.of(layer).is_some();
    (0..first).rev().find(alike).ok_or_else(|| {
        let expected = format!("a layer below {first} that sees as much as layer {layer}");
        fields.wrong(SHARED, &expected, "none")
    })
}

struct Weights {
    embed: String,
    per_layer: Option<PerLayerEmbedding>,
    /// A divisor per rotary pair of the full layers: how a part of the pairs is kept from turning.
    rope_factors: Option<String>,
    layers: Vec<Layer>,
    output_norm: String,
    output: Projection,
}

/// The second embedding: a row has a slice of `width` entries for each layer.
struct PerLayerEmbedding {
    width: usize,
    table: String,
    projection: Projection,
    norm: String,
}

struct Layer {
    attn_norm: String,
    attn: LayerAttention,
    post_attn_norm: String,
    ffn_norm: String,
    ffn: Gated,
    experts: Option<LayerExperts>,
    post_ffn_norm: String,
    per_layer: Option<PerLayerInput>,
    output_scale: String,
}

struct LayerAttention {
    shape: AttentionShape,
    q: Projection,
    q_norm: String,
    own: Option<KeysValues>,
    output: Projection,
}

struct KeysValues {
    k: Projection,
    k_norm: String,
    /// None: the values are the keys, neither normed as keys are nor rotated.
    v: Option<Projection>,
}

struct LayerExperts {
    router_norm: String,
    norm: String,
    mixture: Mixture,
    post_dense_norm: String,
    post_norm: String,
}

/// How a layer mixes in its slice of the second embedding.
struct PerLayerInput {
    gate: Projection,
    output: Projection,
    post_norm: String,
}

impl Weights {
    fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Self, FamilyError> {
        let DecoderSizes { layers, hidden, vocab, .. } = c.sizes;
        let keys_are_values = (0..c.shared_from).filter(|&i| c.windows.of(i).is_none()).all(|i| {
            let t = t.layer(i);
            !t.has("attn_v") && !t.has("attn_qkv")
        });
        Ok(Weights {
            embed: t.plain("token_embd", &[vocab, hidden])?,
            per_layer: c.per_layer_embedding.map(|width| PerLayerEmbedding::declare(t, c, width)).transpose()?,
            rope_factors: t.optional("rope_freqs", c.rope.dims / 2)?,
            layers: (0..layers)
                .map(|i| Layer::declare(&mut t.layer(i), c, i, keys_are_values))
                .collect::<Result<_, _>>()?,
            output_norm: t.plain("output_norm", &[hidden])?,
            output: output_matrix(t, vocab, hidden)?,
        })
    }
}

impl PerLayerEmbedding {
    fn declare(t: &mut Tensors<'_>, c: &Config, width: usize) -> Result<Self, FamilyError> {
        let DecoderSizes { layers, hidden, vocab, .. } = c.sizes;
        let all = width.saturating_mul(layers);
        Ok(PerLayerEmbedding {
            width,
            table: t.plain("per_layer_token_embd", &[vocab, all])?,
            projection: t.matrix("per_layer_model_proj", all, hidden)?,
            norm: t.plain("per_layer_proj_norm", &[width])?,
        })
    }
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize, keys_are_values: bool) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        Ok(Layer {
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: LayerAttention::declare(t, c, i, keys_are_values && c.windows.of(i).is_none())?,
            post_attn_norm: t.plain("post_attention_norm", &[hidden])?,
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            ffn: Gated::declare(t, "", c.ffn_width.at(i), hidden)?,
            experts: c.experts.as_ref().map(|shape| LayerExperts::declare(t, shape, hidden)).transpose()?,
            post_ffn_norm: t.plain("post_ffw_norm", &[hidden])?,
            per_layer: c.per_layer_embedding.map(|width| PerLayerInput::declare(t, width, hidden)).transpose()?,
            output_scale: t.plain("layer_output_scale", &[1])?,
        })
    }
}

impl LayerAttention {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize, keys_are_values: bool) -> Result<Self, FamilyError> {
        let shape = c.shape(i);
        let (hidden, q_rows, k_rows, v_rows) = (shape.hidden, shape.query_rows(), shape.key_rows(), shape.value_rows());
        let own = c.lender(i).is_none();
        let (q, k, v) = if own && t.has("attn_qkv") {
            let parts = [("attn_q", q_rows), ("attn_k", k_rows), ("attn_v", v_rows)];
            let [q, k, v] = t.split_rows("attn_qkv", parts, hidden)?;
            (q, Some(k), Some(v))
        } else {
            let q = t.matrix("attn_q", q_rows, hidden)?;
            let k = own.then(|| t.matrix("attn_k", k_rows, hidden)).transpose()?;
            let v = (own && !keys_are_values).then(|| t.matrix("attn_v", v_rows, hidden)).transpose()?;
            (q, k, v)
        };
        let own = match k {
            Some(k) => Some(KeysValues { k, k_norm: t.plain("attn_k_norm", &[shape.key_dim])?, v }),
            None => None,
        };
        let q_norm = t.plain("attn_q_norm", &[shape.key_dim])?;
        Ok(LayerAttention { shape, q, q_norm, own, output: t.matrix("attn_output", hidden, shape.attended_rows())? })
    }
}

impl LayerExperts {
    /// The router reads the normed row times `ffn_gate_inp.scale` and the inverse root of the width.
    fn declare(t: &mut Tensors<'_>, shape: &MixtureShape, hidden: usize) -> Result<Self, FamilyError> {
        let factor = (1.0 / (hidden as f64).sqrt()) as f32;
        Ok(LayerExperts {
            router_norm: t.exactly_times("ffn_gate_inp.scale", &[hidden], factor)?,
            norm: t.plain("pre_ffw_norm_2", &[hidden])?,
            mixture: Mixture::declare_scaled(t, shape, hidden)?,
            post_dense_norm: t.plain("post_ffw_norm_1", &[hidden])?,
            post_norm: t.plain("post_ffw_norm_2", &[hidden])?,
        })
    }
}

impl PerLayerInput {
    fn declare(t: &mut Tensors<'_>, width: usize, hidden: usize) -> Result<Self, FamilyError> {
        Ok(PerLayerInput {
            gate: t.matrix("inp_gate", width, hidden)?,
            output: t.matrix("proj", hidden, width)?,
            post_norm: t.plain("post_norm", &[hidden])?,
        })
    }
}

fn forward(g: &mut GraphBuilder, c: &Config, w: &Weights) -> String {
    let eps = c.sizes.norm_eps;
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let mut x = g.embed("embed", &ids, &w.embed, (c.sizes.hidden as f64).sqrt() as f32);
    let per_layer = w.per_layer.as_ref().map(|p| (p.width, per_layer_rows(g, c, p, &ids, &x)));
    let mut states: Vec<[String; 2]> = Vec::new();
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let sliding = c.windows.of(i);
        let how = Attending {
            positions: &positions,
            rope: Some(if sliding.is_some() { &c.rope_sliding } else { &c.rope }),
            rope_factors: w.rope_factors.as_deref().filter(|_| sliding.is_none()),
            scale: 1.0,
            window: sliding,
            norm_eps: eps,
        };
        let h = g.rms_norm("attn_norm", &x, Some(&layer.attn_norm), eps, None);
        let lent = c.lender(i).and_then(|lender| states.get(lender)).cloned();
        let (mut a, used) = attention(g, &h, &layer.attn, lent, how);
        states.push(used);
        let mut slice = per_layer.as_ref().map(|(width, rows)| g.slice("per_layer", rows, 1, i * width, *width));
        if i + 1 == w.layers.len() {
            [x, a] = wanted_rows(g, [("residual_rows", &x), ("attn_rows", &a)]);
            slice = slice.map(|slice| g.logit_rows("per_layer_rows", &slice));
        }
        let a = g.rms_norm("post_attn_norm", &a, Some(&layer.post_attn_norm), eps, None);
        x = g.add("attn_residual", &x, &a);
        let f = feed_forward(g, &x, layer, eps);
        x = g.add("ffn_residual", &x, &f);
        if let (Some(input), Some(slice)) = (&layer.per_layer, &slice) {
            let p = per_layer_input(g, &x, slice, input, eps);
            x = g.add("per_layer_residual", &x, &p);
        }
        x = g.affine("layer_out", &x, Some(&layer.output_scale), None);
    }
    g.layer(None);
    let h = g.rms_norm("output_norm", &x, Some(&w.output_norm), eps, None);
    match c.final_softcap {
        Some(cap) => {
            let logits = w.output.apply(g, "uncapped_logits", &h);
            g.softcap("logits", &logits, cap)
        }
        None => w.output.apply(g, "logits", &h),
    }
}

/// What the layers mix in, all their slices side by side: a row of the second embedding and a projection of the first.
fn per_layer_rows(g: &mut GraphBuilder, c: &Config, w: &PerLayerEmbedding, ids: &str, embedded: &str) -> String {
    let e = g.embed("per_layer_embed", ids, &w.table, (w.width as f64).sqrt() as f32);
    let p = w.projection.apply(g, "per_layer_proj", embedded);
    let p = g.scale("per_layer_scaled", &p, (1.0 / (c.sizes.hidden as f64).sqrt()) as f32);
    let p = g.rms_norm("per_layer_norm", &p, Some(&w.norm), c.sizes.norm_eps, Some(w.width));
    let sum = g.add("per_layer_sum", &p, &e);
    g.scale("per_layer_inputs", &sum, std::f32::consts::FRAC_1_SQRT_2)
}

/// Attention of one layer, and the states that it reads: its own, or those lent.
fn attention(
    g: &mut GraphBuilder,
    x: &str,
    w: &LayerAttention,
    lent: Option<[String; 2]>,
    how: Attending<'_>,
) -> (String, [String; 2]) {
    let shape = w.shape;
    let q = w.q.apply(g, "q_proj", x);
    let q = prepared(g, ["q_norm", "q_rope"], q, Some(&w.q_norm), shape.key_dim, &how);
    let (mut k, mut v) = (None, None);
    if let Some(own) = &w.own {
        let raw = own.k.apply(g, "k_proj", x);
        let values = own.v.as_ref().map_or_else(|| raw.clone(), |v| v.apply(g, "v_proj", x));
        k = Some(prepared(g, ["k_norm", "k_rope"], raw, Some(&own.k_norm), shape.key_dim, &how));
        v = Some(g.rms_norm("v_norm", &values, None, how.norm_eps, Some(shape.value_dim)));
    }
    let states = lent.unwrap_or_else(|| caches(g, shape, how.window));
    let [k_state, v_state] = states.clone();
    let op = Attention {
        q,
        k,
        v,
        k_state,
        v_state: Some(v_state),
        heads: shape.heads,
        scale: how.scale,
        window: how.window,
        ..Attention::default()
    };
    let heads = g.attention("attn", op);
    (w.output.apply(g, "attn_out", &heads), states)
}

/// The dense block and the experts, each normed behind, and their sum once more.
fn feed_forward(g: &mut GraphBuilder, x: &str, layer: &Layer, eps: f32) -> String {
    let h = g.rms_norm("ffn_norm", x, Some(&layer.ffn_norm), eps, None);
    let mut f = layer.ffn.apply(g, "ffn", &h, Act::GeluTanh);
    if let Some(e) = &layer.experts {
        let dense = g.rms_norm("post_dense_norm", &f, Some(&e.post_dense_norm), eps, None);
        let r = g.rms_norm("router_norm", x, Some(&e.router_norm), eps, None);
        let h = g.rms_norm("experts_norm", x, Some(&e.norm), eps, None);
        let m = e.mixture.routed(g, "experts_out", &r, &h, Act::GeluTanh);
        let m = g.rms_norm("post_experts_norm", &m, Some(&e.post_norm), eps, None);
        f = g.add("ffn_sum", &dense, &m);
    }
    g.rms_norm("post_ffn_norm", &f, Some(&layer.post_ffn_norm), eps, None)
}

fn per_layer_input(g: &mut GraphBuilder, x: &str, slice: &str, w: &PerLayerInput, eps: f32) -> String {
    let gate = w.gate.apply(g, "per_layer_gate", x);
    let inner = g.glu("per_layer_act", &gate, slice, Act::GeluTanh);
    let out = w.output.apply(g, "per_layer_out", &inner);
    g.rms_norm("per_layer_post_norm", &out, Some(&w.post_norm), eps, None)
}
