//! Which ops and attributes this backend computes. What it does not is refused: ignoring an attribute makes a model
//! silently wrong.

use bantam_backend::CompileError;
use bantam_graph::{
    Act, Attention, Checked, Embed, Experts, Glu, Linear, Mask, Norm, NormKind, Op, Pairing, Rope, Route, Rows, Scoring,
};

type Covered = Result<(), String>;

/// Whether all of a graph is covered.
pub(crate) fn covered(checked: &Checked<'_>) -> Result<(), CompileError> {
    checked.graph.nodes.iter().try_for_each(|node| {
        op(&node.op, checked).map_err(|why| CompileError::Unsupported { node: node.name.clone(), why })
    })
}

/// Whether an op with its attributes is covered.
fn op(op: &Op, checked: &Checked<'_>) -> Covered {
    let width = |name: &str| checked.types.get(name).map(|t| t.width);
    match op {
        Op::Input { .. }
        | Op::Store { .. }
        | Op::Pool(_)
        | Op::ShortConv(_)
        | Op::DeltaRule(_)
        | Op::Ssm(_)
        | Op::Add { .. }
        | Op::Softcap { .. }
        | Op::Select { to: Rows::Logits | Rows::Tokens, .. } => Ok(()),
        Op::Embed(Embed { ids, .. }) => all(&[(width(ids) == Some(1), "several ids in a row")]),
        Op::Linear(Linear { weight, runs, .. }) => {
            let axes = checked.graph.weight(weight).map(|w| w.shape.len());
            all(&[(axes == Some(2), "a matrix per head"), (*runs == 1, "a matrix for several runs")])
        }
        Op::Norm(o) => norm(o, checked),
        Op::Rope(o) => rope(o),
        Op::Attention(o) => attention(o),
        Op::Activate { act, .. } => activation(*act),
        Op::Glu(Glu { act, limit, .. }) => activation(*act).and_then(|()| all(&[(limit.is_none(), "limits")])),
        Op::Mul { a, b } => {
            let per_head = width(b) != Some(1) && width(b) != width(a);
            all(&[(!per_head, "a factor per head")])
        }
        Op::Scale { offset, .. } => all(&[(*offset == 0.0, "an offset")]),
        Op::Route(o) => route(o),
        Op::Experts(o) => experts(o),
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

fn norm(o: &Norm, checked: &Checked<'_>) -> Covered {
    let entries = o.weight.as_deref().and_then(|w| checked.graph.weight(w)).and_then(|w| w.shape.first().copied());
    let shared = o.group.is_none() || entries.is_none() || entries == o.group;
    all(&[(o.kind == NormKind::Rms, "this norm"), (shared, "a norm weight per group")])
}

fn rope(o: &Rope) -> Covered {
    all(&[
        (o.pairing != Pairing::HeadHalves, "this pairing"),
        (o.offset == 0, "a rotation behind an offset"),
        (!o.inverse, "an inverse rotation"),
    ])
}

fn attention(o: &Attention) -> Covered {
    all(&[
        (o.k.is_some() && o.v.is_some(), "attention to keys that others store, or that hold the values"),
        (o.mask == Mask::Causal, "this mask"),
        (o.sinks.is_none(), "sinks"),
        (o.select.is_none() && o.compressed.is_none(), "selected or compressed keys"),
    ])
}

fn activation(act: Act) -> Covered {
    all(&[(!matches!(act, Act::Softplus | Act::SignedSqrt), "this activation")])
}

fn route(o: &Route) -> Covered {
    all(&[
        (o.scoring == Scoring::Softmax, "this scoring"),
        (o.bias.is_none() && o.groups.is_none() && o.ids.is_none(), "a biased, grouped or given choice"),
    ])
}

fn experts(o: &Experts) -> Covered {
    activation(o.act)?;
    all(&[
        (o.gate.is_some() && o.down.is_some(), "experts of fewer than three matrices"),
        (o.limit.is_none() && o.scales.is_none(), "limits and scales of experts"),
    ])
}
