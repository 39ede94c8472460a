//! Attention, and the choice of what it sees.

use bantam_graph::{Attention, Mask, Rows, TopKeys};

use super::{Lowered, Lowering, Origin};
use crate::{
    attention::sight::{CompressedSight, Own, Sight},
    compile::ir::{self, Attend, Beside, Best, ValueId},
};

impl Lowering<'_> {
    pub(super) fn attention(&mut self, o: &Attention) -> Lowered<ir::Op> {
        let k = self.slot(&o.k_state)?;
        let v = o.v_state.as_deref().map(|state| self.slot(state)).transpose()?;
        let q = self.value(&o.q)?;
        let (keys, values) = (self.optional_value(&o.k)?, self.optional_value(&o.v)?);
        if o.stores() {
            for (x, state) in [(keys, Some(&o.k_state)), (values, o.v_state.as_ref())] {
                if let (Some(x), Some(state)) = (x, state) {
                    let slot = self.slot(state)?;
                    self.written(state, Rows::Tokens, ir::Op::Store { x, slot });
                }
            }
        }
        let own = match (o.mask, self.is_alias(&o.k_state)) {
            (Mask::Block, _) => Own::Beside,
            (Mask::Causal, true) => Own::Missing,
            (Mask::Causal, false) => Own::Stored,
        };
        let compressed = o.compressed.as_ref().map(|keys| self.slot(&keys.state)).transpose()?;
        let beside = Beside {
            chosen_blocks: self.chosen(o.select.as_ref().map(|s| (s.ids.as_str(), s.block)))?,
            chosen_rows: self.chosen(
                o.compressed
                    .as_ref()
                    .zip(compressed)
                    .and_then(|(keys, slot)| keys.select.as_deref().map(|ids| (ids, slot.stride))),
            )?,
            own: keys.filter(|_| own == Own::Beside).map(|keys| [keys, values.unwrap_or(keys)]),
        };
        let compressed_sight = o.compressed.as_ref().zip(compressed).map(|(keys, slot)| CompressedSight {
            stride: slot.stride,
            chosen: beside.chosen_rows.map(|ids| self.ir.values[ids].width),
            own: !self.is_alias(&keys.state),
        });
        let block = o.select.as_ref().map(|s| s.block);
        let attend = Attend {
            k,
            v,
            value_dim: v.map_or(o.value_dim.unwrap_or(k.dim), |v| v.dim),
            compressed,
            heads: o.heads,
            scale: o.scale,
            sinks: self.optional_vector(&o.sinks)?,
            sight: Sight { window: o.window, own, block, compressed: compressed_sight },
        };
        let states = [Some(&o.k_state), o.v_state.as_ref(), o.compressed.as_ref().map(|keys| &keys.state)];
        Ok(ir::Op::Attend { q, attend, beside, stores: self.writes(&states) })
    }

    pub(super) fn top_keys(&mut self, name: &str, o: &TopKeys) -> Lowered {
        let (q, weights, k) = (self.value(&o.q)?, self.optional_value(&o.weights)?, self.slot(&o.k_state)?);
        let sight = CompressedSight { stride: k.stride, chosen: None, own: !self.is_alias(&o.k_state) };
        let best = Best { k, heads: o.heads, scale: o.scale, count: o.count, sight };
        let stores = self.writes(&[Some(&o.k_state)]);
        let id = self.define(name, ir::Op::TopKeys { q, weights, best, stores })?;
        self.origins.insert(id, Origin::TopKeys(k.stride));
        Ok(())
    }

    /// Rows chosen for each query: they rise, and stand for as many tokens each as those that they choose.
    fn chosen(&self, ids: Option<(&str, usize)>) -> Lowered<Option<ValueId>> {
        let Some((name, tokens)) = ids else { return Ok(None) };
        let ids = self.value(name)?;
        match self.origins.get(&ids) {
            Some(Origin::TopKeys(stride)) if *stride == tokens => Ok(Some(ids)),
            _ => Err(format!("`{name}` must be the choice of a `top_keys` over a state of stride {tokens}")),
        }
    }

    /// The writes of states in this graph.
    fn writes(&self, states: &[Option<&String>]) -> Vec<ValueId> {
        states.iter().flatten().filter_map(|state| self.written.get(*state)).copied().collect()
    }

    fn is_alias(&self, state: &str) -> bool {
        self.checked.state(state).is_some_and(|state| state.alias.is_some())
    }
}
