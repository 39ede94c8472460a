//! Muse Glimmer.
//!
//! Norms stand before and after each block. Sliding layers rotate queries and keys; full ones know no positions. The
//! output of attention is multiplied, entry by entry, by the sigmoid of a projection of its input. Embeddings are normed,
//! logits scaled and then capped.

use bantam_family_api::{Checkpoint, Family, FamilyError, Model};
use bantam_graph::{Act, GraphBuilder, InputSource, Pairing};
use serde::Serialize;

use crate::blocks::{
    Attending, AttentionShape, AttentionWeights, DecoderSizes, Ffn, FfnShape, Period, Projection, RopeConfig, Tensors,
    Windows, attended, attention_output, attention_scale, ffn, output_matrix, positive_opt, shown, wanted_rows,
};
use crate::chat;

/// `muse-glimmer`.
#[derive(Clone, Copy, Debug)]
pub struct MuseGlimmer;

/// Added under the root of the norms behind the blocks. No key says so.
const POST_NORM_EPS: f32 = 1e-8;

impl Family for MuseGlimmer {
    fn name(&self) -> &'static str {
        "Muse Glimmer"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["muse-glimmer"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let weights = Weights::declare(&mut Tensors::new(checkpoint, &mut graph), &config)?;
        let logits = forward(&mut graph, &config, &weights);
        Ok(Model {
            architecture: checkpoint.architecture.clone(),
            config: shown(&config)?,
            context_length: config.sizes.context_length,
            text: graph.finish(&logits)?,
            draft: None,
            chat: chat::muse_glimmer(),
        })
    }
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: DecoderSizes,
    post_norm_eps: f32,
    attention_scale: f32,
    #[serde(flatten)]
    windows: Windows,
    /// Of the sliding layers.
    rope_sliding: RopeConfig,
    ffn: FfnShape,
    logit_scale: f32,
    final_softcap: Option<f32>,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        let rope = RopeConfig::read(&fields, Pairing::Interleaved, sizes.key_dim)?;
        let base = positive_opt(&fields, "rope.freq_base_swa")?.unwrap_or(rope.base);
        fields.size("attention.sliding_window")?;
        Ok(Config {
            post_norm_eps: POST_NORM_EPS,
            attention_scale: attention_scale(&fields, sizes.key_dim)?,
            windows: Windows::read(checkpoint, sizes.layers, Some(Period::FullLast(4)))?,
            rope_sliding: RopeConfig { base, ..rope },
            ffn: FfnShape::read(&fields, sizes.layers)?,
            logit_scale: fields.f32("logit_scale")?,
            final_softcap: fields.f32_opt("final_logit_softcapping")?.filter(|cap| *cap != 0.0),
            sizes,
        })
    }
}

struct Weights {
    embed: String,
    layers: Vec<Layer>,
    output_norm: String,
    output: Projection,
}

struct Layer {
    attn_norm: String,
    attn: AttentionWeights,
    gate: Projection,
    post_attn_norm: String,
    ffn_norm: String,
    ffn: Ffn,
    post_ffn_norm: String,
}

impl Weights {
    fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Self, FamilyError> {
        let DecoderSizes { layers, hidden, vocab, .. } = c.sizes;
        Ok(Weights {
            embed: t.plain("token_embd", &[vocab, hidden])?,
            layers: (0..layers).map(|i| Layer::declare(&mut t.layer(i), c, i)).collect::<Result<_, _>>()?,
            output_norm: t.plain("output_norm", &[hidden])?,
            output: output_matrix(t, vocab, hidden)?,
        })
    }
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        let shape = AttentionShape::of(&c.sizes, i);
        Ok(Layer {
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: AttentionWeights::declare(t, shape)?.with_head_norms(t)?,
            gate: t.matrix("attn_gate", shape.attended_rows(), hidden)?,
            post_attn_norm: t.plain("post_attention_norm", &[hidden])?,
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            ffn: Ffn::declare(t, &c.ffn, i, hidden)?,
            post_ffn_norm: t.plain("post_ffw_norm", &[hidden])?,
        })
    }
}

fn forward(g: &mut GraphBuilder, c: &Config, w: &Weights) -> String {
    let eps = c.sizes.norm_eps;
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let x = g.embed("embed_rows", &ids, &w.embed, 1.0);
    let mut x = g.rms_norm("embed", &x, None, eps, None);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let window = c.windows.of(i);
        let how = Attending {
            positions: &positions,
            rope: window.map(|_| &c.rope_sliding),
            rope_factors: None,
            scale: c.attention_scale,
            window,
            norm_eps: eps,
        };
        let h = g.rms_norm("attn_norm", &x, Some(&layer.attn_norm), eps, None);
        let heads = attended(g, &h, &layer.attn, how);
        let gate = layer.gate.apply(g, "attn_gate", &h);
        let heads = g.glu("attn_gated", &gate, &heads, Act::Sigmoid);
        let mut a = attention_output(g, &heads, &layer.attn);
        if i + 1 == w.layers.len() {
            [x, a] = wanted_rows(g, [("residual_rows", &x), ("attn_rows", &a)]);
        }
        let a = g.rms_norm("post_attn_norm", &a, Some(&layer.post_attn_norm), c.post_norm_eps, None);
        x = g.add("attn_residual", &x, &a);
        let h = g.rms_norm("ffn_norm", &x, Some(&layer.ffn_norm), eps, None);
        let f = ffn(g, &h, &layer.ffn, Act::Silu);
        let f = g.rms_norm("post_ffn_norm", &f, Some(&layer.post_ffn_norm), c.post_norm_eps, None);
        x = g.add("layer_out", &x, &f);
    }
    g.layer(None);
    let h = g.rms_norm("output_norm", &x, Some(&w.output_norm), eps, None);
    let logits = w.output.apply(g, "unscaled_logits", &h);
    match c.final_softcap {
        Some(cap) => {
            let logits = g.scale("uncapped_logits", &logits, c.logit_scale);
            g.softcap("logits", &logits, cap)
        }
        None => g.scale("logits", &logits, c.logit_scale),
    }
}
