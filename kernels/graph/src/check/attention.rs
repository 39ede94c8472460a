//! Attention and what prepares its keys.

use super::{
    Checker, Fit, ValueType,
    fit::{extent, positive, product, whole},
};
use crate::{Attention, BlockSelection, CompressedKeys, Mask, Pool, Rows, State, StateKind, StateType, TopKeys};

impl<'g> Checker<'g> {
    /// Keys or values of the step, as wide as their state.
    fn step_rows(&self, value: &str, state: &State) -> Fit {
        let tokens = ValueType { rows: Rows::Tokens, width: 1, integer: false };
        self.float_of(value, tokens, state.width()).map_err(|why| format!("{why}, for state `{}`", state.name))
    }

    /// Operands must be rows over tokens where an op looks at a sequence.
    pub(super) fn over_tokens(&self, name: &str) -> Fit<ValueType> {
        let t = self.float(name)?;
        if t.rows == Rows::Tokens { Ok(t) } else { Err(format!("`{name}` must be rows over tokens, found {t}")) }
    }

    pub(super) fn attention(&mut self, name: &'g str, o: &'g Attention) -> Fit<ValueType> {
        let q = self.over_tokens(&o.q)?;
        let keys = self.state(&o.k_state)?;
        let values = o.v_state.as_deref().map(|v| self.state(v)).transpose()?;
        let value_dim = value_dim(o, keys, values)?;
        whole("heads", o.heads, keys.heads)?;
        if o.heads.checked_mul(keys.dim) != Some(q.width) {
            return Err(format!("`{}` must have {} heads of {}, found width {}", o.q, o.heads, keys.dim, q.width));
        }
        positive("scale", o.scale)?;
        looks_back(o, keys)?;
        if let Some(sinks) = &o.sinks {
            self.weight(sinks, &[o.heads])?;
        }
        self.keys_and_values(name, o, keys, values)?;
        if let Some(BlockSelection { ids, block }) = &o.select {
            extent("block", *block)?;
            self.integer_of(ids, q, None)?;
        }
        if let Some(compressed) = &o.compressed {
            self.compressed(o, compressed, keys, q)?;
        }
        Ok(q.float(product("a row", o.heads, value_dim)?))
    }

    /// The step's own keys and values: where they come from, and where they go.
    fn keys_and_values(&mut self, name: &'g str, o: &'g Attention, keys: &State, values: Option<&State>) -> Fit {
        if o.v.is_some() != (o.k.is_some() && values.is_some()) {
            return Err("`v` is to be given if `k` is and there is a `v_state`, and only then".into());
        }
        if let Some(k) = &o.k {
            self.step_rows(k, keys)?;
        }
        if let (Some(v), Some(state)) = (&o.v, values) {
            self.step_rows(v, state)?;
        }
        if o.mask == Mask::Block && (o.k.is_none() || o.compressed.is_some() || o.select.is_some()) {
            return Err("a block mask needs the step's own `k`, and knows no selected or compressed keys".into());
        }
        let states = std::iter::once(o.k_state.as_str()).chain(o.v_state.as_deref());
        if o.stores() {
            return states.into_iter().try_for_each(|state| self.write(state, name));
        }
        std::iter::once(keys).chain(values).try_for_each(|state| self.read(state))
    }

    fn compressed(&self, o: &Attention, compressed: &CompressedKeys, keys: &State, q: ValueType) -> Fit {
        let state = self.state(&compressed.state)?;
        let StateKind::Strided { .. } = state.kind else {
            return Err(format!("state `{}` must be strided, found {}", state.name, state.kind));
        };
        self.read(state)?;
        if o.v_state.is_some() || (state.heads, state.dim) != (keys.heads, keys.dim) {
            return Err(format!(
                "compressed keys are their own values: expected no `v_state`, and in `{}` {} heads of {} as in `{}`",
                state.name, keys.heads, keys.dim, keys.name
            ));
        }
        compressed.select.as_deref().map_or(Ok(()), |ids| self.integer_of(ids, q, None))
    }

