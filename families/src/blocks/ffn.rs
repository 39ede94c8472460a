//! Gated feed-forward, dense or as a mixture of experts.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Act, Experts, GraphBuilder, Route, Scoring};
use serde::Serialize;

use super::{
    config::{PerLayer, extent, extent_opt},
    tensors::{Projection, Tensors},
};

/// Kind and sizes of the feed-forward of all layers.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum FfnShape {
    /// One gated block.
    Dense {
        /// Entries between the matrices.
        width: PerLayer,
    },
    /// Routed experts.
    Experts {
        /// Experts of a layer.
        count: usize,
        /// Experts that a token goes through.
        used: usize,
        /// Entries between an expert's matrices.
        width: usize,
    },
}

impl FfnShape {
    /// Experts where `expert_count` says so, else dense.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(crate) fn read(fields: &Fields<'_>, layers: usize) -> Result<Self, FamilyError> {
        const WIDTH: &str = "feed_forward_length";
        if fields.usize_opt("expert_count")?.unwrap_or(0) == 0 {
            let width = PerLayer::read(fields, WIDTH, layers)?
                .ok_or_else(|| fields.wrong(WIDTH, "an integer or one per layer", "no such key"))?;
            return Ok(FfnShape::Dense { width });
        }
        let count = extent(fields, "expert_count")?;
        let used = extent(fields, "expert_used_count")?;
        if used > count {
            let expected = format!("at most the {count} of expert_count");
            return Err(fields.wrong("expert_used_count", &expected, &used.to_string()));
        }
        let width = match extent_opt(fields, "expert_feed_forward_length")? {
            Some(width) => width,
            None => extent(fields, WIDTH)?,
        };
        Ok(FfnShape::Experts { count, used, width })
    }
}

/// The weights of one layer's feed-forward.
#[derive(Clone, Debug)]
pub(crate) enum Ffn {
    /// See [`FfnShape::Dense`].
    Dense { gate: Projection, up: Projection, down: Projection },
    /// See [`FfnShape::Experts`].
    Experts { router: Projection, used: usize, gate: String, up: String, down: String },
}

impl Ffn {
    /// `ffn_gate`, `ffn_up`, `ffn_down` with the biases there are; or `ffn_gate_inp`, `ffn_gate_exps` and `ffn_up_exps`
    /// (or these fused as `ffn_gate_up_exps`), `ffn_down_exps`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub(crate) fn declare(
        t: &mut Tensors<'_>,
        shape: &FfnShape,
        layer: usize,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        match shape {
            FfnShape::Dense { width } => {
                let width = width.at(layer);
                Ok(Ffn::Dense {
                    gate: t.matrix("ffn_gate", width, hidden)?,
                    up: t.matrix("ffn_up", width, hidden)?,
                    down: t.matrix("ffn_down", hidden, width)?,
                })
            }
            &FfnShape::Experts { count, used, width } => {
                let (outer, inner) = ([count, width, hidden], [count, hidden, width]);
                let [gate, up] = if t.has("ffn_gate_up_exps") {
                    t.split_experts("ffn_gate_up_exps", ["ffn_gate_exps", "ffn_up_exps"], outer)?
                } else {
                    [t.plain("ffn_gate_exps", &outer)?, t.plain("ffn_up_exps", &outer)?]
                };
                let down = t.plain("ffn_down_exps", &inner)?;
                Ok(Ffn::Experts { router: t.matrix("ffn_gate_inp", count, hidden)?, used, gate, up, down })
            }
        }
    }
}

/// Feed-forward of one layer: from the normed residual row to what is added to it.
///
/// Experts are weighted by the softmax over all of them, divided by its sum over the chosen ones: the same numbers as a
/// softmax over the chosen ones alone.
pub(crate) fn ffn(g: &mut GraphBuilder, x: &str, weights: &Ffn, act: Act) -> String {
    match weights {
        Ffn::Dense { gate, up, down } => {
            let gate = gate.apply(g, "ffn_gate", x);
            let up = up.apply(g, "ffn_up", x);
            let inner = g.glu("ffn_act", &gate, &up, act);
            down.apply(g, "ffn_out", &inner)
        }
        Ffn::Experts { router, used, gate, up, down } => {
            let scores = router.apply(g, "ffn_router", x);
            let route = Route { scores, used: *used, scoring: Scoring::Softmax, normalize: true, ..Route::default() };
            let (ids, weights) = g.route("ffn_route", route);
            let (gate, up, down) = (Some(gate.clone()), up.clone(), Some(down.clone()));
            g.experts("ffn_out", Experts { x: x.into(), ids, weights, gate, up, down, act, limit: None, scales: None })
        }
    }
}
