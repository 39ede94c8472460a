//! What a model family is: given a checkpoint's metadata and tensor list, it describes the model as graphs.
//!
//! Everything that crosses this boundary is plain data ([`Checkpoint`] in, [`Model`] out) and has a JSON form, so a family
//! can live in the tree or in a plugin ([`wire`] is what crosses to that). A family contains no kernels, no threads, no `unsafe`, and does no I/O.

mod chat;
mod checkpoint;
mod draft;
mod import;
mod tokenizer;
pub mod wire;

pub use chat::{
    ArgumentTags, CallSyntax, ChatFormat, Effort, JsonCalls, LarkCalls, MessageHeader, NamedCalls, Reasoning,
    TaggedCalls,
};
pub use checkpoint::{AxisOrder, Checkpoint, Fields, MetaValue, TensorMeta};
pub use draft::{Draft, DraftMethod};
pub use import::{HfCheckpoint, Import};
pub use tokenizer::{PreTokenizer, TokenizerHints, TokenizerModel};

use bantam_graph::{Graph, GraphError};
use serde::{Deserialize, Serialize};

/// Why a family cannot describe a checkpoint. Each message names the key or tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FamilyError {
    /// No family takes the architecture.
    #[error("unknown architecture `{found}`; supported: {supported}. A family plugin can add it (see docs/plugins.md)")]
    UnknownArchitecture {
        /// What the checkpoint says.
        found: String,
        /// What is known, comma-separated.
        supported: String,
    },
    /// The checkpoint holds a draft alone.
    #[error(
        "this file is a draft for models of architecture `{target}`, and no model: open the model, and give it this file with --draft"
    )]
    OnlyDraft {
        /// The architectures that it drafts for.
        target: String,
    },
    /// A metadata key is missing or has a value that cannot be.
    #[error("metadata key `{key}`: expected {expected}, found {found}")]
    Key {
        /// The key.
        key: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A tensor is missing or has another shape.
    #[error("tensor `{tensor}`: expected {expected}, found {found}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The checkpoint uses something that the family does not describe.
    #[error("{0}")]
    Unsupported(String),
    /// The description does not fit in itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl FamilyError {
    /// Characters of a value that errors repeat.
    const SHOWN: usize = 100;

    /// An error about a key. Of what was found, which may be as long as a file, only the beginning is kept.
    pub fn key(key: impl Into<String>, expected: &str, found: &str) -> Self {
        let found = match found.char_indices().nth(Self::SHOWN) {
            Some((end, _)) => format!("{}…", found.get(..end).unwrap_or_default()),
            None => found.into(),
        };
        FamilyError::Key { key: key.into(), expected: expected.into(), found }
    }
}

/// A described model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The architecture, as in the checkpoint.
    pub architecture: String,
    /// The resolved configuration, for people (`inspect`).
    #[serde(deserialize_with = "bantam_graph::json::object")]
    pub config: serde_json::Map<String, serde_json::Value>,
    /// Longest sequence the model was made for, in tokens.
    pub context_length: usize,
    /// From token ids to logits.
    pub text: Graph,
    /// The draft block that the checkpoint carries, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<Draft>,
    /// How the model marks the parts of its turns.
    pub chat: ChatFormat,
    /// What its files do not say of the tokenizer, if that is anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<TokenizerHints>,
}

/// A model family.
pub trait Family: Send + Sync {
    /// Name for people and logs.
    fn name(&self) -> &'static str;

    /// The values of `general.architecture` that it takes.
    fn architectures(&self) -> &'static [&'static str];

    /// Describes a checkpoint of one of its architectures.
    ///
    /// # Errors
    /// A key or tensor that is missing or does not fit.
    fn describe(&self, checkpoint: &Checkpoint) -> Result<Model, FamilyError>;

    /// The first of `architectures` in the `config.json` of Hugging Face checkpoints that it takes.
    fn hf_architectures(&self) -> &'static [&'static str] {
        &[]
    }

    /// Brings such a checkpoint into the terms that [`Family::describe`] reads.
    ///
    /// # Errors
    /// A key or tensor that does not fit.
    fn import(&self, checkpoint: &HfCheckpoint) -> Result<Import, FamilyError> {
        let architecture = checkpoint.architecture()?;
        Err(FamilyError::Unsupported(format!("the family {} imports no `{architecture}`", self.name())))
    }

    /// The values of `general.architecture` of draft files that it takes.
    fn draft_architectures(&self) -> &'static [&'static str] {
        &[]
    }

    /// Describes a draft that comes in a file of its own, for a target of one of the family's architectures.
    ///
    /// # Errors
    /// A key or tensor that is missing or does not fit, in either checkpoint.
    fn describe_draft(&self, draft: &Checkpoint, _target: &Checkpoint) -> Result<Draft, FamilyError> {
        let architecture = &draft.architecture;
        Err(FamilyError::Unsupported(format!("the family {} knows no draft files of `{architecture}`", self.name())))
    }
}
