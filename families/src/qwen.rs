//! Qwen2, Qwen2.5 and Qwen3, dense and with experts.
//!
//! Qwen2 has biases on queries, keys and values. Qwen3 has none, and norms every query and key head before it is rotated.

use bantam_family_api::{Checkpoint, Family, FamilyError, Model};
use bantam_family_blocks::{
    Decoder, DecoderSizes, FfnShape, PlainAttention, PlainLayer, RopeConfig, Tensors, attention_scale, described, plain,
};
use bantam_graph::{GraphBuilder, Pairing};
use serde::Serialize;

use crate::chat;

/// `qwen2`, `qwen3`, `qwen3moe`.
#[derive(Clone, Copy, Debug)]
pub struct Qwen;

impl Family for Qwen {
    fn name(&self) -> &'static str {
        "Qwen"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["qwen2", "qwen3", "qwen3moe"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let t = &mut Tensors::new(checkpoint, &mut graph);
        let Config { sizes, rope, ffn, .. } = &config;
        let layer = |t: &mut Tensors<'_>, i: usize| PlainLayer::declare(t, sizes, ffn, i, config.head_norms);
        let weights = Decoder::declare(t, sizes.table(), sizes.layers, layer)?;
        let how = PlainAttention { rope, rope_factors: None, scale: config.attention_scale };
        let logits = plain(&mut graph, &weights, sizes.norm_eps, how);
        described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::qwen())
    }
}

#[derive(Serialize)]
struct Config {
    #[serde(flatten)]
    sizes: DecoderSizes,
    head_norms: bool,
    attention_scale: f32,
    rope: RopeConfig,
    ffn: FfnShape,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        Ok(Config {
            head_norms: checkpoint.architecture != "qwen2",
            attention_scale: attention_scale(&fields, sizes.key_dim)?,
            rope: RopeConfig::read(&fields, Pairing::Halves, sizes.key_dim)?,
            ffn: FfnShape::read(&fields, sizes.layers)?,
            sizes,
        })
    }
}
