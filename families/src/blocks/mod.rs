//! The building blocks that families share.

mod attention;
mod config;
mod convolution;
mod delta_net;
mod draft;
mod ffn;
mod gated_attention;
mod hybrid;
mod mixture;
mod positions;
mod rope;
mod sizes;
mod state_space;
mod tensors;
mod windows;

pub(crate) use attention::{
    Attending, AttentionShape, AttentionWeights, attended, attention, attention_output, attention_scale, caches,
    inverse_sqrt, prepared,
};
pub(crate) use config::{DecoderSizes, PerLayer, extent, extent_opt, positive_opt};
pub(crate) use convolution::{Convolution, conv_taps};
pub(crate) use delta_net::{DeltaNet, DeltaNetShape};
pub(crate) use draft::{DraftInput, chain, draft_output, trunk_layers};
pub(crate) use ffn::{Ffn, FfnShape, Gated, dense_layers, dense_width, ffn, glu_limits};
pub(crate) use gated_attention::GatedAttention;
pub(crate) use hybrid::Hybrid;
pub(crate) use mixture::{
    Mixture, MixtureShape, Router, Routing, ValueMixture, counts, expert_groups, scoring, weights_scale,
};
pub(crate) use positions::Positions;
pub(crate) use rope::RopeConfig;
pub(crate) use sizes::{ModelSizes, draft_fits};
pub(crate) use state_space::{StateSpace, StateSpaceShape};
pub(crate) use tensors::{Origin, Projection, Tensors, output_matrix};
pub(crate) use windows::{Period, Windows};

use bantam_family_api::{Checkpoint, FamilyError, MetaValue};
use bantam_graph::GraphBuilder;
use serde::Serialize;

/// A configuration as `inspect` shows it.
///
/// # Errors
/// If it holds a value that has no JSON form.
pub(crate) fn shown(config: &impl Serialize) -> Result<serde_json::Map<String, serde_json::Value>, FamilyError> {
    match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(map)) => Ok(map),
        Ok(other) => Err(FamilyError::Unsupported(format!("the configuration is no JSON object: {other}"))),
        Err(e) => Err(FamilyError::Unsupported(format!("the configuration has no JSON form: {e}"))),
    }
}

/// Narrows values to the rows whose logits are wanted: past a model's last state write no other row is needed.
pub(crate) fn wanted_rows<const N: usize>(g: &mut GraphBuilder, values: [(&str, &str); N]) -> [String; N] {
    values.map(|(name, x)| g.logit_rows(name, x))
}

/// Number of entries of the vocabulary that the checkpoint's tokenizer lists; `None` if it has no tokenizer.
pub(crate) fn listed_tokens(checkpoint: &Checkpoint) -> Option<u64> {
    match checkpoint.metadata.get("tokenizer.ggml.tokens")? {
        MetaValue::Array(tokens) => u64::try_from(tokens.len()).ok(),
        MetaValue::Omitted { length, .. } => Some(*length),
        _ => None,
    }
}
