//! A draft in a file of its own, opened for a model.

use std::{path::Path, sync::Arc};

use bantam_backend::{WeightData, WeightError, WeightSource};
use bantam_family_api::Draft;
use bantam_gguf::GgufFile;
use bantam_graph::{Weight, WeightExpr};
use bantam_plugins::Families;

use super::{LoadError, LoadedModel, ModelSource, checkpoint};

/// What weights call the tensors of a draft's own file by, before their name.
const OF_DRAFT: &str = "draft.";

/// A draft, and the weights of both it and its model.
#[derive(Debug)]
pub struct LoadedDraft {
    /// How it is run.
    pub draft: Draft,
    /// The weights.
    pub source: DraftSource,
}

/// Evaluates weights over the tensors of a model's files, and of its draft's.
#[derive(Clone, Debug)]
pub struct DraftSource {
    model: ModelSource,
    draft: ModelSource,
}

/// Opens a draft for a model by its only or first GGUF file.
///
/// # Errors
/// A file that cannot be read or is damaged, a draft that is not made for such a model, a key or tensor that does not fit.
pub fn open_draft(path: impl AsRef<Path>, target: &LoadedModel, families: &Families) -> Result<LoadedDraft, LoadError> {
    let file = Arc::new(GgufFile::open(path)?);
    let draft = families
        .describe_draft(&checkpoint(&file)?, &target.files.checkpoint(families)?)
        .map_err(|source| LoadError::Family { file: file.path().into(), source })?;
    Ok(LoadedDraft { draft, source: DraftSource { model: target.source.clone(), draft: ModelSource::of_gguf(file) } })
}

impl DraftSource {
    /// The files that a weight is in, and the weight as it is made there.
    fn of(&self, weight: &Weight) -> (&ModelSource, Weight) {
        if weight.expr.tensors().iter().any(|name| name.starts_with(OF_DRAFT)) {
            (&self.draft, Weight { expr: without_file(&weight.expr), ..weight.clone() })
        } else {
            (&self.model, weight.clone())
        }
    }
}

impl WeightSource for DraftSource {
    fn load(&self, weight: &Weight) -> Result<WeightData, WeightError> {
        let (source, weight) = self.of(weight);
        source.load(&weight)
    }

    fn release(&self, weight: &Weight) {
        let (source, weight) = self.of(weight);
        source.release(&weight);
    }
}

/// An expression over the tensors as the draft's file calls them.
fn without_file(expr: &WeightExpr) -> WeightExpr {
    let inner = |of: &WeightExpr| Box::new(without_file(of));
    match expr {
        WeightExpr::Tensor(name) => WeightExpr::Tensor(name.strip_prefix(OF_DRAFT).unwrap_or(name).into()),
        WeightExpr::Slice { of, axis, start, len } => {
            WeightExpr::Slice { of: inner(of), axis: *axis, start: *start, len: *len }
        }
        WeightExpr::Reshape { of, shape } => WeightExpr::Reshape { of: inner(of), shape: shape.clone() },
        WeightExpr::Permute { of, axes } => WeightExpr::Permute { of: inner(of), axes: axes.clone() },
        WeightExpr::Concat { of, axis } => {
            WeightExpr::Concat { of: of.iter().map(without_file).collect(), axis: *axis }
        }
        WeightExpr::Stack(of) => WeightExpr::Stack(of.iter().map(without_file).collect()),
        WeightExpr::Affine { of, scale, offset } => {
            WeightExpr::Affine { of: inner(of), scale: *scale, offset: *offset }
        }
        WeightExpr::Exp(of) => WeightExpr::Exp(inner(of)),
    }
}
