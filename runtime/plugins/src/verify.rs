//! What a plugin says of a checkpoint, checked against that checkpoint: a model that does not fit is refused before anything
//! is computed with it.

use bantam_family_api::{Checkpoint, Draft, DraftMethod, HfCheckpoint, Import, Model};
use bantam_graph::{Graph, WeightExpr, check};

/// Longest sequence that a model may be said to be made for, in tokens.
const LONGEST_CONTEXT: usize = 1 << 30;

/// Checks a model.
///
/// # Errors
/// What does not fit, by its name.
pub(crate) fn model(model: &Model, of: &Checkpoint) -> Result<(), String> {
    if model.architecture != of.architecture {
        return Err(format!("it is of architecture `{}`, expected `{}`", model.architecture, of.architecture));
    }
    if !(1..=LONGEST_CONTEXT).contains(&model.context_length) {
        return Err(format!("context_length: expected 1 to {LONGEST_CONTEXT}, found {}", model.context_length));
    }
    let tensor = |name: &str| of.tensors.get(name).map(|meta| meta.shape.clone());
    graph(&model.text, &tensor)?;
    match &model.draft {
        Some(draft) => with_draft(&model.text, draft, &tensor),
        None => Ok(()),
    }
}

/// Checks a draft from a file of its own, whose tensors are called `draft.NAME`.
///
/// # Errors
/// What does not fit, by its name.
pub(crate) fn draft(draft: &Draft, of: &Checkpoint, target: &Checkpoint) -> Result<(), String> {
    let tensor = |name: &str| {
        let meta = match name.strip_prefix("draft.") {
            Some(name) => of.tensors.get(name),
            None => target.tensors.get(name),
        };
        meta.map(|meta| meta.shape.clone())
    };
    weights(&Graph { weights: draft.trunk.weights.clone(), ..Graph::default() }, &tensor)?;
    let refine = match &draft.method {
        DraftMethod::Block { refine, .. } => refine.as_ref(),
        DraftMethod::Chain { .. } => None,
    };
    std::iter::once(&draft.graph).chain(refine).try_for_each(|drafting| graph(drafting, &tensor))
}

/// Checks what became of a Hugging Face checkpoint.
///
/// # Errors
/// What does not fit, by its name.
pub(crate) fn import(import: &Import, of: &HfCheckpoint) -> Result<(), String> {
    let tensor = |name: &str| of.tensors.get(name).map(|meta| meta.shape.clone());
    for (name, meta) in &import.checkpoint.tensors {
        let Some(expr) = import.tensors.get(name) else {
            return Err(format!("tensor `{name}` is made of nothing: `tensors` has no entry of this name"));
        };
        fits(expr, &meta.shape, &tensor).map_err(|why| format!("tensor `{name}`: {why}"))?;
    }
    match import.tensors.keys().find(|name| !import.checkpoint.tensors.contains_key(*name)) {
        Some(name) => Err(format!("`tensors` makes `{name}`, which the checkpoint does not have")),
        None => Ok(()),
    }
}

fn with_draft(text: &Graph, draft: &Draft, tensor: Tensor<'_>) -> Result<(), String> {
    let graphs = draft.graphs(text).map_err(|e| e.to_string())?;
    graphs.iter().try_for_each(|graph| weights(graph, tensor))
}

type Tensor<'a> = &'a dyn Fn(&str) -> Option<Vec<usize>>;

fn graph(graph: &Graph, tensor: Tensor<'_>) -> Result<(), String> {
    check(graph).map_err(|e| e.to_string())?;
    weights(graph, tensor)
}

fn weights(graph: &Graph, tensor: Tensor<'_>) -> Result<(), String> {
    let mut weights = graph.weights.iter();
    weights.try_for_each(|weight| {
        fits(&weight.expr, &weight.shape, tensor)
            .map_err(|why| format!("graph `{}`, weight `{}`: {why}", graph.name, weight.name))
    })
}

/// First axes of extent 1 do not count: some writers drop them.
fn fits(expr: &WeightExpr, shape: &[usize], tensor: Tensor<'_>) -> Result<(), String> {
    let found = expr.shape(tensor)?;
    let core = |shape: &[usize]| shape.iter().copied().skip_while(|&extent| extent == 1).collect::<Vec<_>>();
    match core(&found) == core(shape) {
        true => Ok(()),
        false => Err(format!("expected shape {shape:?}, found {found:?}")),
    }
}
