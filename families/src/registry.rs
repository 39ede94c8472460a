//! The list of built-in families, and the way from an architecture to its family.

use bantam_family_api::{Checkpoint, Family, FamilyError, Model};

use crate::{Gemma, Llama, Qwen};

static FAMILIES: &[&dyn Family] = &[&Llama, &Qwen, &Gemma];

/// All built-in families.
pub fn families() -> &'static [&'static dyn Family] {
    FAMILIES
}

/// All architectures that the built-in families take.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.architectures()).copied()
}

/// The built-in family of an architecture.
///
/// # Errors
/// If there is none; the error lists the supported ones.
pub fn family(architecture: &str) -> Result<&'static dyn Family, FamilyError> {
    let takes = |family: &&&dyn Family| family.architectures().contains(&architecture);
    FAMILIES.iter().find(takes).copied().ok_or_else(|| FamilyError::UnknownArchitecture {
        found: architecture.into(),
        supported: architectures().collect::<Vec<_>>().join(", "),
    })
}

/// Describes a checkpoint by the family of its architecture.
///
/// # Errors
/// An unknown architecture, or a key or tensor that does not fit.
pub fn describe(checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
    family(&checkpoint.architecture)?.describe(checkpoint)
}
