//! Declared per-sequence state: all that the caches need to know to share, evict, roll back and save it.
//!
//! | kind | declared as | after `n` tokens a sequence holds |
//! | --- | --- | --- |
//! | per token | [`StateKind::PerToken`] | rows `0..n` |
//! | window | [`StateKind::Window`] | rows `t` with `n - len < t < n` |
//! | strided | [`StateKind::Strided`] | rows `0..⌊n/stride⌋` |
//! | recurrent | [`Recurrent`] | one value, of exactly `n` |
//! | alias | [`State::alias`] | nothing of its own: the rows of another graph's state |
//! | tap | [`crate::Graph::taps`] | the last row, of token `n - 1`, if a draft is to go on |
//!
//! A sequence can go on after `n` tokens (from a shared prefix, a snapshot, or after giving tokens back) if and only if
//! all of its graph's state is there as the table says. Three operations follow from the kind alone:
//!
//! - *Resume at `n`*: for every row state the pages that hold those rows; for the recurrent states one attachment made
//!   after exactly `n` tokens. The largest such `n` wins.
//! - *Truncate to `n`*: rows of tokens `n` and later are forgotten (they are overwritten later, never erased); no row
//!   state needs a copy for it, as long as a window still has its rows before `n`, which slack of the longest
//!   speculation ensures. A recurrent value cannot go back: a step keeps the inputs of its tentative rows instead of
//!   taking them in, and the next step takes in those that were accepted.
//! - *Publish at `n`*: per-token and strided pages stay for good (full ones by reference, a partial last one is copied
//!   by whoever writes on); window pages only where somebody may resume; the recurrent value becomes an attachment at `n`
//!   that nobody writes any more.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a state of rows grows with its sequence, and what of it a later token can still need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StateKind {
    /// One row per token, all kept.
    PerToken,
    /// One row per token, of which a token at `p` needs those after `p - len`: sliding keys, the raw rows of an open block.
    Window {
        /// Rows that are still needed, the token's own included.
        len: usize,
    },
    /// One row per `stride` tokens, all kept: row `w` stands for tokens `w·stride .. (w+1)·stride` and exists once the
    /// last of them is processed. The step that processes it already sees the row, from that token on.
    ///
    /// What an open block has collected so far lies in a window state of the op that closes it ([`crate::Pool`]).
    Strided {
        /// Tokens that a row stands for.
        stride: usize,
    },
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateKind::PerToken => f.write_str("a row per token"),
            StateKind::Window { len } => write!(f, "a window of {len}"),
            StateKind::Strided { stride } => write!(f, "a row per {stride} tokens"),
        }
    }
}

/// Number format of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StateType {
    /// Follows the cache type that the user chose.
    Kv,
    /// Always f32: index keys, open blocks.
    F32,
}

/// A state of another graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// Name of the graph that declares it.
    pub graph: String,
    /// Its name there.
    pub state: String,
}

/// What a row of a state is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// If this is a view of another graph's state, which must agree in all the above. It takes no memory, is never
    /// written here, and holds the rows of tokens before the step's first ([`crate::link()`]).
    ///
    /// Within one graph no alias is needed: an op that does not write simply names the state that another writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<Alias>,
}

impl State {
    /// Entries of a row.
    pub fn width(&self) -> usize {
        self.heads.saturating_mul(self.dim)
    }
}

/// A value that each token replaces: always f32, zeros before the first token.
///
/// It is advanced in two phases. A step reads the committed value, takes in the rows that are certain, and keeps the
/// inputs of the rows that are tentative (drafted tokens); the next step first takes in as many of these as were accepted.
/// So rejecting tokens costs nothing, and no copy per token is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Recurrent {
    /// Unique name among all states (`delta.3`).
    pub name: String,
    /// Its shape, as the op that names it demands.
    pub shape: Vec<usize>,
}

impl Recurrent {
    /// Entries of the value.
    pub fn entries(&self) -> usize {
        self.shape.iter().fold(1, |product, n| product.saturating_mul(*n))
    }
}
