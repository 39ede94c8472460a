//! Experts, which the first layers look up by the token instead of routing to them (arXiv 2106.04426).

use bantam_family_api::{FamilyError, Fields};
use bantam_family_blocks::{
    Mixture, MixtureShape, PerLayer, Routing, Tensors, counts, extent, flag, glu_limits, needed_weights_scale, scoring,
};
use bantam_graph::{Act, GluLimit, GraphBuilder, Scoring};
use serde::Serialize;

/// Sizes of the experts, and how they are chosen.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ExpertsConfig {
    #[serde(flatten)]
    routing: Routing,
    width: PerLayer,
    /// Experts that every token goes through, side by side.
    shared: usize,
    /// Layers whose experts are looked up.
    lookup_layers: usize,
    /// Bounds on the factors of routed and of shared experts, per layer.
    routed_limits: Vec<Option<f32>>,
    shared_limits: Vec<Option<f32>>,
}

impl ExpertsConfig {
    /// Reads the keys `expert_*`, `hash_layer_count` and `swiglu_clamp_*`, for so many blocks of the checkpoint.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(super) fn read(fields: &Fields<'_>, blocks: usize) -> Result<Self, FamilyError> {
        const WIDTH: &str = "expert_feed_forward_length";
        const LIMITS: &str = "swiglu_clamp_exp";
        const LOOKED_UP: &str = "hash_layer_count";
        let (count, used) = counts(fields, ["expert_count", "expert_used_count"])?;
        let width = PerLayer::read(fields, WIDTH, blocks)?;
        let routed_limits = glu_limits(fields, LIMITS, blocks)?;
        let routed_limits = routed_limits
            .ok_or_else(|| fields.wrong(LIMITS, &format!("a number or an array of {blocks} numbers"), "no such key"))?;
        Ok(ExpertsConfig {
            routing: Routing {
                count,
                used,
                scoring: scoring(fields, Scoring::SqrtSoftplus)?,
                biased_choice: true,
                groups: None,
                normalize: flag(fields, "expert_weights_norm")?,
                scale: needed_weights_scale(fields)?,
            },
            width: width.ok_or_else(|| fields.wrong(WIDTH, "an integer or one per block", "no such key"))?,
            shared: extent(fields, "expert_shared_count")?,
            lookup_layers: match fields.usize_opt(LOOKED_UP)? {
                Some(layers) if layers <= blocks => layers,
                found => {
                    let found = found.map_or("no such key".into(), |layers| layers.to_string());
                    return Err(fields.wrong(LOOKED_UP, &format!("at most the {blocks} of block_count"), &found));
                }
            },
            shared_limits: match glu_limits(fields, "swiglu_clamp_shexp", blocks)? {
                Some(limits) => limits,
                None => routed_limits.clone(),
            },
            routed_limits,
        })
    }

    fn limits(&self, layer: usize) -> [Option<GluLimit>; 2] {
        [&self.routed_limits, &self.shared_limits]
            .map(|limits| limits.get(layer).copied().flatten().map(GluLimit::BeforeAct))
    }
}

/// The weights of one layer.
#[derive(Clone, Debug)]
pub(super) struct Experts {
    mixture: Mixture,
    /// `[vocabulary, used]` integers.
    table: Option<String>,
}

impl Experts {
    /// The tensors of a [`Mixture`], and where experts are looked up `ffn_gate_tid2eid`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(super) fn declare(
        t: &mut Tensors<'_>,
        c: &ExpertsConfig,
        layer: usize,
        [vocab, hidden]: [usize; 2],
    ) -> Result<Self, FamilyError> {
        let looked_up = layer < c.lookup_layers;
        let width = c.width.at(layer);
        let routing = Routing { biased_choice: !looked_up, ..c.routing };
        let shape = MixtureShape { routing, width, shared_width: Some(width.saturating_mul(c.shared)) };
        Ok(Experts {
            mixture: Mixture::declare(t, &shape, hidden)?.with_limits(c.limits(layer)),
            table: looked_up.then(|| t.integers("ffn_gate_tid2eid", &[vocab, c.routing.used])).transpose()?,
        })
    }

    /// From the normed row of a token to what goes into the streams.
    pub(super) fn apply(&self, g: &mut GraphBuilder, x: &str, tokens: &str) -> String {
        let ids = self.table.as_ref().map(|table| g.lookup("ffn_ids", tokens, table));
        self.mixture.apply_chosen(g, x, Act::Silu, ids)
    }
}