    pub(super) fn top_keys(&self, o: &TopKeys) -> Fit<ValueType> {
        let q = self.over_tokens(&o.q)?;
        let state = self.state(&o.k_state)?;
        let StateKind::Strided { .. } = state.kind else {
            return Err(format!("state `{}` must be strided, found {}", state.name, state.kind));
        };
        if state.heads != 1 || o.heads.checked_mul(state.dim) != Some(q.width) {
            return Err(format!(
                "`{}` must have {} heads of `{}`'s one, found width {} and {} × {}",
                o.q, o.heads, state.name, q.width, state.heads, state.dim
            ));
        }
        self.read(state)?;
        positive("scale", o.scale)?;
        extent("count", o.count)?;
        if let Some(weights) = &o.weights {
            self.float_of(weights, q, o.heads)?;
        }
        Ok(q.ids(o.count))
    }

    pub(super) fn pool(&mut self, name: &'g str, o: &'g Pool) -> Fit<ValueType> {
        let x = self.over_tokens(&o.x)?;
        extent("stride", o.stride)?;
        if let Some(gate) = &o.gate {
            self.float_of(gate, x, x.width)?;
        } else if o.bias.is_some() || o.overlap {
            return Err("a bias or an overlap needs a gate".into());
        }
        if let Some(bias) = &o.bias {
            self.weight(bias, &[o.stride, x.width])?;
        }
        let rows = product("the open blocks", o.stride, if o.overlap { 2 } else { 1 })?;
        let width = product("a row", x.width, if o.gate.is_some() { 2 } else { 1 })?;
        let state = self.state(&o.state)?;
        if state.kind != (StateKind::Window { len: rows }) || state.width() != width || state.dtype != StateType::F32 {
            return Err(format!(
                "state `{}` must be f32, {width} wide, of a window of {rows}, found {}, {} wide, of {}",
                state.name,
                if state.dtype == StateType::F32 { "f32" } else { "kv" },
                state.width(),
                state.kind
            ));
        }
        self.write(&o.state, name)?;
        let width = if o.overlap { whole("the halves", x.width, 2)? } else { x.width };
        Ok(ValueType { rows: Rows::Strided { stride: o.stride }, width, integer: false })
    }

    pub(super) fn store(&mut self, name: &'g str, x: &str, state: &'g str) -> Fit {
        let (t, s) = (self.float(x)?, self.state(state)?);
        let rows = match s.kind {
            StateKind::PerToken | StateKind::Window { .. } => Rows::Tokens,
            StateKind::Strided { stride } => Rows::Strided { stride },
        };
        if t.rows != rows || t.width != s.width() {
            return Err(format!("state `{state}` takes rows of {} over {rows}, `{x}` is {t}", s.width()));
        }
        self.write(state, name)
    }
}

/// Entries of a value head.
fn value_dim(o: &Attention, keys: &State, values: Option<&State>) -> Fit<usize> {
    if let StateKind::Strided { .. } = keys.kind {
        return Err(format!("state `{}` is strided: name it as compressed keys", keys.name));
    }
    match (values, o.value_dim) {
        (Some(values), None) if values.heads == keys.heads && values.kind == keys.kind => Ok(values.dim),
        (Some(values), None) => Err(format!("states `{}` and `{}` differ in heads or kind", keys.name, values.name)),
        (Some(_), Some(_)) => Err("a `value_dim` is for values that are part of the keys: leave out `v_state`".into()),
        (None, Some(dim)) if (1..=keys.dim).contains(&dim) => Ok(dim),
        (None, Some(dim)) => Err(format!("value_dim must be in 1..={}, found {dim}", keys.dim)),
        (None, None) => Ok(keys.dim),
    }
}

/// Whether the state keeps all rows that a query looks back on.
fn looks_back(o: &Attention, keys: &State) -> Fit {
    if o.window == Some(0) {
        return Err("a window of 0".into());
    }
    // Before a block as many rows are seen as a causal query sees with its own.
    let own = usize::from(o.mask == Mask::Block);
    match keys.kind {
        StateKind::Window { len } if o.window.is_none_or(|w| w.saturating_add(own) > len) => {
            let back = o.window.map_or("on all tokens".into(), |window| format!("on {window} tokens"));
            Err(format!("it looks back {back}, but `{}` keeps {len} rows", keys.name))
        }
        _ => Ok(()),
    }
}
