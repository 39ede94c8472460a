//! What a plugin says of a checkpoint, checked against that checkpoint: a model that does not fit is refused before anything
//! is computed with it.

use bantam_family_api::{ChatFormat, Checkpoint, Draft, DraftMethod, HfCheckpoint, Import, Model, Reasoning};
use bantam_graph::{Graph, WeightExpr, check};
use serde_json::Value;

/// Longest sequence that a model may be said to be made for, in tokens.
const LONGEST_CONTEXT: usize = 1 << 30;

/// Most nodes, and most weights, of a graph: far above any model, and what can be made ready in seconds.
const MOST_NODES: usize = 1 << 15;
/// Most entries of a list in what a model says of its turns or its vocabulary.
const MOST_ENTRIES: usize = 64;
/// Longest text in these, in bytes; grammars have a bound of their own.
const LONGEST_TEXT: usize = 1024;
const GRAMMAR: &str = "grammar";

/// Checks a model.
///
/// # Errors
/// What does not fit, by its name.
pub(crate) fn model(model: &Model, of: &Checkpoint) -> Result<(), String> {
    bounded("chat", &serde_json::to_value(&model.chat).map_err(|e| e.to_string())?)?;
    bounded("tokenizer", &serde_json::to_value(&model.tokenizer).map_err(|e| e.to_string())?)?;
    marks(&model.chat)?;
    if model.architecture != of.architecture {
        return Err(format!("it is of architecture `{}`, expected `{}`", model.architecture, of.architecture));
    }
    if !(1..=LONGEST_CONTEXT).contains(&model.context_length) {
        return Err(format!("context_length: expected 1 to {LONGEST_CONTEXT}, found {}", model.context_length));
    }
    let tensor = |name: &str| of.tensors.get(name).map(|meta| meta.shape.clone());
    graph(&model.text, &tensor)?;
    sizes(&model.text, of)?;
    match &model.draft {
        Some(draft) => {
            sizes(&draft.graph, of)?;
            with_draft(&model.text, draft, &tensor)
        }
        None => Ok(()),
    }
}

/// How often the entries of a checkpoint may come in the weights that are made of them.
const MOST_COPIES: u128 = 4;

/// Refuses weights that are many times what the checkpoint holds, or are computed out of many times that: making them would
/// take memory that nobody has counted, and time.
fn sizes(graph: &Graph, of: &Checkpoint) -> Result<(), String> {
    let entries = |shape: &[usize]| shape.iter().fold(1_u128, |n, extent| n.saturating_mul(*extent as u128));
    let held = of.tensors.values().fold(0_u128, |sum, meta| sum.saturating_add(entries(&meta.shape)));
    let tensor = |name: &str| of.tensors.get(name).map(|meta| meta.shape.clone());
    let (mut sum, mut computed) = (0_u128, 0_u128);
    for weight in &graph.weights {
        computed = computed.saturating_add(computed_for(&weight.expr, &tensor));
        if computed > held.saturating_mul(MOST_COPIES) {
            return Err(format!(
                "graph `{}`, weight `{}`: with it {computed} entries are computed on the way to the weights, and all tensors of \
                 the checkpoint have {held}",
                graph.name, weight.name
            ));
        }
        sum = sum.saturating_add(entries(&weight.shape));
        if sum > held.saturating_mul(MOST_COPIES) {
            return Err(format!(
                "graph `{}`, weight `{}`: with it the weights have {sum} entries, and all tensors of the checkpoint {held}",
                graph.name, weight.name
            ));
        }
    }
    Ok(())
}

/// Entries that are computed or copied for an expression, on the way and at its end. Parts and other shapes of what is there
/// cost nothing.
fn computed_for(expr: &WeightExpr, tensor: Tensor<'_>) -> u128 {
    let own = || {
        let shape = expr.shape(tensor).unwrap_or_default();
        shape.iter().fold(1_u128, |n, extent| n.saturating_mul(*extent as u128))
    };
    match expr {
        WeightExpr::Tensor(_) => 0,
        WeightExpr::Slice { of, .. } | WeightExpr::Reshape { of, .. } => computed_for(of, tensor),
        WeightExpr::Permute { of, .. } | WeightExpr::Affine { of, .. } | WeightExpr::Exp(of) => {
            own().saturating_add(computed_for(of, tensor))
        }
        WeightExpr::Concat { of, .. } | WeightExpr::Stack(of) => {
            of.iter().fold(own(), |sum, part| sum.saturating_add(computed_for(part, tensor)))
        }
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

/// Refuses lists and texts that are longer than any model needs: what reads answers takes time for each.
fn bounded(path: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) if text.len() > LONGEST_TEXT => {
            Err(format!("{path}: expected at most {LONGEST_TEXT} bytes, found {}", text.len()))
        }
        Value::Array(entries) if entries.len() > MOST_ENTRIES => {
            Err(format!("{path}: expected at most {MOST_ENTRIES} entries, found {}", entries.len()))
        }
        Value::Array(entries) => {
            entries.iter().enumerate().try_for_each(|(i, entry)| bounded(&format!("{path}[{i}]"), entry))
        }
        Value::Object(fields) => {
            let mut fields = fields.iter().filter(|(name, _)| *name != GRAMMAR);
            fields.try_for_each(|(name, field)| bounded(&format!("{path}.{name}"), field))
        }
        _ => Ok(()),
    }
}

/// Refuses marks without anything to be seen: they would be found everywhere.
fn marks(chat: &ChatFormat) -> Result<(), String> {
    let visible = |path: String, text: &str| match text.trim().is_empty() {
        true => Err(format!("{path}: expected a text with more than white space")),
        false => Ok(()),
    };
    for (name, texts) in
        [("stop_tokens", &chat.stop_tokens), ("stop_texts", &chat.stop_texts), ("hidden", &chat.hidden)]
    {
        texts.iter().enumerate().try_for_each(|(i, text)| visible(format!("chat.{name}[{i}]"), text))?;
    }
    for (i, Reasoning { open, close, .. }) in chat.reasoning.iter().enumerate() {
        visible(format!("chat.reasoning[{i}].open"), open)?;
        visible(format!("chat.reasoning[{i}].close"), close)?;
    }
    chat.header.iter().try_for_each(|header| {
        visible("chat.header.before".into(), &header.before)?;
        visible("chat.header.behind".into(), &header.behind)
    })
}

type Tensor<'a> = &'a dyn Fn(&str) -> Option<Vec<usize>>;

fn graph(graph: &Graph, tensor: Tensor<'_>) -> Result<(), String> {
    check(graph).map_err(|e| e.to_string())?;
    weights(graph, tensor)
}

fn weights(graph: &Graph, tensor: Tensor<'_>) -> Result<(), String> {
    let (nodes, count) = (graph.nodes.len(), graph.weights.len());
    if nodes > MOST_NODES || count > MOST_NODES {
        return Err(format!(
            "graph `{}`: expected at most {MOST_NODES} nodes and weights, found {nodes} and {count}",
            graph.name
        ));
    }
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
