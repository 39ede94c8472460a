//! Ops from outside.

use bantam_graph::Custom;

use super::{Lowered, Lowering};
use crate::compile::{ir, weights::CustomNode};

impl Lowering<'_> {
    pub(super) fn custom(&mut self, node: &str, o: &Custom) -> Lowered<ir::Op> {
        let ops = self.ops.ok_or_else(|| format!("op `{}` is a plugin's, and no such ops are allowed here", o.op))?;
        let x = o.x.iter().map(|x| self.value(x)).collect::<Lowered<Vec<_>>>()?;
        let widths: Vec<usize> = x.iter().map(|x| self.ir.values[*x].width).collect();
        let shape = |name: &String| self.checked.weight(name).map(|weight| weight.shape.as_slice());
        let shapes: Vec<&[usize]> = o.weights.iter().filter_map(shape).collect();
        let op = ops.make(o, &widths, &shapes).map_err(|why| format!("op `{}`: {why}", o.op))?;
        let weights = o.weights.iter().map(|name| self.vector(name)).collect::<Lowered<_>>()?;
        self.weights.customs.push(CustomNode { node: node.into(), op, weights });
        Ok(ir::Op::Custom { x, custom: self.weights.customs.len() - 1 })
    }
}
