//! Gemma 3.
//!
//! Norms stand before and after each block, on the residual's way in and on what is added to it. Most layers see only a
//! sliding window and rotate with a base of their own; the others see everything. The embedding is multiplied by the root
//! of its width, and the output matrix is the embedding table.

use bantam_family_api::{Checkpoint, Family, FamilyError, Fields, Model};
use bantam_family_blocks::{
    Attending, AttentionShape, AttentionWeights, Decoder, DecoderSizes, Ffn, FfnShape, Period, ROPE_BASE, RopeConfig,
    Tensors, Windows, attention, attention_scale, described, ffn, final_softcap, number_opt, wanted_rows,
};
use bantam_graph::{Act, GraphBuilder, InputSource, Pairing};
use serde::Serialize;

use crate::chat;

/// `gemma3`.
#[derive(Clone, Copy, Debug)]
pub struct Gemma;

impl Family for Gemma {
    fn name(&self) -> &'static str {
        "Gemma"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["gemma3"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let t = &mut Tensors::new(checkpoint, &mut graph);
        let layer = |t: &mut Tensors<'_>, i: usize| Layer::declare(t, &config, i);
        let weights = Decoder::declare(t, config.sizes.table(), config.sizes.layers, layer)?;
        let logits = forward(&mut graph, &config, &weights);
        described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::gemma())
    }
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: DecoderSizes,
    attention_scale: f32,
    #[serde(flatten)]
    windows: Windows,
    rope: RopeConfig,
    rope_sliding: RopeConfig,
    ffn: FfnShape,
    final_softcap: Option<f32>,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        let windows = Windows::read(checkpoint, sizes.layers, Some(Period::FullLast(6)))?;
        let rope = RopeConfig::read(&fields, Pairing::Halves, sizes.key_dim)?;
        let base = number_opt(&fields, "rope.freq_base_swa", ROPE_BASE)?.unwrap_or(10_000.0);
        Ok(Config {
            attention_scale: query_scale(&fields, &sizes)?,
            windows,
            rope_sliding: RopeConfig { base, scaling: None, ..rope.clone() },
            rope,
            ffn: FfnShape::read(&fields, sizes.layers)?,
            final_softcap: final_softcap(&fields)?,
            sizes,
        })
    }
}

/// The 27B scales by hidden / heads where the others scale by the head's size. No key says so: only its 62 layers do.
fn query_scale(fields: &Fields<'_>, sizes: &DecoderSizes) -> Result<f32, FamilyError> {
    let width = if sizes.layers == 62 { sizes.hidden / sizes.heads.at(0).max(1) } else { sizes.key_dim };
    attention_scale(fields, width.max(1))
}

struct Layer {
    attn_norm: String,
    attn: AttentionWeights,
    post_attn_norm: String,
    ffn_norm: String,
    ffn: Ffn,
    post_ffn_norm: String,
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        Ok(Layer {
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: AttentionWeights::declare(t, AttentionShape::of(&c.sizes, i))?.with_head_norms(t)?,
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
    let mut x = g.embed("embed", &ids, &w.embed, (c.sizes.hidden as f64).sqrt() as f32);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let how = Attending {
            positions: &positions,
            rope: Some(if c.windows.of(i).is_some() { &c.rope_sliding } else { &c.rope }),
            rope_factors: None,
            scale: c.attention_scale,
            window: c.windows.of(i),
            norm_eps: eps,
        };
        let h = g.rms_norm("attn_norm", &x, Some(&layer.attn_norm), eps, None);
        let mut a = attention(g, &h, &layer.attn, how);
        if i + 1 == w.layers.len() {
            [x, a] = wanted_rows(g, [("residual_rows", &x), ("attn_rows", &a)]);
        }
        let a = g.rms_norm("post_attn_norm", &a, Some(&layer.post_attn_norm), eps, None);
        x = g.add("attn_residual", &x, &a);
        let h = g.rms_norm("ffn_norm", &x, Some(&layer.ffn_norm), eps, None);
        let f = ffn(g, &h, &layer.ffn, Act::GeluTanh);
        let f = g.rms_norm("post_ffn_norm", &f, Some(&layer.post_ffn_norm), eps, None);
        x = g.add("layer_out", &x, &f);
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
