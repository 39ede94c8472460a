//! The building blocks that families share.

mod attention;
mod config;
mod convolution;
mod decoder;
mod delta_net;
mod draft;
mod ffn;
mod gated_attention;
mod hybrid;
mod mixture;
mod numbers;
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
pub(crate) use config::{DecoderSizes, PerLayer, extent, extent_opt};
pub(crate) use convolution::{Convolution, conv_taps};
pub(crate) use decoder::{Decoder, PlainAttention, PlainLayer, plain};
pub(crate) use delta_net::{DeltaNet, DeltaNetShape};
pub(crate) use draft::{DraftInput, chain, draft_output, trunk_layers};
pub(crate) use ffn::{Ffn, FfnShape, Gated, dense_layers, dense_width, ffn, glu_limits};
pub(crate) use gated_attention::GatedAttention;
pub(crate) use hybrid::Hybrid;
pub(crate) use mixture::{
    Mixture, MixtureShape, Router, Routing, ValueMixture, counts, expert_groups, needed_weights_scale, scoring,
    weights_scale,
};
pub(crate) use numbers::{EPSILON, LOG_DECAY, ROPE_BASE, SCALE, final_softcap, flag, number, number_opt, token_id};
pub(crate) use positions::Positions;
pub(crate) use rope::RopeConfig;
pub(crate) use sizes::{ModelSizes, draft_fits};
pub(crate) use state_space::{StateSpace, StateSpaceShape};
pub(crate) use tensors::{Origin, Projection, Tensors, output_matrix};
pub(crate) use windows::{Period, Windows};

use bantam_family_api::{ChatFormat, Checkpoint, FamilyError, MetaValue, Model};
use bantam_graph::{Graph, GraphBuilder};
use serde::Serialize;

/// The description of a model without a draft, its configuration as `inspect` shows it.
///
/// # Errors
/// If the configuration holds a value that has no JSON form.
pub(crate) fn described(
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
