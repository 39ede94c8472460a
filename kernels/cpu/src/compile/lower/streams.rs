//! Hyper-connections.

use bantam_graph::{StreamCollapse, StreamGates, StreamUpdate};

use super::{Lowered, Lowering};
use crate::compile::ir::{self, Entry, StreamGating, Value, ValueId};

impl Lowering<'_> {
    pub(super) fn stream_gates(&mut self, name: &str, o: &StreamGates) -> Lowered {
        let x = self.value(&o.x)?;
        let (scale, base) = (self.vector(&o.scale)?, self.vector(&o.base)?);
        let mut results = Vec::new();
        for part in ["pre", "post", "mix"] {
            results.push(self.result(&format!("{name}.{part}"))?);
        }
        let (rows, width) = (self.ir.values[x].rows, self.ir.values[x].width);
        results.push(self.ir.value(Value::new("", rows, width, Entry::Float)));
        let gating = StreamGating { scale, base, streams: o.streams, iterations: o.iterations, eps: o.eps };
        self.ir.nodes.push(ir::Node { op: ir::Op::StreamGates { x, gating }, results });
        Ok(())
    }

    pub(super) fn stream_collapse(&mut self, o: &StreamCollapse) -> Lowered<ir::Op> {
        let weights = self.optional_value(&o.weights)?;
        Ok(ir::Op::StreamCollapse { x: self.value(&o.x)?, weights, streams: o.streams })
    }

    pub(super) fn stream_update(&mut self, o: &StreamUpdate) -> Lowered<ir::Op> {
        let (x, mix) = (self.optional_value(&o.x)?, self.optional_value(&o.mix)?);
        Ok(ir::Op::StreamUpdate { x, y: self.value(&o.y)?, post: self.value(&o.post)?, mix })
    }

    pub(super) fn optional_value(&self, name: &Option<String>) -> Lowered<Option<ValueId>> {
        name.as_deref().map(|name| self.value(name)).transpose()
    }
}
