//! A family's chat format as data.

use serde::{Deserialize, Serialize};

/// How a model marks the end of its turn, beside the end tokens that its vocabulary declares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatFormat {
    /// Spellings of further tokens that end the generation; those that the vocabulary lacks are passed over.
    pub stop_tokens: Vec<String>,
}
