//! Feed-forward of a layer, dense or as a mixture of experts.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Act, GluLimit, GraphBuilder};
use serde::Serialize;

use super::{
    Mixture, MixtureShape,
    config::PerLayer,
    numbers::SCALE_OR_ZERO,
    tensors::{Projection, Tensors},
};

/// Kind and sizes of the feed-forward of all layers.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FfnShape {
    /// One gated block.
    Dense {
        /// Entries between the matrices.
        width: PerLayer,
    },
    /// Routed experts.
    Experts(MixtureShape),
    /// Routed experts behind layers of one gated block.
    DenseFirst {
        /// Layers that are dense.
        dense_layers: usize,
        /// Entries between their matrices.
        width: PerLayer,
        /// The other layers.
        experts: MixtureShape,
    },
}

impl FfnShape {
    /// Experts where `expert_count` says so, else dense.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn read(fields: &Fields<'_>, layers: usize) -> Result<Self, FamilyError> {
        if fields.usize_opt("expert_count")?.unwrap_or(0) == 0 {
            return Ok(FfnShape::Dense { width: dense_width(fields, layers)? });
        }
        Ok(FfnShape::Experts(MixtureShape::read(fields)?))
    }

    /// The mixture from layer `leading_dense_block_count` on, which must be given, of `experts`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn behind_dense(fields: &Fields<'_>, layers: usize, experts: MixtureShape) -> Result<Self, FamilyError> {
        let dense_layers = needed_dense_layers(fields)?;
        Ok(FfnShape::DenseFirst { dense_layers, width: dense_width(fields, layers)?, experts })
    }
}

const DENSE_LAYERS: &str = "leading_dense_block_count";

/// `leading_dense_block_count`, or 0.
///
/// # Errors
/// If it is no integer.
pub fn dense_layers(fields: &Fields<'_>) -> Result<usize, FamilyError> {
    Ok(fields.usize_opt(DENSE_LAYERS)?.unwrap_or(0))
}

/// As [`dense_layers`], for families whose models all say so.
///
/// # Errors
/// If it is missing or no integer.
fn needed_dense_layers(fields: &Fields<'_>) -> Result<usize, FamilyError> {
    let layers = fields.usize_opt(DENSE_LAYERS)?;
    layers.ok_or_else(|| fields.wrong(DENSE_LAYERS, "an integer of 0 or more", "no such key"))
}

/// `feed_forward_length`.
///
/// # Errors
/// If it is missing, or neither a size nor one per layer.
pub fn dense_width(fields: &Fields<'_>, layers: usize) -> Result<PerLayer, FamilyError> {
    const WIDTH: &str = "feed_forward_length";
    PerLayer::read(fields, WIDTH, layers)?
        .ok_or_else(|| fields.wrong(WIDTH, "an integer or one per layer", "no such key"))
}

/// Below this a bound on the factors of a gated block means that there is none.
const LEAST_LIMIT: f32 = 1e-6;

/// Bounds on the factors of gated blocks, by layer, if given.
///
/// # Errors
/// If the key holds neither a number nor an array with one per layer, or one below 0.
pub fn glu_limits(fields: &Fields<'_>, key: &str, layers: usize) -> Result<Option<Vec<Option<f32>>>, FamilyError> {
    let Some(limits) = fields.numbers_per_layer(key, layers)? else { return Ok(None) };
    limits.iter().try_for_each(|&limit| SCALE_OR_ZERO.check(fields, key, limit))?;
    Ok(Some(limits.into_iter().map(|limit| Some(limit).filter(|limit| *limit > LEAST_LIMIT)).collect()))
}

/// One gated block: `down · (act(gate·x) ⊙ up·x)`.
#[derive(Clone, Debug)]
pub struct Gated {
    gate: Projection,
    up: Projection,
    down: Projection,
    limit: Option<GluLimit>,
}

impl Gated {
    /// `ffn_gate`, `ffn_up` and `ffn_down`, each with `suffix` behind.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, suffix: &str, width: usize, hidden: usize) -> Result<Self, FamilyError> {
        Ok(Gated {
            gate: t.matrix(&format!("ffn_gate{suffix}"), width, hidden)?,
            up: t.matrix(&format!("ffn_up{suffix}"), width, hidden)?,
            down: t.matrix(&format!("ffn_down{suffix}"), hidden, width)?,
            limit: None,
        })
    }

    /// The same block with bounds on its factors.
    pub fn with_limit(self, limit: Option<GluLimit>) -> Self {
        Gated { limit, ..self }
    }

    /// Its nodes are called `NAME_gate`, `NAME_up`, `NAME_act` and `NAME_out`.
    pub fn apply(&self, g: &mut GraphBuilder, name: &str, x: &str, act: Act) -> String {
        let gate = self.gate.apply(g, &format!("{name}_gate"), x);
        let up = self.up.apply(g, &format!("{name}_up"), x);
        let inner = g.limited_glu(&format!("{name}_act"), &gate, &up, act, self.limit);
        self.down.apply(g, &format!("{name}_out"), &inner)
    }
}

/// The weights of one layer's feed-forward.
#[derive(Clone, Debug)]
pub enum Ffn {
    /// One gated block.
    Dense(Gated),
    /// Routed experts.
    Experts(Box<Mixture>),
}

impl Ffn {
    /// `ffn_gate`, `ffn_up` and `ffn_down`; or the tensors of a [`Mixture`].
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, shape: &FfnShape, layer: usize, hidden: usize) -> Result<Self, FamilyError> {
        match shape {
            FfnShape::Dense { width } => Gated::declare(t, "", width.at(layer), hidden).map(Ffn::Dense),
            FfnShape::DenseFirst { dense_layers, width, .. } if layer < *dense_layers => {
                Gated::declare(t, "", width.at(layer), hidden).map(Ffn::Dense)
            }
            FfnShape::Experts(experts) | FfnShape::DenseFirst { experts, .. } => {
                Mixture::declare(t, experts, hidden).map(Box::new).map(Ffn::Experts)
            }
        }
    }
}

impl Ffn {
    /// Experts with bounds on the factors of the routed and of the shared ones; a dense block as it is.
    pub fn with_limits(self, limits: [Option<GluLimit>; 2]) -> Self {
        match self {
            Ffn::Experts(mixture) => Ffn::Experts(Box::new(mixture.with_limits(limits))),
            dense => dense,
        }
    }

    /// Experts with a gate on the shared one; a dense block as it is.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn with_shared_gate(self, t: &mut Tensors<'_>, hidden: usize) -> Result<Self, FamilyError> {
        match self {
            Ffn::Experts(mixture) => Ok(Ffn::Experts(Box::new(mixture.with_shared_gate(t, hidden)?))),
            dense => Ok(dense),
        }
    }
}

/// Feed-forward of one layer: from the normed residual row to what is added to it.
pub fn ffn(g: &mut GraphBuilder, x: &str, weights: &Ffn, act: Act) -> String {
    match weights {
        Ffn::Dense(gated) => gated.apply(g, "ffn", x, act),
        Ffn::Experts(mixture) => mixture.apply(g, x, act),
    }
}
