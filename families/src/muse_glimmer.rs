//! Muse Glimmer.
//!
//! Norms stand before and after each block. Sliding layers rotate queries and keys; full ones know no positions. The
//! output of attention is multiplied, entry by entry, by the sigmoid of a projection of its input. Embeddings are normed,
//! logits scaled and then capped.

use bantam_family_api::{Checkpoint, Family, FamilyError, Model};
use bantam_family_blocks::{
    Attending, AttentionShape, AttentionWeights, Decoder, DecoderSizes, Ffn, FfnShape, Period, Projection, ROPE_BASE,
    RopeConfig, SCALE, Tensors, Windows, attended, attention_output, attention_scale, described, ffn, final_softcap,
    number, number_opt, wanted_rows,
};
use bantam_graph::{Act, GraphBuilder, InputSource, Pairing};
use serde::Serialize;

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
        let t = &mut Tensors::new(checkpoint, &mut graph);
        let layer = |t: &mut Tensors<'_>, i: usize| Layer::declare(t, &config, i);
        let weights = Decoder::declare(t, config.sizes.table(), config.sizes.layers, layer)?;
        let logits = forward(&mut graph, &config, &weights);
        described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::muse_glimmer())
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
        let base = number_opt(&fields, "rope.freq_base_swa", ROPE_BASE)?.unwrap_or(rope.base);
        fields.size("attention.sliding_window")?;
        Ok(Config {
            post_norm_eps: POST_NORM_EPS,
            attention_scale: attention_scale(&fields, sizes.key_dim)?,
            windows: Windows::read(checkpoint, sizes.layers, Some(Period::FullLast(4)))?,
            rope_sliding: RopeConfig { base, ..rope },
            ffn: FfnShape::read(&fields, sizes.layers)?,
            logit_scale: number(&fields, "logit_scale", SCALE)?,
            final_softcap: final_softcap(&fields)?,
            sizes,
        })
    }
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

fn forward(g: &mut GraphBuilder, c: &Config, w: &Decoder<Layer>) -> String {
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
