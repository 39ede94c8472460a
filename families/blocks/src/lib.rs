//! The building blocks that model families share, in the tree and in plugins.
//!
//! A family reads its configuration, declares its weights and writes its forward pass as a graph. For each of the three
//! there is something here:
//!
//! - *Configuration*, from metadata, bounded so that no product of two sizes overflows: [`ModelSizes`] (what every text
//!   model has), [`DecoderSizes`] (with the heads of a decoder that attends in every layer), [`RopeConfig`], [`FfnShape`],
//!   [`MixtureShape`], and single values by [`extent`], [`number`], [`flag`], [`PerLayer`].
//! - *Weights*: [`Tensors`] declares them in a graph and checks each against the checkpoint; a [`Projection`] is a matrix
//!   with its bias. [`Decoder`], [`AttentionWeights`], [`Ffn`] and [`Mixture`] declare those of a whole part.
//! - *Forward pass*: functions that add a part's nodes to a [`GraphBuilder`] and return the name of its value:
//!   [`attention`], [`ffn`], [`plain`] (a whole decoder of plain layers).
//!
//! Tensors and keys have the names that GGUF files give them. [`hf`] brings Hugging Face checkpoints into these terms.

mod attention;
mod config;
mod convolution;
mod decoder;
mod delta_net;
mod draft;
mod ffn;
mod gated_attention;
pub mod hf;
mod hybrid;
mod mixture;
mod numbers;
mod positions;
mod rope;
mod sizes;
mod state_space;
mod tensors;
mod windows;

pub use attention::{
    Attending, AttentionShape, AttentionWeights, attended, attention, attention_output, attention_scale, caches,
    inverse_sqrt, prepared,
};
pub use config::{DecoderSizes, PerLayer, extent, extent_opt};
pub use convolution::{Convolution, conv_taps};
pub use decoder::{Decoder, PlainAttention, PlainLayer, plain};
pub use delta_net::{DeltaNet, DeltaNetShape};
pub use draft::{DraftInput, chain, draft_output, trunk_layers};
pub use ffn::{Ffn, FfnShape, Gated, dense_layers, dense_width, ffn, glu_limits};
pub use gated_attention::GatedAttention;
pub use hybrid::Hybrid;
pub use mixture::{
    Mixture, MixtureShape, Router, Routing, ValueMixture, counts, expert_groups, needed_weights_scale, scoring,
    weights_scale,
};
pub use numbers::{
    Bounds, EPSILON, LOG_DECAY, ROPE_BASE, ROPE_FACTOR, SCALE, SCALE_OR_ZERO, final_softcap, flag, number, number_opt,
    token_id,
};
pub use positions::Positions;
pub use rope::RopeConfig;
pub use sizes::{ModelSizes, draft_fits};
pub use state_space::{StateSpace, StateSpaceShape};
pub use tensors::{Origin, Projection, Tensors, output_matrix};
pub use windows::{Period, Windows};

use bantam_family_api::{ChatFormat, Checkpoint, FamilyError, MetaValue, Model};
use bantam_graph::{Graph, GraphBuilder};
use serde::Serialize;

/// The description of a model without a draft, its configuration as `inspect` shows it.
///
/// # Errors
/// If the configuration holds a value that has no JSON form.
pub fn described(
    checkpoint: &Checkpoint,
    config: &impl Serialize,
    context_length: usize,
    text: Graph,
    chat: ChatFormat,
) -> Result<Model, FamilyError> {
    let architecture = checkpoint.architecture.clone();
    match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(config)) => {
            Ok(Model { architecture, config, context_length, text, draft: None, chat, tokenizer: None })
        }
        Ok(other) => Err(FamilyError::Unsupported(format!("the configuration is no JSON object: {other}"))),
        Err(e) => Err(FamilyError::Unsupported(format!("the configuration has no JSON form: {e}"))),
    }
}

/// Narrows values to the rows whose logits are wanted: past a model's last state write no other row is needed.
pub fn wanted_rows<const N: usize>(g: &mut GraphBuilder, values: [(&str, &str); N]) -> [String; N] {
    values.map(|(name, x)| g.logit_rows(name, x))
}

/// Number of entries of the vocabulary that the checkpoint's tokenizer lists; `None` if it has no tokenizer.
pub fn listed_tokens(checkpoint: &Checkpoint) -> Option<u64> {
    match checkpoint.metadata.get("tokenizer.ggml.tokens")? {
        MetaValue::Array(tokens) => u64::try_from(tokens.len()).ok(),
        MetaValue::Omitted { length, .. } => Some(*length),
        _ => None,
    }
}
