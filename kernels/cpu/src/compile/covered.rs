//! Which ops and attributes this backend computes. What it does not is refused: ignoring an attribute makes a model
//! silently wrong.

use bantam_backend::CompileError;
use bantam_graph::{Attention, Checked, Graph, Mask, Node, Op, Rows};

type Covered = Result<(), String>;

/// Whether all of a graph is covered.
pub(crate) fn covered(checked: &Checked<'_>) -> Result<(), CompileError> {
    let node = |node: &Node| {
        op(&node.op, checked.graph).map_err(|why| CompileError::Unsupported { node: node.name.clone(), why })
    };
    checked.graph.nodes.iter().try_for_each(node)
}

/// Whether an op with its attributes is covered.
fn op(op: &Op, graph: &Graph) -> Covered {
    match op {
        Op::Input { .. }
        | Op::Store { .. }
        | Op::Pool(_)
        | Op::ShortConv(_)
        | Op::DeltaRule(_)
        | Op::Ssm(_)
        | Op::Embed(_)
        | Op::Lookup(_)
        | Op::NgramHash(_)
        | Op::Dot { .. }
        | Op::StreamGates(_)
        | Op::StreamCollapse(_)
        | Op::StreamUpdate(_)
        | Op::Linear(_)
        | Op::Norm(_)
        | Op::Rope(_)
        | Op::Activate { .. }
        | Op::Glu(_)
        | Op::Add { .. }
        | Op::Mul { .. }
        | Op::Scale { .. }
        | Op::Affine(_)
        | Op::Softcap { .. }
        | Op::Slice(_)
        | Op::Concat(_)
        | Op::Route(_)
        | Op::Experts(_)
        | Op::Select { to: Rows::Logits | Rows::Tokens, .. } => Ok(()),
        Op::Attention(o) => attention(o, graph),
        _ => Err(lacking("this op")),
    }
}

pub(super) fn lacking(what: &str) -> String {
    format!("the CPU backend does not compute {what}")
}

fn all(conditions: &[(bool, &str)]) -> Covered {
    match conditions.iter().find(|(covered, _)| !covered) {
        Some((_, what)) => Err(lacking(what)),
        None => Ok(()),
    }
}

fn attention(o: &Attention, graph: &Graph) -> Covered {
    let states = std::iter::once(&o.k_state).chain(&o.v_state);
    let lent = states.filter_map(|name| graph.state(name)).any(|state| state.alias.is_some());
    all(&[
        (!lent, "attention to another graph's states"),
        (o.v_state.is_some(), "values that lie in the keys"),
        (o.mask == Mask::Causal, "this mask"),
        (o.sinks.is_none(), "sinks"),
        (o.select.is_none() && o.compressed.is_none(), "selected or compressed keys"),
    ])
}
