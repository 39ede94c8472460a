//! Llama 2 and 3, and the many models that share their architecture: Mistral 7B, SmolLM2, TinyLlama, Mixtral.
//!
//! The plainest decoder: RMS norm, grouped-query attention with rotary embedding, gated feed-forward. In GGUF files the
//! rows of the query and key matrices are ordered so that neighbouring entries turn together.

use bantam_family_api::{Checkpoint, Family, FamilyError, Model};
use bantam_family_blocks::{
    Decoder, DecoderSizes, FfnShape, PlainAttention, PlainLayer, RopeConfig, Tensors, attention_scale, described, plain,
};
use bantam_graph::{GraphBuilder, Pairing};
use serde::Serialize;

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
        let t = &mut Tensors::new(checkpoint, &mut graph);
        let Config { sizes, rope, ffn, .. } = &config;
        let layer = |t: &mut Tensors<'_>, i: usize| PlainLayer::declare(t, sizes, ffn, i, false);
        let weights = Decoder::declare(t, sizes.table(), sizes.layers, layer)?;
        // A divisor per rotary pair: how Llama 3.1 and later stretch their context.
        let rope_factors = t.optional("rope_freqs", rope.dims / 2)?;
        let how = PlainAttention { rope, rope_factors: rope_factors.as_deref(), scale: config.attention_scale };
        let logits = plain(&mut graph, &weights, sizes.norm_eps, how);
        described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::llama())
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
