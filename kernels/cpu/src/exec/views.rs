//! Parts of rows, and rows side by side.

use super::{GRAIN, turn::Turn};
use crate::compile::ir::{Cutting, ValueId};

/// Copies a part of each run of each row.
pub(super) fn slice(turn: &Turn<'_>, x: ValueId, cutting: &Cutting) {
    let Cutting { groups, start, len } = *cutting;
    let run = turn.frame.width(x) / groups;
    let items = turn.member.share(turn.rows() * groups, GRAIN.div_ceil(len));
    let from = turn.read::<f32>(x);
    for (out, item) in turn.own::<f32>(items.clone(), len).chunks_exact_mut(len).zip(items) {
        out.copy_from_slice(&from[item * run + start..][..len]);
    }
}

/// Puts the runs of all parts side by side.
pub(super) fn concat(turn: &Turn<'_>, parts: &[ValueId], groups: usize) {
    let run = turn.width() / groups;
    let items = turn.member.share(turn.rows() * groups, GRAIN.div_ceil(run));
    for (out, item) in turn.own::<f32>(items.clone(), run).chunks_exact_mut(run).zip(items) {
        let mut rest = out;
        for part in parts {
            let len = turn.frame.width(*part) / groups;
            let (to, behind) = rest.split_at_mut(len);
            to.copy_from_slice(&turn.read::<f32>(*part)[item * len..][..len]);
            rest = behind;
        }
    }
}
