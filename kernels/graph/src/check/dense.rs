//! Ops that look at one row at a time.

use super::{
    Checker, Fit, ValueType,
    fit::{finite, positive, product, whole},
};
use crate::{Affine, Concat, Glu, GluLimit, Linear, Norm, Pairing, Rope, RopeScaling, Rows, Slice};

impl Checker<'_> {
    pub(super) fn linear(&self, o: &Linear) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        let (groups, out, cols) = match self.any_weight(&o.weight)?.shape[..] {
            [out, cols] => (1, out, cols),
            [groups, out, cols] if o.runs == 1 => (groups, out, cols),
            ref s => return Err(format!("weight `{}`: expected one matrix [out, in], found {s:?}", o.weight)),
        };
        let (bias, groups) = (product("a row", groups, out)?, product("the runs", groups, o.runs)?);
        if groups.checked_mul(cols) != Some(x.width) {
            return Err(format!(
                "weight `{}`: expected {} columns as `{}` has, found {groups} × {cols}",
                o.weight, x.width, o.x
            ));
        }
        if let Some(name) = &o.bias {
            self.weight(name, &[bias])?;
        }
        Ok(x.float(product("a row", groups, out)?))
    }

    pub(super) fn norm(&self, o: &Norm) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        let group = o.group.unwrap_or(x.width);
        whole("group", x.width, group)?;
        if !(o.eps >= 0.0 && o.eps.is_finite()) {
            return Err(format!("eps must be a number ≥ 0, found {}", o.eps));
        }
        match o.weight.as_deref().map(|w| self.any_weight(w)).transpose()? {
            Some(w) if w.shape != [group] && w.shape != [x.width] => {
                Err(format!("weight `{}`: expected shape [{group}] or [{}], found {:?}", w.name, x.width, w.shape))
            }
            _ => Ok(x),
        }
    }

    pub(super) fn rope(&self, o: &Rope) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        self.integer_of(&o.positions, x, Some(1))?;
        whole("head_dim", x.width, o.head_dim)?;
        turning(o)?;
        positive("base", o.base)?;
        o.scaling.as_ref().map_or(Ok(()), scaling)?;
        if let Some(f) = &o.factors {
            self.weight(f, &[o.dims / 2])?;
        }
        Ok(x)
    }

    pub(super) fn glu(&self, o: &Glu) -> Fit<ValueType> {
        o.limit.map_or(Ok(()), limit)?;
        self.same(&o.gate, &o.up)
    }

    pub(super) fn mul(&self, a: &str, b: &str) -> Fit<ValueType> {
        let (ta, tb) = (self.float(a)?, self.float(b)?);
        if ta.rows == tb.rows && ta.width.is_multiple_of(tb.width) {
            Ok(ta)
        } else {
            Err(format!("`{b}` must have the rows of `{a}` ({ta}) and a width that divides its own, found {tb}"))
        }
    }

    pub(super) fn dot(&self, a: &str, b: &str, groups: usize) -> Fit<ValueType> {
        let t = self.same(a, b)?;
        whole("groups", t.width, groups)?;
        Ok(t.float(groups))
    }

    pub(super) fn scale(&self, x: &str, factor: f32, offset: f32) -> Fit<ValueType> {
        finite("factor", factor)?;
        finite("offset", offset)?;
        self.float(x)
    }

    pub(super) fn affine(&self, o: &Affine) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        if o.scale.is_none() && o.bias.is_none() {
            return Err("neither scale nor bias".into());
        }
        o.scale.iter().chain(&o.bias).try_for_each(|w| self.spread(w, x.width))?;
        Ok(x)
    }

    pub(super) fn softcap(&self, x: &str, cap: f32) -> Fit<ValueType> {
        positive("cap", cap)?;
        self.float(x)
    }

    pub(super) fn slice(&self, o: &Slice) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        let run = whole("groups", x.width, o.groups)?;
        if o.len == 0 || o.start.checked_add(o.len).is_none_or(|end| end > run) {
            return Err(format!("runs of {run} entries have no {} from {}", o.len, o.start));
        }
        Ok(x.float(product("a row", o.groups, o.len)?))
    }

    pub(super) fn concat(&self, o: &Concat) -> Fit<ValueType> {
        let Some(first) = o.parts.first() else { return Err("no parts".into()) };
        let first = self.float(first)?;
        let mut width = 0_usize;
        for part in &o.parts {
            let t = self.float(part)?;
            if t.rows != first.rows {
                return Err(format!("`{part}` has rows over {}, the first part over {}", t.rows, first.rows));
            }
            whole("groups", t.width, o.groups)?;
            width = width.saturating_add(t.width);
        }
        Ok(first.float(width))
    }

    pub(super) fn select(&self, x: &str, to: Rows) -> Fit<ValueType> {
        let t = self.value(x)?;
        match (t.rows, to) {
            (Rows::Tokens, Rows::Logits) => Ok(ValueType { rows: to, ..t }),
            (from, to) => Err(format!("no selection leads from {from} to {to}")),
        }
    }
}

/// Whether the turning entries lie in the head.
fn turning(o: &Rope) -> Fit {
    let end = match o.pairing {
        Pairing::Interleaved | Pairing::Halves => o.offset.checked_add(o.dims),
        Pairing::HeadHalves if o.offset == 0 && o.head_dim.is_multiple_of(2) => Some(o.dims),
        Pairing::HeadHalves => return Err("halves of a head need an even head_dim and no offset".into()),
    };
    if o.dims == 0 || !o.dims.is_multiple_of(2) || end.is_none_or(|end| end > o.head_dim) {
        return Err(format!(
            "dims must be even, at least 2, and end within the head of {}, found {} from {}",
            o.head_dim, o.dims, o.offset
        ));
    }
    Ok(())
}

fn scaling(scaling: &RopeScaling) -> Fit {
    match scaling {
        RopeScaling::Linear { factor } => positive("factor", *factor),
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => {
            positive("factor", *factor)?;
            positive("original_context", *original_context as f32)?;
            positive("beta_fast", *beta_fast)?;
            positive("beta_slow", *beta_slow)?;
            positive("magnitude", *magnitude)
        }
    }
}

/// Whether a bound can hold at all.
pub(super) fn limit(limit: GluLimit) -> Fit {
    let (GluLimit::BeforeAct(bound) | GluLimit::AfterAct(bound)) = limit;
    positive("limit", bound)
}
