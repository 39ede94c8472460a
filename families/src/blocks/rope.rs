//! Rotary embedding as metadata describes it.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Pairing, Rope, RopeScaling};
use serde::Serialize;

use super::config::{extent, extent_opt, positive_opt};

/// How the heads of a layer are rotated.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RopeConfig {
    /// Which entries turn together.
    pub(crate) pairing: Pairing,
    /// Entries of a head that turn.
    pub(crate) dims: usize,
    /// Base of the frequencies.
    pub(crate) base: f32,
    /// Scaling of the frequencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scaling: Option<RopeScaling>,
}

impl RopeConfig {
    /// Reads `rope.dimension_count`, `rope.freq_base` and `rope.scaling.*`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(crate) fn read(fields: &Fields<'_>, pairing: Pairing, head_dim: usize) -> Result<Self, FamilyError> {
        let dims = dims(fields, "rope.dimension_count", head_dim)?;
        let base = positive_opt(fields, "rope.freq_base")?.unwrap_or(10_000.0);
        Ok(RopeConfig { pairing, dims, base, scaling: scaling(fields)? })
    }

    /// Reads `rope.dimension_count_swa` and `rope.freq_base_swa`, in older files `rope.swa.dimension_count` and
    /// `rope.swa.freq_base`: sliding layers scale no frequencies.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(crate) fn read_sliding(fields: &Fields<'_>, pairing: Pairing, head_dim: usize) -> Result<Self, FamilyError> {
        const DIMS: [&str; 2] = ["rope.dimension_count_swa", "rope.swa.dimension_count"];
        let older = fields.usize_opt(DIMS[0])?.is_none();
        let dims = dims(fields, DIMS[usize::from(older)], head_dim)?;
        let base = first_positive(fields, ["rope.freq_base_swa", "rope.swa.freq_base"])?.unwrap_or(10_000.0);
        Ok(RopeConfig { pairing, dims, base, scaling: None })
    }

    /// The op that rotates `x`; `factors` names the weight that holds a divisor per pair.
    pub(crate) fn op(&self, x: &str, positions: &str, head_dim: usize, factors: Option<&str>) -> Rope {
        Rope {
            x: x.into(),
            positions: positions.into(),
            head_dim,
            dims: self.dims,
            offset: 0,
            pairing: self.pairing,
            base: self.base,
            scaling: self.scaling.clone(),
            factors: factors.map(Into::into),
            inverse: false,
        }
    }
}

/// Entries that turn: all of a head, unless the key gives another even number.
fn dims(fields: &Fields<'_>, key: &str, head_dim: usize) -> Result<usize, FamilyError> {
    let dims = extent_opt(fields, key)?.unwrap_or(head_dim);
    if dims > head_dim || !dims.is_multiple_of(2) {
        let expected = format!("an even number of at most {head_dim}, the head's size");
        return Err(fields.wrong(key, &expected, &dims.to_string()));
    }
    Ok(dims)
}

/// A factor without a type means linear scaling, as in files older than the type key.
fn scaling(fields: &Fields<'_>) -> Result<Option<RopeScaling>, FamilyError> {
    const TYPE: &str = "rope.scaling.type";
    const FACTOR: &str = "rope.scaling.factor";
    let kind = fields.text_opt(TYPE)?;
    let factor = first_positive(fields, [FACTOR, "rope.scale_linear"])?;
    let needed = || factor.ok_or_else(|| fields.wrong(FACTOR, "a number above 0", "no such key"));
    match kind.as_deref() {
        Some("none") => Ok(None),
        None => Ok(factor.map(|factor| RopeScaling::Linear { factor })),
        Some("linear") => Ok(Some(RopeScaling::Linear { factor: needed()? })),
        Some("yarn") => yarn(fields, needed()?).map(Some),
        Some(other) => Err(fields.wrong(TYPE, "`none`, `linear` or `yarn`", &format!("`{other}`"))),
    }
}

/// A number above 0 under a key, or under the one that older files have.
fn first_positive(fields: &Fields<'_>, [key, older]: [&str; 2]) -> Result<Option<f32>, FamilyError> {
    match positive_opt(fields, key)? {
        Some(number) => Ok(Some(number)),
        None => positive_opt(fields, older),
    }
}

/// YaRN with the magnitude that its authors fitted: 1 + 0.1 ln(factor) on cos and sin.
fn yarn(fields: &Fields<'_>, factor: f32) -> Result<RopeScaling, FamilyError> {
    const ORIGINAL: &str = "rope.scaling.original_context_length";
    let (key, original) = match extent_opt(fields, ORIGINAL)? {
        Some(original) => (ORIGINAL, original),
        None => ("context_length", extent(fields, "context_length")?),
    };
    let original_context =
        u32::try_from(original).map_err(|_| fields.wrong(key, "a 32-bit integer", &original.to_string()))?;
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: first_positive(fields, ["rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"])?.unwrap_or(32.0),
        beta_slow: first_positive(fields, ["rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"])?.unwrap_or(1.0),
        magnitude: 1.0 + 0.1 * factor.max(1.0).ln(),
    })
}
