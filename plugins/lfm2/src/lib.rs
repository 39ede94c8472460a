//! LFM2, LFM2.5 and LFM2-MoE as a family plugin (arXiv 2511.23404).
//!
//! Most layers mix tokens by a short convolution between two gates; a few attend, with norms on queries and keys. The
//! mixture of experts, where there is one, has a sigmoid router with a bias that counts in the choice alone, behind some
//! dense layers. The last norm has the embedding's name.

mod chat;
mod hf;

use bantam_plugin_sdk::{
    blocks::{
        Attending, AttentionShape, AttentionWeights, Decoder, Ffn, FfnShape, MixtureShape, ModelSizes, PerLayer,
        Projection, ROPE_BASE, RopeConfig, Routing, Tensors, attention, attention_scale, counts, dense_layers,
        dense_width, described, extent, extent_opt, ffn, number, output_matrix, scoring, wanted_rows, weights_scale,
    },
    export_family,
    family::{Checkpoint, Family, FamilyError, Fields, HfCheckpoint, Import, Model},
    graph::{Act, GraphBuilder, InputSource, Pairing, Scoring, ShortConv},
};
use serde::Serialize;

/// `lfm2` and `lfm2moe`.
#[derive(Clone, Copy, Debug)]
pub struct Lfm2;

export_family!(Lfm2);

impl Family for Lfm2 {
    fn name(&self) -> &'static str {
        "LFM2"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["lfm2", "lfm2moe"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let weights = declare(&mut Tensors::new(checkpoint, &mut graph), &config)?;
        let logits = forward(&mut graph, &config, &weights);
        let text = graph.finish(&logits)?;
        let model = described(checkpoint, &config, config.sizes.context_length, text, chat::format())?;
        Ok(Model { tokenizer: Some(chat::tokenizer()), ..model })
    }

    fn hf_architectures(&self) -> &'static [&'static str] {
        hf::ARCHITECTURES
    }

    fn import(&self, checkpoint: &HfCheckpoint) -> Result<Import, FamilyError> {
        hf::import(checkpoint)
    }
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: ModelSizes,
    heads: usize,
    /// None in the layers that convolve.
    kv_heads: PerLayer,
    head_dim: usize,
    attention_scale: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    sliding_window: Option<usize>,
    rope: RopeConfig,
    conv_taps: usize,
    ffn: FfnShape,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        if fields.bool_opt("attention.causal")? == Some(false) {
            return Err(fields.wrong("attention.causal", "true: models of embeddings are not described", "false"));
        }
        let sizes = ModelSizes::read(checkpoint)?;
        let (heads, kv_heads) = heads(&fields, &sizes)?;
        let head_dim = sizes.hidden / heads;
        number(&fields, "rope.freq_base", ROPE_BASE)?;
        Ok(Config {
            attention_scale: attention_scale(&fields, head_dim)?,
            sliding_window: sliding_window(&fields)?,
            rope: RopeConfig::read(&fields, Pairing::Halves, head_dim)?,
            conv_taps: conv_taps(&fields)?,
            ffn: ffn_shape(&fields, sizes.layers)?,
            heads,
            kv_heads,
            head_dim,
            sizes,
        })
    }

    fn attends(&self, layer: usize) -> bool {
        self.kv_heads.at(layer) > 0
    }
}

/// Query heads of all layers that attend, and key/value heads of each layer: 0 where it convolves. The size of a head is
/// nowhere but in their number.
fn heads(fields: &Fields<'_>, sizes: &ModelSizes) -> Result<(usize, PerLayer), FamilyError> {
    const HEADS: &str = "attention.head_count";
    const KV_HEADS: &str = "attention.head_count_kv";
    let read = |key| {
        let expected = "an integer, or one per layer";
        PerLayer::read(fields, key, sizes.blocks)?.ok_or_else(|| fields.wrong(key, expected, "no such key"))
    };
    let (all, kv_heads) = (read(HEADS)?, read(KV_HEADS)?);
    let attending = || (0..sizes.layers).filter(|&layer| kv_heads.at(layer) > 0);
    let Some(first) = attending().next() else {
        return Err(fields.wrong(KV_HEADS, "heads in one layer or more", "0 in all of them"));
    };
    let heads = all.at(first);
    if heads == 0 || !sizes.hidden.is_multiple_of(heads) || attending().any(|layer| all.at(layer) != heads) {
        let expected = format!("one divisor of embedding_length {} in all layers that attend", sizes.hidden);
        return Err(fields.wrong(HEADS, &expected, &format!("{heads} in layer {first}")));
    }
    match attending().map(|layer| kv_heads.at(layer)).find(|&n| !heads.is_multiple_of(n)) {
        None => Ok((heads, kv_heads)),
        Some(n) => Err(fields.wrong(KV_HEADS, &format!("divisors of the {heads} query heads"), &n.to_string())),
    }
}

/// Keys that a query sees; none or 0: all before it.
fn sliding_window(fields: &Fields<'_>) -> Result<Option<usize>, FamilyError> {
    const KEY: &str = "attention.sliding_window";
    if fields.usize_opt(KEY)? == Some(0) { Ok(None) } else { extent_opt(fields, KEY) }
}

