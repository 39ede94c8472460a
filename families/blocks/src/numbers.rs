//! Numbers of configurations, each within the bounds of what makes sense: beyond them a model would run, and be wrong.

use bantam_family_api::{FamilyError, Fields};

/// What a number may be: above or from `least` to `most`.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    least: f32,
    least_counts: bool,
    most: f32,
}

/// Added under the root of a norm, or to a sum that is divided by.
pub const EPSILON: Bounds = Bounds::above(0.0, 0.1);

/// The base of rotary frequencies.
pub const ROPE_BASE: Bounds = Bounds::from(1.0, 1e12);

/// How much longer sequences may be than those of the training, and which turns per context are kept.
pub const ROPE_FACTOR: Bounds = Bounds::above(0.0, 1e6);

/// A factor on scores, weights or logits, or what caps them.
pub const SCALE: Bounds = Bounds::above(0.0, 1e6);

/// As [`SCALE`], where 0 has a meaning of its own.
pub const SCALE_OR_ZERO: Bounds = Bounds::from(0.0, 1e6);

/// The logarithm of what is left of a state.
pub const LOG_DECAY: Bounds = Bounds { least: -1e4, least_counts: true, most: -1e-6 };

impl Bounds {
    const fn above(least: f32, most: f32) -> Self {
        Bounds { least, least_counts: false, most }
    }

    const fn from(least: f32, most: f32) -> Self {
        Bounds { least, least_counts: true, most }
    }

    fn hold(self, x: f32) -> bool {
        x <= self.most && (x > self.least || self.least_counts && x == self.least)
    }

    fn words(self) -> String {
        let from = if self.least_counts { "from" } else { "above" };
        let to = if self.least_counts { "to" } else { "and up to" };
        format!("a number {from} {} {to} {}", short(self.least), short(self.most))
    }

    /// Fails if a number is outside.
    ///
    /// # Errors
    /// The key.
    pub fn check(self, fields: &Fields<'_>, key: &str, x: f32) -> Result<(), FamilyError> {
        if self.hold(x) { Ok(()) } else { Err(fields.wrong(key, &self.words(), &short(x))) }
    }
}

/// Without rows of zeros.
fn short(x: f32) -> String {
    let magnitude = x.abs();
    if x == 0.0 || (1e-4..1e5).contains(&magnitude) { x.to_string() } else { format!("{x:e}") }
}

/// A number within bounds, if given.
///
/// # Errors
/// If it is outside, or no number.
pub fn number_opt(fields: &Fields<'_>, key: &str, bounds: Bounds) -> Result<Option<f32>, FamilyError> {
    let number = fields.f32_opt(key)?;
    number.map_or(Ok(()), |x| bounds.check(fields, key, x))?;
    Ok(number)
}

/// A number within bounds that must be given.
///
/// # Errors
/// If it is missing, outside, or no number.
pub fn number(fields: &Fields<'_>, key: &str, bounds: Bounds) -> Result<f32, FamilyError> {
    number_opt(fields, key, bounds)?.ok_or_else(|| fields.wrong(key, &bounds.words(), "no such key"))
}

/// `final_logit_softcapping`; none where it is 0.
///
/// # Errors
/// If it is no number, or below 0.
pub fn final_softcap(fields: &Fields<'_>) -> Result<Option<f32>, FamilyError> {
    Ok(number_opt(fields, "final_logit_softcapping", SCALE_OR_ZERO)?.filter(|cap| *cap != 0.0))
}

/// A bool that must be given.
///
/// # Errors
/// If it is missing or no bool.
pub fn flag(fields: &Fields<'_>, key: &str) -> Result<bool, FamilyError> {
    fields.bool_opt(key)?.ok_or_else(|| fields.wrong(key, "a bool", "no such key"))
}

/// A token of a vocabulary of `vocab`, which must be given.
///
/// # Errors
/// If it is missing or no such token.
pub fn token_id(fields: &Fields<'_>, key: &str, vocab: usize) -> Result<u32, FamilyError> {
    let expected = format!("a token below {vocab}");
    let token = fields.usize_opt(key)?.ok_or_else(|| fields.wrong(key, &expected, "no such key"))?;
    let fitting = u32::try_from(token).ok().filter(|_| token < vocab);
    fitting.ok_or_else(|| fields.wrong(key, &expected, &token.to_string()))
}
