//! What a plugin says of itself.

use serde::{Deserialize, Serialize};

use super::{ABI, MOST_ANSWERED, Malformed, of_this_version, read};

/// Who a plugin is and what it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// [`ABI`].
    pub bantam_plugin: u32,
    /// Name of the family, for people and logs.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// The values of `general.architecture` that it takes.
    pub architectures: Vec<String>,
    /// The first of `architectures` in the `config.json` of Hugging Face checkpoints that it imports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hf_architectures: Vec<String>,
    /// The values of `general.architecture` of draft files that it takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draft_architectures: Vec<String>,
}

impl Description {
    /// Of a family.
    pub fn of(family: &dyn crate::Family, version: &str) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        Description {
            bantam_plugin: ABI,
            name: family.name().into(),
            version: version.into(),
            architectures: owned(family.architectures()),
            hf_architectures: owned(family.hf_architectures()),
            draft_architectures: owned(family.draft_architectures()),
        }
    }

    /// Reads what a plugin answered.
    ///
    /// # Errors
    /// Another version, or what is no such description.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Malformed> {
        read(&of_this_version(bytes, MOST_ANSWERED)?)
    }
}
