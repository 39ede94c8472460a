//! Llama 2 and 3, and the many models that share their architecture: Mistral 7B, SmolLM2, TinyLlama, Mixtral.
//!
//! The plainest decoder: RMS norm, grouped-query attention with rotary embedding, gated feed-forward. In GGUF files the
//! rows of the query and key matrices are ordered so that neighbouring entries turn together.

use bantam_family_api::{Checkpoint, Family, FamilyError, Model};
use bantam_graph::{Act, GraphBuilder, InputSource, Pairing};
use serde::Serialize;

use crate::blocks::{
    Attending, AttentionShape, AttentionWeights, DecoderSizes, Ffn, FfnShape, Projection, RopeConfig, Tensors,
    attention, attention_scale, ffn, output_matrix, shown, wanted_rows,
};
use crate::chat;

/// `llama`.
#[derive(Clone, Copy, Debug)]
pub struct Llama;

impl Family for Llama {
    fn name(&self) -> &'static str {
        "Llama"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["llama"]
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
            chat: chat::llama(),
        })
    }
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: DecoderSizes,
    attention_scale: f32,
    rope: RopeConfig,
    ffn: FfnShape,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        Ok(Config {
            attention_scale: attention_scale(&fields, sizes.key_dim)?,
            rope: RopeConfig::read(&fields, Pairing::Interleaved, sizes.key_dim)?,
            ffn: FfnShape::read(&fields, sizes.layers)?,
            sizes,
        })
    }
}

struct Weights {
    embed: String,
    /// A divisor per rotary pair: how Llama 3.1 and later stretch their context.
    rope_factors: Option<String>,
    layers: Vec<Layer>,
    output_norm: String,
    output: Projection,
}

struct Layer {
    attn_norm: String,
    attn: AttentionWeights,
    ffn_norm: String,
    ffn: Ffn,
}

impl Weights {
    fn declare(t: &mut Tensors<'_>, c: &Config) -> Result<Self, FamilyError> {
        let DecoderSizes { layers, hidden, vocab, .. } = c.sizes;
        Ok(Weights {
            embed: t.plain("token_embd", &[vocab, hidden])?,
            rope_factors: t.optional("rope_freqs", c.rope.dims / 2)?,
            layers: (0..layers).map(|i| Layer::declare(&mut t.layer(i), c, i)).collect::<Result<_, _>>()?,
            output_norm: t.plain("output_norm", &[hidden])?,
            output: output_matrix(t, vocab, hidden)?,
        })
    }
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        Ok(Layer {
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: AttentionWeights::declare(t, AttentionShape::of(&c.sizes, i))?,
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            ffn: Ffn::declare(t, &c.ffn, i, hidden)?,
        })
    }
}

fn forward(g: &mut GraphBuilder, c: &Config, w: &Weights) -> String {
    let eps = c.sizes.norm_eps;
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let how = Attending {
        positions: &positions,
        rope: Some(&c.rope),
        rope_factors: w.rope_factors.as_deref(),
        scale: c.attention_scale,
        window: None,
        norm_eps: eps,
    };
    let mut x = g.embed("embed", &ids, &w.embed, 1.0);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let h = g.rms_norm("attn_norm", &x, Some(&layer.attn_norm), eps, None);
        let mut a = attention(g, &h, &layer.attn, how);
        if i + 1 == w.layers.len() {
            [x, a] = wanted_rows(g, [("residual_rows", &x), ("attn_rows", &a)]);
        }
        x = g.add("attn_residual", &x, &a);
        let h = g.rms_norm("ffn_norm", &x, Some(&layer.ffn_norm), eps, None);
        let f = ffn(g, &h, &layer.ffn, Act::Silu);
        x = g.add("layer_out", &x, &f);
    }
    g.layer(None);
    let h = g.rms_norm("output_norm", &x, Some(&w.output_norm), eps, None);
    w.output.apply(g, "logits", &h)
}
