//! The computation of a model as JSON: its graphs, and what they leave to be found out.

use std::{collections::BTreeMap, sync::Arc};

use bantam_graph::{Graph, ValueType, check, json};
use serde_json::{Map, Value, json};

use crate::load::{LoadedModel, ModelFiles};

/// The graphs in their JSON form as `graph` and `draft`, the type of each of their values as `types`, and the checkpoint's
/// tensors.
///
/// # Errors
/// If a graph does not fit in itself, or cannot be written.
pub(super) fn graphs(loaded: &LoadedModel) -> Result<Arc<str>, String> {
    let draft = loaded.model.draft.as_ref();
    let whole = json!({
        "graph": json::to_value(&loaded.model.text).map_err(|e| e.to_string())?,
        "draft": draft.map(serde_json::to_value).transpose().map_err(|e| e.to_string())?,
        "types": {
            "graph": types(&loaded.model.text)?,
            "draft": draft.map(|draft| types(&draft.graph)).transpose()?,
        },
        "tensors": tensors(&loaded.files),
    });
    Ok(whole.to_string().into())
}

/// The type of each value by its name.
fn types(graph: &Graph) -> Result<Map<String, Value>, String> {
    let types: BTreeMap<_, _> = check(graph).map_err(|e| e.to_string())?.types.into_iter().collect();
    let told = |ValueType { rows, width, integer }| json!({ "rows": rows, "width": width, "integer": integer });
    Ok(types.into_iter().map(|(name, ty)| (name, told(ty))).collect())
}

/// What each tensor takes and in which format.
fn tensors(files: &ModelFiles) -> Map<String, Value> {
    let told = |format: String, bytes: usize| json!({ "type": format, "bytes": bytes });
    match files {
        ModelFiles::Gguf(file) => {
            file.tensors().iter().map(|t| (t.name.clone(), told(t.ty.name().into(), t.bytes))).collect()
        }
        ModelFiles::Directory(directory) => {
            directory.tensors.iter().map(|(name, t)| (name.to_owned(), told(t.dtype.to_string(), t.bytes()))).collect()
        }
    }
}
