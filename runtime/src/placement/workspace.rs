//! What the buffers of a step take: the values that are live at once, and what ops need for themselves.

use std::collections::HashMap;

use bantam_graph::{Checked, Node, Op, Rows};

use super::WorkspaceSizes;

/// Bytes of an entry, f32 or integer.
const ENTRY: u64 = 4;

/// Bytes per token row and per logit row.
type Bytes = (u64, u64);

/// The buffers of a graph whose nodes are computed one after the other, each value's being free again behind the last node
/// that reads it.
pub(super) fn workspace(checked: &Checked<'_>) -> WorkspaceSizes {
    let nodes = &checked.graph.nodes;
    let mut last: HashMap<&str, usize> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        last.extend(node.op.operands().into_iter().map(|name| (name, i)));
    }
    let kept = checked.graph.taps.iter().chain([&checked.graph.output]);
    last.extend(kept.map(|name| (name.as_str(), nodes.len())));
    let (mut live, mut points): (Bytes, Vec<Bytes>) = ((0, 0), Vec::new());
    let mut ends: HashMap<usize, Bytes> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for result in node.op.results(&node.name) {
            let bytes = value(checked, &result);
            live = add(live, bytes);
            let end = last.get(result.as_str()).copied().unwrap_or(i);
            let ending = ends.entry(end).or_default();
            *ending = add(*ending, bytes);
        }
        points.push(add(live, own(checked, node)));
        let (token, logit) = ends.remove(&i).unwrap_or_default();
        live = (live.0.saturating_sub(token), live.1.saturating_sub(logit));
    }
    WorkspaceSizes { points: greatest(points) }
}

fn add(a: Bytes, b: Bytes) -> Bytes {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

fn value(checked: &Checked<'_>, name: &str) -> Bytes {
    let Some(ty) = checked.types.get(name) else { return (0, 0) };
    in_space(ty.rows, (ty.width as u64).saturating_mul(ENTRY))
}

fn in_space(rows: Rows, bytes: u64) -> Bytes {
    match rows {
        // A block that a step closes has a token of the step.
        Rows::Tokens | Rows::Strided { .. } => (bytes, 0),
        Rows::Logits => (0, bytes),
    }
}

/// What an op needs beside its operands and results: operands in 8 bits with their scales, the inner rows of experts.
fn own(checked: &Checked<'_>, node: &Node) -> Bytes {
    let width = |name: &str| checked.types.get(name).map_or(0, |ty| ty.width as u64);
    let rows = |name: &str| checked.types.get(name).map_or(Rows::Tokens, |ty| ty.rows);
    let codes = |width: u64| width.saturating_add(width / 8);
    match &node.op {
        Op::Linear(o) => in_space(rows(&o.x), codes(width(&o.x))),
        Op::Experts(o) => {
            let shape = checked.weight(&o.up).map_or(&[][..], |weight| &weight.shape);
            let inner = shape.get(1).map_or(0, |inner| *inner as u64);
            let matrices = if o.gate.is_some() { 2 } else { 1 };
            let expert = inner.saturating_mul(matrices).saturating_add(width(&node.name)).saturating_mul(ENTRY);
            in_space(rows(&o.x), expert.saturating_add(codes(inner)).saturating_mul(width(&o.ids)))
        }
        _ => (0, 0),
    }
}

/// Points that no other exceeds in both.
fn greatest(mut points: Vec<Bytes>) -> Vec<Bytes> {
    points.sort_unstable_by_key(|(token, logit)| (std::cmp::Reverse(*token), std::cmp::Reverse(*logit)));
    let mut kept: Vec<Bytes> = Vec::new();
    for point in points {
        if kept.last().is_none_or(|last| point.1 > last.1) {
            kept.push(point);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_others_exceed_are_left_out() {
        assert_eq!(greatest(vec![(1, 5), (3, 2), (3, 1), (2, 2), (0, 6), (1, 5)]), [(3, 2), (1, 5), (0, 6)]);
        let sizes = WorkspaceSizes { points: vec![(3, 2), (1, 5)] };
        assert_eq!([sizes.bytes(10, 1), sizes.bytes(1, 10)], [32, 51]);
    }
}
