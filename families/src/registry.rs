//! The list of built-in families, and the way from an architecture to its family.

use bantam_family_api::{Checkpoint, Draft, Family, FamilyError, HfCheckpoint, Import, Model};

use crate::{
    Bailing, DeepSeek, Gemma, Gemma4, K2Horizon, Laguna, Llama, MuseGlimmer, NemotronH, Qwen, Qwen4Exp, Qwen35,
};

static FAMILIES: &[&dyn Family] = &[
    &Llama,
    &Qwen,
    &Qwen35,
    &Qwen4Exp,
    &DeepSeek,
    &Bailing,
    &Gemma,
    &Gemma4,
    &K2Horizon,
    &Laguna,
    &MuseGlimmer,
    &NemotronH,
];

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
    let takes = |family: &dyn Family| family.architectures().contains(&architecture);
    FAMILIES.iter().copied().find(|family| takes(*family)).ok_or_else(|| FamilyError::UnknownArchitecture {
        found: architecture.into(),
        supported: architectures().collect::<Vec<_>>().join(", "),
    })
}

/// Describes a checkpoint by the family of its architecture.
///
/// # Errors
/// An unknown architecture, a draft alone, or a key or tensor that does not fit.
pub fn describe(checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
    only_draft(checkpoint)?;
    family(&checkpoint.architecture)?.describe(checkpoint)
}

/// Refuses the file of a draft: its architecture is no model's, or it has the block that drafts and no layer before it.
fn only_draft(checkpoint: &Checkpoint) -> Result<(), FamilyError> {
    let architecture = checkpoint.architecture.as_str();
    let drafted = FAMILIES.iter().find(|family| family.draft_architectures().contains(&architecture));
    let Some(family) = drafted else { return Ok(()) };
    let any = |is: fn(&str) -> bool| checkpoint.tensors.keys().any(|name| is(name));
    let is_model = family.architectures().contains(&architecture)
        && (any(|name| name.starts_with("blk.0.")) || !any(|name| name.contains(".nextn.")));
    match is_model {
        true => Ok(()),
        false => Err(FamilyError::OnlyDraft { target: family.architectures().join(", ") }),
    }
}

/// Describes a draft that comes in a file of its own, by the family of the model that it drafts for.
///
/// # Errors
/// An architecture that does not draft for such models, or a key or tensor that does not fit, in either checkpoint.
pub fn describe_draft(draft: &Checkpoint, target: &Checkpoint) -> Result<Draft, FamilyError> {
    let family = family(&target.architecture)?;
    let drafts = family.draft_architectures();
    if drafts.contains(&draft.architecture.as_str()) {
        return family.describe_draft(draft, target);
    }
    let known = if drafts.is_empty() { "none".into() } else { format!("`{}`", drafts.join("`, `")) };
    Err(FamilyError::Unsupported(format!(
        "architecture `{}` does not draft for `{}`; what does: {known}",
        draft.architecture, target.architecture
    )))
}

/// Brings a Hugging Face checkpoint into the terms of its family.
///
/// # Errors
/// An architecture that no family imports, or a key or tensor that does not fit.
pub fn import(checkpoint: &HfCheckpoint) -> Result<Import, FamilyError> {
    let architecture = checkpoint.architecture()?;
    match FAMILIES.iter().find(|family| family.hf_architectures().contains(&architecture)) {
        Some(family) => family.import(checkpoint),
        None => {
            let supported: Vec<&str> = FAMILIES.iter().flat_map(|family| family.hf_architectures()).copied().collect();
            Err(FamilyError::UnknownArchitecture { found: architecture.into(), supported: supported.join(", ") })
        }
    }
}
