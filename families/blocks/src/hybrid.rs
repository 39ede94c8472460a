//! Which layers of a hybrid attend, and which keep a state that does not grow.

use bantam_family_api::{FamilyError, Fields};
use serde::Serialize;

use super::config::extent_opt;

const INTERVAL: &str = "full_attention_interval";

/// What carries a layer's past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Recurrent,
    Attention,
}

/// The kind of every layer of the trunk.
#[derive(Clone, Debug, Serialize)]
pub struct Hybrid {
    layer_kinds: Vec<Kind>,
}

impl Hybrid {
    /// Reads `attention.recurrent_layers`, a flag for each of `blocks`, or else `full_attention_interval`: the last layer of
    /// each period attends.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn read(fields: &Fields<'_>, blocks: usize, trunk_layers: usize) -> Result<Self, FamilyError> {
        let interval = extent_opt(fields, INTERVAL)?;
        let recurrent = match fields.bools_opt("attention.recurrent_layers", blocks)? {
            Some(flags) => flags,
            None => {
                let interval =
                    interval.ok_or_else(|| fields.wrong(INTERVAL, "an integer of 1 or more", "no such key"))?;
                (1..=blocks).map(|i| !i.is_multiple_of(interval)).collect()
            }
        };
        let kind = |recurrent| if recurrent { Kind::Recurrent } else { Kind::Attention };
        Ok(Hybrid { layer_kinds: recurrent.into_iter().take(trunk_layers).map(kind).collect() })
    }

    /// Whether a layer attends; draft blocks behind the trunk do.
    pub fn attends(&self, layer: usize) -> bool {
        self.layer_kinds.get(layer) != Some(&Kind::Recurrent)
    }
}
