//! Ops that look at one row at a time.

use bantam_backend::RopeTable;
use bantam_graph::{Affine, Concat, Embed, InputSource, Linear, Lookup, NgramHash, Norm, Rope, Slice};

use super::{Lowered, Lowering, Origin};
use crate::compile::ir::{self, Cutting, Entry, RunNorm, Turning, Value, ValueId};

impl Lowering<'_> {
    pub(super) fn embed(&mut self, o: &Embed) -> Lowered<ir::Op> {
        let ids = self.value(&o.ids)?;
        let table = *self.index.tables.get(&o.table).ok_or_else(|| format!("weight `{}` is not loaded", o.table))?;
        self.bound(ids, self.weights.tables[table].rows, &o.ids, &o.table)?;
        Ok(ir::Op::Embed { ids, table, scale: o.scale })
    }

    pub(super) fn lookup(&mut self, name: &str, o: &Lookup) -> Lowered {
        let ids = self.value(&o.ids)?;
        let table = *self.index.integers.get(&o.table).ok_or_else(|| format!("weight `{}` is not loaded", o.table))?;
        let (rows, below) = (self.weights.integers[table].rows, self.weights.integers[table].below);
        self.bound(ids, rows, &o.ids, &o.table)?;
        let id = self.define(name, ir::Op::Lookup { ids, table })?;
        self.origins.insert(id, Origin::Below(below));
        Ok(())
    }

    pub(super) fn ngram_hash(&mut self, name: &str, o: &NgramHash) -> Lowered {
        let places = o.ids.iter().map(|ids| self.value(ids)).collect::<Lowered<_>>()?;
        self.weights.hashes.push(o.clone());
        let id = self.define(name, ir::Op::NgramHash { places, hash: self.weights.hashes.len() - 1 })?;
        let below = o.heads.iter().map(|head| head.offset as usize + head.rows as usize).max().unwrap_or(0);
        self.origins.insert(id, Origin::Below(below));
        Ok(())
    }

    /// Sees to it that the integers `ids` are below the `rows` of a table.
    pub(super) fn bound(&mut self, ids: ValueId, rows: usize, name: &str, table: &str) -> Lowered {
        let tighten = |limit: &mut Option<usize>| *limit = Some(limit.map_or(rows, |l| l.min(rows)));
        match self.origins.get(&ids) {
            Some(Origin::Input(InputSource::TokenIds)) => tighten(&mut self.limits.tokens),
            Some(Origin::Input(InputSource::Positions)) => tighten(&mut self.limits.positions),
            Some(Origin::Below(n)) if *n <= rows => {}
            _ => return Err(format!("`{name}` may exceed the {rows} rows of `{table}`")),
        }
        Ok(())
    }

    pub(super) fn linear(&mut self, o: &Linear) -> Lowered<ir::Op> {
        let matrix = self.matrix(&o.weight)?;
        let x = self.value(&o.x)?;
        let bias = self.optional_vector(&o.bias)?;
        Ok(ir::Op::Linear { x: self.activations(x, matrix), matrix, bias, add: None, twice: false })
    }

    pub(super) fn norm(&mut self, o: &Norm) -> Lowered<ir::Op> {
        let x = self.value(&o.x)?;
        let weight = self.optional_vector(&o.weight)?;
        let group = o.group.unwrap_or(self.ir.values[x].width);
        Ok(ir::Op::Norm { x, norm: RunNorm { kind: o.kind, weight, eps: o.eps, group } })
    }

    pub(super) fn rope(&mut self, o: &Rope) -> Lowered<ir::Op> {
        let (x, positions) = (self.value(&o.x)?, self.value(&o.positions)?);
        let factors = self.optional_vector(&o.factors)?.map(|f| self.weights.vectors[f].as_slice());
        let table = RopeTable::new(o.dims, o.base, o.scaling.as_ref(), factors);
        let ropes = &mut self.weights.ropes;
        let rope = ropes.iter().position(|t| *t == table).unwrap_or_else(|| {
            ropes.push(table);
            ropes.len() - 1
        });
        let angles = *self.angles.entry((positions, rope)).or_insert_with(|| {
            let result = Value::new("", self.ir.values[positions].rows, o.dims, Entry::Float);
            self.ir.push(ir::Op::Angles { positions, rope }, result)
        });
        let turning = Turning { head_dim: o.head_dim, offset: o.offset, pairing: o.pairing, inverse: o.inverse };
        Ok(ir::Op::Rope { x, angles, turning })
    }

    pub(super) fn affine(&mut self, o: &Affine) -> Lowered<ir::Op> {
        let (scale, bias) = (self.optional_vector(&o.scale)?, self.optional_vector(&o.bias)?);
        Ok(ir::Op::Affine { x: self.value(&o.x)?, scale, bias })
    }

    pub(super) fn slice(&mut self, o: &Slice) -> Lowered<ir::Op> {
        let cutting = Cutting { groups: o.groups, start: o.start, len: o.len };
        Ok(ir::Op::Slice { x: self.value(&o.x)?, cutting })
    }

    pub(super) fn concat(&mut self, o: &Concat) -> Lowered<ir::Op> {
        let parts = o.parts.iter().map(|part| self.value(part)).collect::<Lowered<_>>()?;
        Ok(ir::Op::Concat { parts, groups: o.groups })
    }

    pub(super) fn optional_vector(&self, name: &Option<String>) -> Lowered<Option<usize>> {
        name.as_deref().map(|name| self.vector(name)).transpose()
    }
}
