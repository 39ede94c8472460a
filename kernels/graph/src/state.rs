//! Declared per-sequence state: all that the caches need to know to share, evict, roll back and save it.

use serde::{Deserialize, Serialize};

/// How a state grows with its sequence, and what of it a later token can still need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StateKind {
    /// One row per token, all kept.
    PerToken,
    /// One row per token, of which a token at `p` needs those after `p - len`.
    Window {
        /// Rows that are still needed, the token's own included.
        len: usize,
    },
}

/// Number format of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateType {
    /// Follows the cache type that the user chose.
    Kv,
    /// Always f32.
    F32,
}

/// What a row of a state is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Unique name (`k.3`).
    pub name: String,
    /// Heads in a row.
    pub heads: usize,
    /// Entries of a head.
    pub dim: usize,
    /// How it grows.
    pub kind: StateKind,
    /// Its number format.
    pub dtype: StateType,
}

impl State {
    /// Entries of a row.
    pub fn width(&self) -> usize {
        self.heads.saturating_mul(self.dim)
    }
}
