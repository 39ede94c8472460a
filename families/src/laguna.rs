//! Laguna: XS, S and M.
//!
//! A mixture of experts behind a few dense layers. The output of attention is multiplied by a softplus gate of its input,
//! one factor per head or one per entry. Layers that slide may have more query heads than the full ones, and rotate in
//! another way: the whole head, without YaRN.

use bantam_family_api::{Checkpoint, Family, FamilyError, Fields, Model};
use bantam_family_blocks::{
    Attending, AttentionShape, AttentionWeights, Decoder, DecoderSizes, Ffn, FfnShape, MixtureShape, Period,
    Projection, RopeConfig, Routing, Tensors, Windows, attended, attention_output, attention_scale, counts, described,
    extent, extent_opt, ffn, needed_weights_scale, scoring, wanted_rows,
};
use bantam_graph::{Act, GraphBuilder, InputSource, Pairing, Scoring};
use serde::Serialize;

use crate::chat;

/// `laguna`.
#[derive(Clone, Copy, Debug)]
pub struct Laguna;

impl Family for Laguna {
    fn name(&self) -> &'static str {
        "Laguna"
    }

    fn architectures(&self) -> &'static [&'static str] {
        &["laguna"]
    }

    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
        let config = Config::read(checkpoint)?;
        let mut graph = GraphBuilder::new(&checkpoint.architecture);
        let t = &mut Tensors::new(checkpoint, &mut graph);
        let layer = |t: &mut Tensors<'_>, i: usize| Layer::declare(t, &config, i);
        let weights = Decoder::declare(t, config.sizes.table(), config.sizes.layers, layer)?;
        let logits = forward(&mut graph, &config, &weights);
        described(checkpoint, &config, config.sizes.context_length, graph.finish(&logits)?, chat::laguna())
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
    /// None: no layer slides.
    rope_sliding: Option<RopeConfig>,
    ffn: FfnShape,
}

impl Config {
    fn read(checkpoint: &Checkpoint) -> Result<Self, FamilyError> {
        let fields = checkpoint.fields();
        let sizes = DecoderSizes::read(checkpoint)?;
        // Files without sliding layers have no rotation for them either.
        const WINDOW: &str = "attention.sliding_window";
        if fields.usize_opt(WINDOW)?.is_none() && fields.f32_opt("rope.freq_base_swa")?.is_some() {
            return Err(fields.wrong(WINDOW, "the window of the layers that rope.freq_base_swa is for", "no such key"));
        }
        let windows = Windows::read(checkpoint, sizes.layers, Some(Period::FullFirst(4)))?;
        Ok(Config {
            attention_scale: attention_scale(&fields, sizes.key_dim)?,
            rope: RopeConfig::read_given(&fields, Pairing::Halves, sizes.key_dim)?,
            rope_sliding: match windows.slide() {
                true => Some(RopeConfig::read_sliding_given(&fields, Pairing::Halves, sizes.key_dim)?),
                false => None,
            },
            windows,
            ffn: FfnShape::behind_dense(&fields, sizes.layers, experts(&fields)?)?,
            sizes,
        })
    }
}

/// One expert of `expert_shared_feed_forward_length` (or of the routed ones' width) is always on.
fn experts(fields: &Fields<'_>) -> Result<MixtureShape, FamilyError> {
    let (count, used) = counts(fields, ["expert_count", "expert_used_count"])?;
    let width = extent(fields, "expert_feed_forward_length")?;
    let routing = Routing {
        count,
        used,
        scoring: scoring(fields, Scoring::Sigmoid)?,
        biased_choice: true,
        groups: None,
        normalize: fields.bool_opt("expert_weights_norm")?.unwrap_or(true),
        scale: needed_weights_scale(fields)?,
    };
    let shared_width = extent_opt(fields, "expert_shared_feed_forward_length")?.unwrap_or(width);
    Ok(MixtureShape { routing, width, shared_width: Some(shared_width) })
}

struct Layer {
    attn_norm: String,
    attn: AttentionWeights,
    /// A row per head, or per entry of all heads.
    gate: Projection,
    ffn_norm: String,
    ffn: Ffn,
}

impl Layer {
    fn declare(t: &mut Tensors<'_>, c: &Config, i: usize) -> Result<Self, FamilyError> {
        let hidden = c.sizes.hidden;
        let shape = AttentionShape::of(&c.sizes, i);
        let per_element = t.rows("attn_gate") == Some(shape.attended_rows());
        let gate_rows = if per_element { shape.attended_rows() } else { shape.heads };
        Ok(Layer {
            attn_norm: t.plain("attn_norm", &[hidden])?,
            attn: AttentionWeights::declare(t, shape)?.with_head_norms(t)?,
            gate: t.matrix("attn_gate", gate_rows, hidden)?,
            ffn_norm: t.plain("ffn_norm", &[hidden])?,
            ffn: Ffn::declare(t, &c.ffn, i, hidden)?,
        })
    }
}

fn forward(g: &mut GraphBuilder, c: &Config, w: &Decoder<Layer>) -> String {
    let eps = c.sizes.norm_eps;
    let ids = g.input("tokens", InputSource::TokenIds);
    let positions = g.input("positions", InputSource::Positions);
    let mut x = g.embed("embed", &ids, &w.embed, 1.0);
    for (i, layer) in w.layers.iter().enumerate() {
        g.layer(Some(i));
        let window = c.windows.of(i);
        let how = Attending {
            positions: &positions,
            rope: Some(c.rope_sliding.as_ref().filter(|_| window.is_some()).unwrap_or(&c.rope)),
            rope_factors: None,
            scale: c.attention_scale,
            window,
            norm_eps: eps,
        };
        let h = g.rms_norm("attn_norm", &x, Some(&layer.attn_norm), eps, None);
        let heads = attended(g, &h, &layer.attn, how);
        let gate = layer.gate.apply(g, "attn_gate", &h);
        let gate = g.activate("attn_gate_act", &gate, Act::Softplus);
        let heads = g.mul("attn_gated", &heads, &gate);
        let mut a = attention_output(g, &heads, &layer.attn);
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