fn conv_taps(fields: &Fields<'_>) -> Result<usize, FamilyError> {
    const KEY: &str = "shortconv.l_cache";
    match extent(fields, KEY)? {
        1 => Err(fields.wrong(KEY, "2 or more", "1")),
        taps => Ok(taps),
    }
}

fn ffn_shape(fields: &Fields<'_>, layers: usize) -> Result<FfnShape, FamilyError> {
    if fields.usize_opt("expert_count")?.unwrap_or(0) == 0 {
        return Ok(FfnShape::Dense { width: dense_width(fields, layers)? });
    }
    let (count, used) = counts(fields, ["expert_count", "expert_used_count"])?;
    let (scoring, scale) = (scoring(fields, Scoring::Sigmoid)?, weights_scale(fields)?);
    let routing = Routing { count, used, scoring, biased_choice: true, groups: None, normalize: true, scale };
    let experts = MixtureShape { routing, width: extent(fields, "expert_feed_forward_length")?, shared_width: None };
    match dense_layers(fields)? {
        0 => Ok(FfnShape::Experts(experts)),
        dense_layers => Ok(FfnShape::DenseFirst { dense_layers, width: dense_width(fields, layers)?, experts }),
    }
}

struct Layer {
    norm: String,
    mixer: Mixer,
    ffn_norm: String,
    ffn: Ffn,
}

/// What mixes a layer's tokens.
enum Mixer {
    Convolution(Convolution),
    Attention(Box<AttentionWeights>),
}

struct Convolution {
    in_proj: Projection,
    taps: String,
    out_proj: Projection,
}

fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Decoder<Layer>, FamilyError> {
    let [vocab, hidden] = c.sizes.table();
    let last_norm = if t.has("token_embd_norm") { "token_embd_norm" } else { "output_norm" };
    Ok(Decoder {
        embed: t.plain("token_embd", &[vocab, hidden])?,
        layers: (0..c.sizes.layers).map(|i| Layer::declare(&mut t.layer(i), c, i)).collect::<Result<_, _>>()?,
        output_norm: t.plain(last_norm, &[hidden])?,
        output: output_matrix(t, vocab, hidden)?,
    })
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        let mixer = if c.attends(i) {
            let (heads, kv_heads, dim) = (c.heads, c.kv_heads.at(i), c.head_dim);
            let shape = AttentionShape { hidden, heads, kv_heads, key_dim: dim, value_dim: dim };
            Mixer::Attention(Box::new(AttentionWeights::declare(t, shape)?.with_head_norms(t)?))
        } else {
            Mixer::Convolution(Convolution {
                in_proj: t.matrix("shortconv.in_proj", hidden.saturating_mul(3), hidden)?,
                taps: t.plain("shortconv.conv", &[hidden, c.conv_taps])?,
                out_proj: t.matrix("shortconv.out_proj", hidden, hidden)?,
            })
        };
        Ok(Layer {
            norm: t.plain("attn_norm", &[hidden])?,
            mixer,
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            ffn: Ffn::declare(t, &c.ffn, i, hidden)?,
        })
    }
}

impl Convolution {
    /// `out · (c ⊙ conv(b ⊙ u))`, with `b`, `c` and `u` side by side in one projection.
    fn apply(&self, g: &mut GraphBuilder, x: &str, hidden: usize, taps: usize) -> String {
        let all = self.in_proj.apply(g, "conv_in", x);
        let names = ["conv_b", "conv_c", "conv_u"];
        let mut start = 0;
        let [b, c, u] = names.map(|name| {
            let part = g.slice(name, &all, 1, start, hidden);
            start += hidden;
            part
        });
        let gated = g.mul("conv_gated", &b, &u);
        let state = g.recurrent("conv", &[taps.saturating_sub(1), hidden]);
        let conv = ShortConv { x: gated, weight: self.taps.clone(), bias: None, dilation: 1, state };
        let mixed = g.short_conv("conv", conv);
        let mixed = g.mul("conv_mixed", &c, &mixed);
        self.out_proj.apply(g, "conv_out", &mixed)
    }
}

fn forward(g: &mut GraphBuilder, c: &Config, w: &Decoder<Layer>) -> String {
    let eps = c.sizes.norm_eps;
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let how = Attending {
        positions: &positions,
        rope: Some(&c.rope),
        rope_factors: None,
        scale: c.attention_scale,
        window: c.sliding_window,
        norm_eps: eps,
    };
    let mut x = g.embed("embed", &ids, &w.embed, 1.0);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let h = g.rms_norm("attn_norm", &x, Some(&layer.norm), eps, None);
        let mut mixed = match &layer.mixer {
            Mixer::Attention(weights) => attention(g, &h, weights, how),
            Mixer::Convolution(weights) => weights.apply(g, &h, c.sizes.hidden, c.conv_taps),
        };
        if i + 1 == w.layers.len() {
            [x, mixed] = wanted_rows(g, [("residual_rows", &x), ("mixed_rows", &mixed)]);
        }
        x = g.add("mixer_residual", &x, &mixed);
        let h = g.rms_norm("ffn_norm", &x, Some(&layer.ffn_norm), eps, None);
        let f = ffn(g, &h, &layer.ffn, Act::Silu);
        x = g.add("layer_out", &x, &f);
    }
    g.layer(None);
    let h = g.rms_norm("output_norm", &x, Some(&w.output_norm), eps, None);
    w.output.apply(g, "logits", &h)
}
