//! The list of built-in families, and the way from an architecture to its family.

use bantam_family_api::{Checkpoint, Draft, Family, FamilyError, HfCheckpoint, Import, Model};

use crate::{
    Bailing, DeepSeek, Gemma, Gemma4, K2Horizon, Laguna, Llama, MuseGlimmer, NemotronH, Qwen, Qwen4Exp, Qwen35,
};

static FAMILIES: &[&dyn Family] =
    &[&Llama, &Qwen, &Gemma, &Gemma4, &K2Horizon, &Laguna, &MuseGlimmer, &NemotronH, &Qwen35];

/// A family whose graphs the tests hold to the reference, but that no backend of this version runs.
#[derive(Clone, Copy)]
pub struct Described {
    /// The family.
    pub family: &'static dyn Family,
    /// Ops, and attributes of ops, that its graphs need and no backend computes.
    pub lacking: &'static [&'static str],
}

static DESCRIBED: &[Described] = &[
    Described {
        family: &Bailing,
        lacking: &["`short_conv`", "`delta_rule` with a decay per channel", "`attention` to values in the keys"],
    },
    Described {
        family: &DeepSeek,
        lacking: &[
            "`attention` to keys that are the values, with sinks and keys of blocks",
            "`pool`",
            "`store`",
            "`top_keys`",
        ],
    },
    Described {
        family: &Qwen4Exp,
        lacking: &[
            "`short_conv` with dilation",
            "`delta_rule`",
            "`pool`",
            "`store`",
            "`top_keys`",
            "`attention` to chosen blocks",
        ],
    },
];

/// All families that are described, but not run by any backend of this version.
pub fn described() -> &'static [Described] {
    DESCRIBED
}

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
/// If there is none, or none that a backend runs; the error says which, and lists the supported ones or what is lacking.
pub fn family(architecture: &str) -> Result<&'static dyn Family, FamilyError> {
    let takes = |family: &dyn Family| family.architectures().contains(&architecture);
    if let Some(family) = FAMILIES.iter().find(|family| takes(**family)) {
        return Ok(*family);
    }
    Err(match DESCRIBED.iter().find(|described| takes(described.family)) {
        Some(Described { lacking, .. }) => FamilyError::Unsupported(format!(
            "architecture `{architecture}` is described, but no backend of this version runs it; missing: {}",
            lacking.join(", ")
        )),
        None => FamilyError::UnknownArchitecture {
            found: architecture.into(),
            supported: architectures().collect::<Vec<_>>().join(", "),
        },
    })
}

/// Describes a checkpoint by the family of its architecture.
///
/// # Errors
/// An unknown architecture, or a key or tensor that does not fit.
pub fn describe(checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
    family(&checkpoint.architecture)?.describe(checkpoint)
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
    let described = DESCRIBED.iter().map(|described| described.family);
    let known: Vec<&dyn Family> = FAMILIES.iter().copied().chain(described).collect();
    match known.iter().find(|family| family.hf_architectures().contains(&architecture)) {
        Some(family) => family.import(checkpoint),
        None => {
            let supported: Vec<&str> = known.iter().flat_map(|family| family.hf_architectures()).copied().collect();
            Err(FamilyError::UnknownArchitecture { found: architecture.into(), supported: supported.join(", ") })
        }
    }
}
