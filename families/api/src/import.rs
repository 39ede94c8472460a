//! Checkpoints in Hugging Face's layout, brought into the terms that a family reads: those of its GGUF files.

use std::collections::BTreeMap;

use bantam_graph::WeightExpr;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Checkpoint, FamilyError, TensorMeta};

/// A checkpoint of safetensors files: `config.json` and the list of tensors, no weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HfCheckpoint {
    /// `config.json`.
    pub config: Map<String, Value>,
    /// All tensors by name.
    pub tensors: BTreeMap<String, TensorMeta>,
}

impl HfCheckpoint {
    /// The first of `architectures`.
    ///
    /// # Errors
    /// If there is none.
    pub fn architecture(&self) -> Result<&str, FamilyError> {
        let first = self.config.get("architectures").and_then(|names| names.get(0)?.as_str());
        first.ok_or_else(|| FamilyError::Key {
            key: "config.json: architectures".into(),
            expected: "an array that begins with a name".into(),
            found: self.config.get("architectures").map_or("no such key".into(), Value::to_string),
        })
    }
}

/// A checkpoint in a family's own terms, and what became what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// What the family describes: metadata and tensors as its GGUF files have them.
    pub checkpoint: Checkpoint,
    /// For each of those tensors, how it is made of the files'.
    pub tensors: BTreeMap<String, WeightExpr>,
    /// What keys and tensors are called in the files, also of those that are missing there.
    pub origins: BTreeMap<String, String>,
}

impl Import {
    /// Adds a tensor made of those of `from`, which `origin` names to people.
    ///
    /// # Errors
    /// If its parts do not fit each other.
    pub fn insert(
        &mut self,
        from: &HfCheckpoint,
        name: &str,
        origin: &str,
        expr: WeightExpr,
    ) -> Result<(), FamilyError> {
        let of = |tensor: &str| from.tensors.get(tensor).map(|meta| meta.shape.clone());
        let shape = expr.shape(&of).map_err(|found| FamilyError::Tensor {
            tensor: origin.into(),
            expected: format!("a shape from which to make `{name}`"),
            found,
        })?;
        let types = expr.tensors().into_iter().filter_map(|tensor| from.tensors.get(tensor));
        let r#type = types.map(|meta| meta.r#type.clone()).next().unwrap_or_default();
        self.checkpoint.tensors.insert(name.into(), TensorMeta { shape, r#type });
        self.tensors.insert(name.into(), expr);
        self.origins.insert(name.into(), origin.into());
        Ok(())
    }

    /// The error with the names that the files use.
    pub fn in_terms_of_the_files(&self, error: FamilyError) -> FamilyError {
        let origin = |name: String| self.origins.get(&name).cloned().unwrap_or(name);
        match error {
            FamilyError::Key { key, expected, found } => FamilyError::Key { key: origin(key), expected, found },
            FamilyError::Tensor { tensor, expected, found } => {
                FamilyError::Tensor { tensor: origin(tensor), expected, found }
            }
            other => other,
        }
    }
}
