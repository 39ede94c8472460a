//! Routing and experts.

use bantam_graph::{Experts, Route};

use super::{Lowered, Lowering, Origin};
use crate::{
    compile::ir::{self, Choose, Entry, Gating, Value, ValueId},
    exec::{experts, route},
};

impl Lowering<'_> {
    pub(super) fn route(&mut self, name: &str, o: &Route) -> Lowered {
        let scores = self.value(&o.scores)?;
        let (rows, experts) = (self.ir.values[scores].rows, self.ir.values[scores].width);
        let ids = self.optional_value(&o.ids)?;
        if let Some(ids) = ids {
            self.below(ids, experts, &format!("`{}` may exceed the {experts} experts", o.scores))?;
        }
        let choose = Choose {
            used: o.used,
            scoring: o.scoring,
            bias: self.optional_vector(&o.bias)?,
            groups: o.groups,
            normalize: o.normalize,
            scale: o.scale,
        };
        let mut results = vec![self.result(&format!("{name}.ids"))?, self.result(&format!("{name}.weights"))?];
        self.origins.insert(results[0], Origin::Below(experts));
        let keys = route::keys(experts, &choose);
        for (width, entry) in [(experts, Entry::Float), (keys, Entry::Integer)] {
            results.push(self.ir.value(Value::new("", rows, width, entry)));
        }
        self.ir.nodes.push(ir::Node { op: ir::Op::Route { scores, ids, choose }, results });
        Ok(())
    }

    /// Sees to it that the integers `ids` are below `limit`, or fails with `why`.
    fn below(&self, ids: ValueId, limit: usize, why: &str) -> Lowered {
        match self.origins.get(&ids) {
            Some(Origin::Below(n)) if *n <= limit => Ok(()),
            _ => Err(why.into()),
        }
    }

    pub(super) fn experts(&mut self, o: &Experts) -> Lowered<ir::Op> {
        let (x, ids, weights) = (self.value(&o.x)?, self.value(&o.ids)?, self.value(&o.weights)?);
        let optional = |name: &Option<String>| name.as_deref().map(|name| self.matrix(name)).transpose();
        let (gate, up, down) = (optional(&o.gate)?, self.matrix(&o.up)?, optional(&o.down)?);
        let scales = o.scales.clone().unwrap_or_default();
        let [gate_scale, up_scale, down_scale] = [
            self.optional_vector(&scales.gate)?,
            self.optional_vector(&scales.up)?,
            self.optional_vector(&scales.down)?,
        ];
        let experts = self.weights.matrices[up].matrices();
        self.below(ids, experts, &format!("`{}` may exceed the {experts} experts of `{}`", o.ids, o.up))?;
        let (rows, used) = (self.ir.values[x].rows, self.ir.values[ids].width);
        let assigned = Value { extra: experts::header(experts), ..Value::new("", rows, 2 * used, Entry::Integer) };
        let assigned = self.ir.push(ir::Op::Assign { ids, experts }, assigned);
        let multiply = |this: &mut Self, x: ValueId, matrix: usize, scale: Option<usize>, own_rows: bool| {
            let x = this.activations(x, matrix);
            let width = this.weights.matrices[matrix].rows();
            let result = Value { per_row: used, ..Value::new("", rows, width, Entry::Float) };
            this.ir.push(ir::Op::Experts { x, assigned, matrix, scale, own_rows }, result)
        };
        let up = multiply(self, x, up, up_scale, false);
        let inner = self.ir.values[up].clone();
        let act = match gate {
            Some(gate) => {
                let gate = multiply(self, x, gate, gate_scale, false);
                ir::Op::Glu { gate, up, gating: Gating { act: o.act, limit: o.limit } }
            }
            None => ir::Op::Activate { x: up, act: o.act },
        };
        let inner = self.ir.push(act, inner);
        let y = down.map_or(inner, |down| multiply(self, inner, down, down_scale, true));
        Ok(ir::Op::Combine { y, weights })
    }
}
