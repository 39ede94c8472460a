//! Recurrences.

use super::{
    Checker, Fit, ValueType,
    fit::{extent, finite, product, whole},
};
use crate::{DeltaRule, ShortConv, Ssm};

impl<'g> Checker<'g> {
    pub(super) fn short_conv(&mut self, name: &'g str, o: &'g ShortConv) -> Fit<ValueType> {
        let x = self.over_tokens(&o.x)?;
        extent("dilation", o.dilation)?;
        let taps = match self.any_weight(&o.weight)?.shape[..] {
            [width, taps] if width == x.width && taps >= 2 => taps,
            ref s => {
                return Err(format!("weight `{}`: expected [{}, 2 or more taps], found {s:?}", o.weight, x.width));
            }
        };
        if let Some(bias) = &o.bias {
            self.weight(bias, &[x.width])?;
        }
        let rows = product("the rows kept", taps - 1, o.dilation)?;
        self.advance(&o.state, name, &[rows, x.width])?;
        Ok(x)
    }

    pub(super) fn delta_rule(&mut self, name: &'g str, o: &'g DeltaRule) -> Fit<ValueType> {
        let q = self.over_tokens(&o.q)?;
        let v = self.over_tokens(&o.v)?;
        let heads = self.over_tokens(&o.beta)?.width;
        let Some(&[_, key_dim, _]) = self.recurrent.get(o.state.as_str()).map(|s| s.shape.as_slice()) else {
            return Err(format!("recurrent state `{}` must be declared as [heads, key_dim, value_dim]", o.state));
        };
        self.float_of(&o.k, q, q.width)?;
        let key_heads = whole("the state's key_dim", q.width, key_dim)?;
        whole("the key heads", heads, key_heads)?;
        let value_dim = whole("the heads of `beta`", v.width, heads)?;
        let decay = self.over_tokens(&o.decay)?.width;
        if decay != heads && Some(decay) != heads.checked_mul(key_dim) {
            return Err(format!("`{}` must have {heads} entries, or {heads} × {key_dim}, found {decay}", o.decay));
        }
        finite("scale", o.scale)?;
        self.advance(&o.state, name, &[heads, key_dim, value_dim])?;
        Ok(v)
    }

    pub(super) fn ssm(&mut self, name: &'g str, o: &'g Ssm) -> Fit<ValueType> {
        let x = self.over_tokens(&o.x)?;
        let b = self.over_tokens(&o.b)?;
        let heads = self.over_tokens(&o.dt)?.width;
        let Some(&[_, _, size]) = self.recurrent.get(o.state.as_str()).map(|s| s.shape.as_slice()) else {
            return Err(format!("recurrent state `{}` must be declared as [heads, dim, size]", o.state));
        };
        self.float_of(&o.c, b, b.width)?;
        let groups = whole("the state's size", b.width, size)?;
        whole("the groups", heads, groups)?;
        let dim = whole("the heads of `dt`", x.width, heads)?;
        std::iter::once(&o.a).chain(&o.d).try_for_each(|w| self.weight(w, &[heads]))?;
        self.advance(&o.state, name, &[heads, dim, size])?;
        Ok(x)
    }
}
