//! What an op refers to by name.

use super::Op;

/// Names given directly and names that may be missing, in one list.
fn list<'o>(given: &[&'o str], optional: &[&'o Option<String>]) -> Vec<&'o str> {
    given.iter().copied().chain(optional.iter().filter_map(|name| name.as_deref())).collect()
}

impl Op {
    /// Full names of the values that a node of this name yields with this op.
    pub fn results(&self, node: &str) -> Vec<String> {
        let parts: &[&str] = match self {
            Op::Route(_) => &["ids", "weights"],
            Op::StreamGates(_) => &["pre", "post", "mix"],
            Op::Store { .. } => &[],
            _ => return vec![node.into()],
        };
        parts.iter().map(|part| format!("{node}.{part}")).collect()
    }

    /// Names of the values that the op reads.
    pub fn operands(&self) -> Vec<&str> {
        match self {
            Op::Input { .. } => vec![],
            Op::Embed(o) => vec![&o.ids],
            Op::Lookup(o) => vec![&o.ids],
            Op::NgramHash(o) => o.ids.iter().map(String::as_str).collect(),
            Op::Linear(o) => vec![&o.x],
            Op::Norm(o) => vec![&o.x],
            Op::Rope(o) => vec![&o.x, &o.positions],
            Op::Attention(o) => {
                let mut names = list(&[&o.q], &[&o.k, &o.v]);
                names.extend(o.select.iter().map(|select| select.ids.as_str()));
                names.extend(o.compressed.iter().filter_map(|keys| keys.select.as_deref()));
                names
            }
            Op::TopKeys(o) => list(&[&o.q], &[&o.weights]),
            Op::Pool(o) => list(&[&o.x], &[&o.gate]),
            Op::ShortConv(o) => vec![&o.x],
            Op::DeltaRule(o) => vec![&o.q, &o.k, &o.v, &o.decay, &o.beta],
            Op::Ssm(o) => vec![&o.x, &o.b, &o.c, &o.dt],
            Op::Glu(o) => vec![&o.gate, &o.up],
            Op::Add { a, b } | Op::Mul { a, b } | Op::Dot { a, b, .. } => vec![a, b],
            Op::Affine(o) => vec![&o.x],
            Op::Slice(o) => vec![&o.x],
            Op::Concat(o) => o.parts.iter().map(String::as_str).collect(),
            Op::Custom(o) => o.x.iter().map(String::as_str).collect(),
            Op::Store { x, .. }
            | Op::Activate { x, .. }
            | Op::Scale { x, .. }
            | Op::Softcap { x, .. }
            | Op::Select { x, .. } => vec![x],
            Op::Route(o) => list(&[&o.scores], &[&o.ids]),
            Op::Experts(o) => vec![&o.x, &o.ids, &o.weights],
            Op::StreamGates(o) => vec![&o.x],
            Op::StreamCollapse(o) => list(&[&o.x], &[&o.weights]),
            Op::StreamUpdate(o) => list(&[&o.y, &o.post], &[&o.x, &o.mix]),
        }
    }

    /// The names that [`Op::operands`] lists, to be changed; in another order.
    pub fn operands_mut(&mut self) -> Vec<&mut String> {
        let mut names: Vec<&mut String> = Vec::new();
        match self {
            Op::Input { .. } => {}
            Op::Embed(o) => names.push(&mut o.ids),
            Op::Lookup(o) => names.push(&mut o.ids),
            Op::NgramHash(o) => names.extend(&mut o.ids),
            Op::Linear(o) => names.push(&mut o.x),
            Op::Norm(o) => names.push(&mut o.x),
            Op::Rope(o) => names.extend([&mut o.x, &mut o.positions]),
            Op::Attention(o) => {
                names.push(&mut o.q);
                names.extend(o.k.iter_mut().chain(&mut o.v));
                names.extend(o.select.iter_mut().map(|select| &mut select.ids));
                names.extend(o.compressed.iter_mut().filter_map(|keys| keys.select.as_mut()));
            }
            Op::TopKeys(o) => names.extend([Some(&mut o.q), o.weights.as_mut()].into_iter().flatten()),
            Op::Pool(o) => names.extend([Some(&mut o.x), o.gate.as_mut()].into_iter().flatten()),
            Op::ShortConv(o) => names.push(&mut o.x),
            Op::DeltaRule(o) => names.extend([&mut o.q, &mut o.k, &mut o.v, &mut o.decay, &mut o.beta]),
            Op::Ssm(o) => names.extend([&mut o.x, &mut o.b, &mut o.c, &mut o.dt]),
            Op::Glu(o) => names.extend([&mut o.gate, &mut o.up]),
            Op::Add { a, b } | Op::Mul { a, b } | Op::Dot { a, b, .. } => names.extend([a, b]),
            Op::Affine(o) => names.push(&mut o.x),
            Op::Slice(o) => names.push(&mut o.x),
            Op::Concat(o) => names.extend(&mut o.parts),
            Op::Custom(o) => names.extend(&mut o.x),
            Op::Store { x, .. }
            | Op::Activate { x, .. }
            | Op::Scale { x, .. }
            | Op::Softcap { x, .. }
            | Op::Select { x, .. } => names.push(x),
            Op::Route(o) => names.extend([Some(&mut o.scores), o.ids.as_mut()].into_iter().flatten()),
            Op::Experts(o) => names.extend([&mut o.x, &mut o.ids, &mut o.weights]),
            Op::StreamGates(o) => names.push(&mut o.x),
            Op::StreamCollapse(o) => names.extend([Some(&mut o.x), o.weights.as_mut()].into_iter().flatten()),
            Op::StreamUpdate(o) => {
                names.extend([&mut o.y, &mut o.post]);
                names.extend(o.x.iter_mut().chain(&mut o.mix));
            }
        }
        names
    }

    /// Names of the weights that the op reads.
    pub fn weights(&self) -> Vec<&str> {
        match self {
            Op::Embed(o) => vec![&o.table],
            Op::Lookup(o) => vec![&o.table],
            Op::Linear(o) => list(&[&o.weight], &[&o.bias]),
            Op::Norm(o) => list(&[], &[&o.weight]),
            Op::Rope(o) => list(&[], &[&o.factors]),
            Op::Attention(o) => list(&[], &[&o.sinks]),
            Op::Pool(o) => list(&[], &[&o.bias]),
            Op::ShortConv(o) => list(&[&o.weight], &[&o.bias]),
            Op::Ssm(o) => list(&[&o.a], &[&o.d]),
            Op::Affine(o) => list(&[], &[&o.scale, &o.bias]),
            Op::Route(o) => list(&[], &[&o.bias]),
            Op::Experts(o) => {
                let mut names = list(&[&o.up], &[&o.gate, &o.down]);
                names.extend(o.scales.iter().flat_map(|s| list(&[], &[&s.gate, &s.up, &s.down])));
                names
            }
            Op::StreamGates(o) => vec![&o.scale, &o.base],
            Op::Custom(o) => o.weights.iter().map(String::as_str).collect(),
            _ => vec![],
        }
    }

    /// Names of the states that the op reads or writes.
    pub fn states(&self) -> Vec<&str> {
        match self {
            Op::Attention(o) => {
                let mut names = list(&[&o.k_state], &[&o.v_state]);
                names.extend(o.compressed.iter().map(|keys| keys.state.as_str()));
                names
            }
            Op::TopKeys(o) => vec![&o.k_state],
            _ => self.written_states(),
        }
    }

    /// Names of the states that the op writes, recurrent ones too.
    pub fn written_states(&self) -> Vec<&str> {
        match self {
            Op::Attention(o) if o.stores() => list(&[&o.k_state], &[&o.v_state]),
            Op::Pool(o) => vec![&o.state],
            Op::Store { state, .. } => vec![state],
            Op::ShortConv(o) => vec![&o.state],
            Op::DeltaRule(o) => vec![&o.state],
            Op::Ssm(o) => vec![&o.state],
            _ => vec![],
        }
    }

    /// Whether the op writes state, so that it must run for every token even if no logits are wanted.
    pub fn writes_state(&self) -> bool {
        !self.written_states().is_empty()
    }
}

impl super::Attention {
    /// Whether the step's keys and values are stored.
    pub fn stores(&self) -> bool {
        self.k.is_some() && self.mask == super::Mask::Causal
    }
}
