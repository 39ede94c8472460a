//! Which layers of a hybrid attend, and which keep a state that does not grow.

use bantam_family_api::{FamilyError, Fields};
use serde::Serialize;

use super::config::extent_opt;

/// What carries a layer's past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Recurrent,
    Attention,
}

/// The kind of every layer of the trunk.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Hybrid {
    layer_kinds: Vec<Kind>,
}

impl Hybrid {
    /// Reads `attention.recurrent_layers`, a flag for each of `blocks`, or else `full_attention_interval` (4 if not given):
    /// the last layer of each period attends.
    ///
    /// # Errors
    /// The key that does not fit.
    pub(crate) fn read(fields: &Fields<'_>, blocks: usize, trunk_layers: usize) -> Result<Self, FamilyError> {
        let recurrent = match fields.bools_opt("attention.recurrent_layers", blocks)? {
            Some(flags) => flags,
            None => {
                let interval = extent_opt(fields, "full_attention_interval")?.unwrap_or(4);
                (1..=blocks).map(|i| !i.is_multiple_of(interval)).collect()
            }
        };
        let kind = |recurrent| if recurrent { Kind::Recurrent } else { Kind::Attention };
        Ok(Hybrid { layer_kinds: recurrent.into_iter().take(trunk_layers).map(kind).collect() })
    }

    /// Whether a layer attends; draft blocks behind the trunk do.
    pub(crate) fn attends(&self, layer: usize) -> bool {
        self.layer_kinds.get(layer) != Some(&Kind::Recurrent)
    }
}
