//! What the host computes before the device begins: ids and positions, integers looked up and hashed from them, and the rows
//! of tables that they name. Tables stay in the file's memory; a row costs a copy of its entries.

use std::sync::Arc;

use bantam_backend::WeightData;
use bantam_gguf::dequantize_row;
use bantam_graph::{Embed, InputSource, Lookup, NgramHash, Op};

use super::{Compiling, Fit, ir::Node, ir::ValueId};

/// A table of which single rows are read.
#[derive(Debug)]
pub(crate) struct HostTable {
    pub(crate) data: WeightData,
    pub(crate) rows: usize,
    pub(crate) width: usize,
}

/// A table of integers.
#[derive(Debug)]
pub(crate) struct IntegerTable {
    pub(crate) values: Vec<u32>,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// All entries are below this.
    pub(crate) below: usize,
}

/// What the host does for a value.
#[derive(Debug)]
pub(crate) enum HostOp {
    /// An input of the step.
    Input(InputSource),
    /// Rows of a table, times a factor.
    Embed { ids: ValueId, table: Arc<HostTable>, scale: f32 },
    /// Rows of a table of integers.
    Lookup { ids: ValueId, table: Arc<IntegerTable> },
    /// Hashes of the last tokens: the token, the one before, and so on.
    Hash { places: Vec<ValueId>, hash: NgramHash },
    /// The logit rows of a value over tokens.
    Select { x: ValueId },
}

/// Where a value comes from, and so what it can be, if it is the host's or integers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    Input(InputSource),
    /// Integers below this.
    Below(usize),
    /// Floats.
    Rows,
    /// Integers below this, that the device has.
    Chosen(usize),
    /// Rows of a state.
    TopKeys,
}

impl Compiling<'_> {
    /// What the host does for a node, if it is the host's.
    pub(super) fn host(&mut self, node: &Node) -> Fit<Option<HostOp>> {
        let (op, origin) = match &node.op {
            Op::Input { source } => (HostOp::Input(*source), Origin::Input(*source)),
            Op::Embed(o) if self.is_hosts(&o.ids)? => self.embed(o)?,
            Op::Lookup(o) if self.is_hosts(&o.ids)? => self.lookup(o)?,
            Op::NgramHash(o) => self.hash(o)?,
            Op::Select { x, .. } if self.is_hosts(x)? => {
                let x = self.id(x)?;
                (HostOp::Select { x }, self.origins.get(&x).copied().unwrap_or(Origin::Rows))
            }
            _ => return Ok(None),
        };
        self.origins.insert(node.results[0], origin);
        Ok(Some(op))
    }

    fn is_hosts(&self, name: &str) -> Fit<bool> {
        Ok(self.has(self.id(name)?))
    }

    /// Whether the host has a value.
    pub(super) fn has(&self, value: ValueId) -> bool {
        matches!(self.origins.get(&value), Some(Origin::Input(_) | Origin::Below(_) | Origin::Rows))
    }

    fn embed(&mut self, o: &Embed) -> Fit<(HostOp, Origin)> {
        let ids = self.id(&o.ids)?;
        let table = self.around.weights.table(self.around.graph, &o.table)?;
        self.bound(ids, table.rows, &o.ids, &o.table)?;
        Ok((HostOp::Embed { ids, table, scale: o.scale }, Origin::Rows))
    }

    fn lookup(&mut self, o: &Lookup) -> Fit<(HostOp, Origin)> {
        let ids = self.id(&o.ids)?;
        let table = self.around.weights.integers(self.around.graph, &o.table)?;
        self.bound(ids, table.rows, &o.ids, &o.table)?;
        let below = table.below;
        Ok((HostOp::Lookup { ids, table }, Origin::Below(below)))
    }

    fn hash(&mut self, o: &NgramHash) -> Fit<(HostOp, Origin)> {
        let places = o.ids.iter().map(|name| self.id(name)).collect::<Fit<Vec<_>>>()?;
        if let Some(missing) = places.iter().zip(&o.ids).find(|(place, _)| !self.has(**place)) {
            return Err(format!("`{}` is computed on the device; n-grams are hashed on the host", missing.1));
        }
        let below = o.heads.iter().map(|head| head.offset as usize + head.rows as usize).max().unwrap_or(0);
        Ok((HostOp::Hash { places, hash: o.clone() }, Origin::Below(below)))
    }

    /// Sees to it that ids stay below the rows of a table: by what a step may hold, or by where they come from.
    pub(super) fn bound(&mut self, ids: ValueId, rows: usize, name: &str, table: &str) -> Fit {
        let tighten = |limit: &mut Option<usize>| *limit = Some(limit.map_or(rows, |l| l.min(rows)));
        match self.origins.get(&ids) {
            Some(Origin::Input(InputSource::TokenIds)) => tighten(&mut self.limits.tokens),
            Some(Origin::Input(InputSource::Positions)) => tighten(&mut self.limits.positions),
            Some(Origin::Below(n) | Origin::Chosen(n)) if *n <= rows => {}
            _ => return Err(format!("`{name}` may exceed the {rows} rows of `{table}`")),
        }
        Ok(())
    }

    /// Sees to it that integers are below `limit`, or fails with `why`.
    pub(super) fn below(&self, ids: ValueId, limit: usize, why: &str) -> Fit {
        match self.origins.get(&ids) {
            Some(Origin::Below(n) | Origin::Chosen(n)) if *n <= limit => Ok(()),
            _ => Err(why.into()),
        }
    }
}

impl HostTable {
    /// Writes the bits of a row, times `scale`.
    pub(crate) fn row(&self, id: u32, scale: f32, scratch: &mut Vec<f32>, out: &mut Vec<u32>) -> Result<(), String> {
        scratch.resize(self.width, 0.0);
        dequantize_row(self.data.ty, &self.data.bytes, id as usize, scratch)
            .map_err(|e| format!("row {id} of {}: {e}", self.rows))?;
        out.extend(scratch.iter().map(|x| (if scale == 1.0 { *x } else { x * scale }).to_bits()));
        Ok(())
    }
}

/// The hashes of a row whose token, the one before and so on are `ids`.
pub(crate) fn hashes(hash: &NgramHash, ids: &[u32], out: &mut Vec<u32>) {
    // Tokens from the nearest boundary on count as the boundary; the token itself cuts nothing.
    let cut = (1..ids.len()).find(|place| ids[*place] == hash.boundary).unwrap_or(ids.len());
    let term = |place: usize| {
        let id = if place < cut { ids[place] } else { hash.boundary };
        u64::from(id).wrapping_mul(hash.multipliers[place])
    };
    out.extend(hash.heads.iter().map(|head| {
        let mixed = (0..head.order).fold(0, |mixed, place| mixed ^ term(place));
        // Below `rows`, so it fits.
        head.offset + (mixed % u64::from(head.rows)) as u32
    }));
}
