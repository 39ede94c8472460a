//! Rotary embedding as metadata describes it.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Pairing, Rope, RopeScaling};
use serde::Serialize;

use super::{
    config::{extent, extent_opt},
    numbers::{Bounds, ROPE_BASE, ROPE_FACTOR, number, number_opt},
};

/// How the heads of a layer are rotated.
#[derive(Clone, Debug, Serialize)]
pub struct RopeConfig {
    /// Which entries turn together.
    pub pairing: Pairing,
    /// Entries of a head that turn.
    pub dims: usize,
    /// Base of the frequencies.
    pub base: f32,
    /// Scaling of the frequencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RopeScaling>,
}

/// The base of frequencies in files that are older than its key.
const USUAL_BASE: f32 = 10_000.0;

const BASE: &str = "rope.freq_base";
const DIMS: &str = "rope.dimension_count";
const ORIGINAL: &str = "rope.scaling.original_context_length";
/// Keys of sliding layers, each with the one that older files have.
const BASE_SLIDING: [&str; 2] = ["rope.freq_base_swa", "rope.swa.freq_base"];
const DIMS_SLIDING: [&str; 2] = ["rope.dimension_count_swa", "rope.swa.dimension_count"];

impl RopeConfig {
    /// Reads `rope.dimension_count` (all of a head if not given), `rope.freq_base` (10000 if not given) and
    /// `rope.scaling.*`.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn read(fields: &Fields<'_>, pairing: Pairing, head_dim: usize) -> Result<Self, FamilyError> {
        let dims = dims_opt(fields, DIMS, head_dim)?.unwrap_or(head_dim);
        let base = number_opt(fields, BASE, ROPE_BASE)?.unwrap_or(USUAL_BASE);
        sections(fields, dims)?;
        Ok(RopeConfig { pairing, dims, base, scaling: scaling(fields)? })
    }

    /// As [`RopeConfig::read`], for families all of whose files say which entries turn, and how fast.
    ///
    /// # Errors
    /// The key that is missing or does not fit.
    pub fn read_given(fields: &Fields<'_>, pairing: Pairing, head_dim: usize) -> Result<Self, FamilyError> {
        number(fields, BASE, ROPE_BASE)?;
        extent(fields, DIMS)?;
        Self::read(fields, pairing, head_dim)
    }

    /// Reads `rope.dimension_count_swa` and `rope.freq_base_swa`, in older files `rope.swa.dimension_count` and
    /// `rope.swa.freq_base`, with the same defaults: sliding layers scale no frequencies.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn read_sliding(fields: &Fields<'_>, pairing: Pairing, head_dim: usize) -> Result<Self, FamilyError> {
        let dims = match dims_opt(fields, DIMS_SLIDING[0], head_dim)? {
            Some(dims) => Some(dims),
            None => dims_opt(fields, DIMS_SLIDING[1], head_dim)?,
        };
        let dims = dims.unwrap_or(head_dim);
        let base = first_number(fields, BASE_SLIDING, ROPE_BASE)?.unwrap_or(USUAL_BASE);
        Ok(RopeConfig { pairing, dims, base, scaling: None })
    }

    /// As [`RopeConfig::read_sliding`], for families all of whose files with sliding layers say both.
    ///
    /// # Errors
    /// The key that is missing or does not fit.
    pub fn read_sliding_given(fields: &Fields<'_>, pairing: Pairing, head_dim: usize) -> Result<Self, FamilyError> {
        if first_number(fields, BASE_SLIDING, ROPE_BASE)?.is_none() {
            number(fields, BASE_SLIDING[0], ROPE_BASE)?;
        }
        if extent_opt(fields, DIMS_SLIDING[1])?.is_none() {
            extent(fields, DIMS_SLIDING[0])?;
        }
        Self::read_sliding(fields, pairing, head_dim)
    }

    /// The op that rotates `x`; `factors` names the weight that holds a divisor per pair.
    pub fn op(&self, x: &str, positions: &str, head_dim: usize, factors: Option<&str>) -> Rope {
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

/// Entries that turn, if given; without the key it is all of a head, which then must have pairs.
fn dims_opt(fields: &Fields<'_>, key: &str, head_dim: usize) -> Result<Option<usize>, FamilyError> {
    let given = extent_opt(fields, key)?;
    let dims = given.unwrap_or(head_dim);
    if dims > head_dim || !dims.is_multiple_of(2) {
        let expected = format!("an even number of at most {head_dim}, the head's size");
        return Err(fields.wrong(key, &expected, &dims.to_string()));
    }
    Ok(given)
}

/// `rope.dimension_sections`: pairs that turn by each axis of a position. The axes of text are all the same, so they change
/// nothing; but a key that cannot be belongs to a file that is not to be trusted.
fn sections(fields: &Fields<'_>, dims: usize) -> Result<(), FamilyError> {
    const KEY: &str = "rope.dimension_sections";
    let Some(sections) = fields.integers_opt(KEY)? else { return Ok(()) };
    let sum = sections.iter().fold(0_u64, |sum, pairs| sum.saturating_add(*pairs));
    if !(3..=4).contains(&sections.len()) || !(1..=dims as u64 / 2).contains(&sum) {
        let expected = format!("3 or 4 numbers of pairs, at most {} together", dims / 2);
        return Err(fields.wrong(KEY, &expected, &format!("{sections:?}")));
    }
    Ok(())
}

/// A factor alone, without a type, means linear scaling, as in files older than the type key.
fn scaling(fields: &Fields<'_>) -> Result<Option<RopeScaling>, FamilyError> {
    const TYPE: &str = "rope.scaling.type";
    const FACTOR: &str = "rope.scaling.factor";
    let kind = fields.text_opt(TYPE)?;
    let factor = first_number(fields, [FACTOR, "rope.scale_linear"], ROPE_FACTOR)?;
    let of_yarn = fields.usize_opt(ORIGINAL)?;
    let needed = || factor.ok_or_else(|| fields.wrong(FACTOR, "a number above 0", "no such key"));
    match kind.as_deref() {
        Some("none") => Ok(None),
        None if of_yarn.is_some() => Err(fields.wrong(TYPE, "`none`, `linear` or `yarn`", "no such key")),
        None => Ok(factor.map(|factor| RopeScaling::Linear { factor })),
        Some("linear") => Ok(Some(RopeScaling::Linear { factor: needed()? })),
        Some("yarn") => yarn(fields, needed()?).map(Some),
        Some(other) => Err(fields.wrong(TYPE, "`none`, `linear` or `yarn`", &format!("`{other}`"))),
    }
}

/// A number within bounds under a key, or under the one that older files have.
fn first_number(fields: &Fields<'_>, [key, older]: [&str; 2], bounds: Bounds) -> Result<Option<f32>, FamilyError> {
    match number_opt(fields, key, bounds)? {
        Some(number) => Ok(Some(number)),
        None => number_opt(fields, older, bounds),
    }
}

/// YaRN with the magnitude that its authors fitted: 1 + 0.1 ln(factor) on cos and sin.
fn yarn(fields: &Fields<'_>, factor: f32) -> Result<RopeScaling, FamilyError> {
    let original = extent(fields, ORIGINAL)?;
    let original_context =
        u32::try_from(original).map_err(|_| fields.wrong(ORIGINAL, "a 32-bit integer", &original.to_string()))?;
    let beta = |keys: [&str; 2], usual: f32| -> Result<f32, FamilyError> {
        Ok(first_number(fields, keys, ROPE_FACTOR)?.unwrap_or(usual))
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: beta(["rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"], 32.0)?,
        beta_slow: beta(["rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"], 1.0)?,
        magnitude: 1.0 + 0.1 * factor.max(1.0).ln(),
    })
}
