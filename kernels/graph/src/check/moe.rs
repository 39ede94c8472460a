//! Routing and experts.

use super::{
    Checker, Fit, ValueType,
    dense::limit,
    fit::{finite, whole},
};
use crate::{Experts, Route};

impl Checker<'_> {
    pub(super) fn route(&self, o: &Route) -> Fit<Vec<ValueType>> {
        let scores = self.float(&o.scores)?;
        finite("scale", o.scale)?;
        let mut choice = scores.width;
        if let Some(groups) = o.groups {
            let members = whole("the groups", scores.width, groups.count)?;
            if groups.used == 0 || groups.used > groups.count {
                return Err(format!("groups used must be in 1..={}, found {}", groups.count, groups.used));
            }
            choice = members.saturating_mul(groups.used);
        }
        if o.used == 0 || o.used > choice {
            return Err(format!("used must be in 1..={choice} experts, found {}", o.used));
        }
        if let Some(bias) = &o.bias {
            self.weight(bias, &[scores.width])?;
        }
        if let Some(ids) = &o.ids {
            self.integer_of(ids, scores, Some(o.used))?;
            if o.bias.is_some() || o.groups.is_some() {
                return Err("with `ids` the choice is made: leave out bias and groups".into());
            }
        }
        Ok(vec![scores.ids(o.used), scores.float(o.used)])
    }

    pub(super) fn experts(&self, o: &Experts) -> Fit<ValueType> {
        let (x, w) = (self.float(&o.x)?, self.float(&o.weights)?);
        self.float_of(&o.weights, x, w.width)?;
        self.integer_of(&o.ids, x, Some(w.width))?;
        let (experts, ffn) = match self.any_weight(&o.up)?.shape[..] {
            [experts, ffn, cols] if cols == x.width => (experts, ffn),
            ref s => return Err(format!("weight `{}`: expected [experts, ffn, {}], found {s:?}", o.up, x.width)),
        };
        if let Some(gate) = &o.gate {
            self.weight(gate, &[experts, ffn, x.width])?;
        }
        let width = match o.down.as_deref().map(|down| self.any_weight(down)).transpose()? {
            None => ffn,
            Some(down) => match down.shape[..] {
                [n, out, cols] if n == experts && cols == ffn => out,
                ref s => return Err(format!("weight `{}`: expected [{experts}, out, {ffn}], found {s:?}", down.name)),
            },
        };
        if o.gate.is_some() && o.down.is_none() {
            return Err("experts with a gate need `down`".into());
        }
        if o.gate.is_none() && o.limit.is_some() {
            return Err("a limit needs a gate".into());
        }
        o.limit.map_or(Ok(()), limit)?;
        self.expert_scales(o, experts)?;
        Ok(x.float(width))
    }

    fn expert_scales(&self, o: &Experts, experts: usize) -> Fit {
        let Some(scales) = &o.scales else { return Ok(()) };
        let matrices = [(&scales.gate, o.gate.is_some()), (&scales.up, true), (&scales.down, o.down.is_some())];
        for (scale, has_matrix) in matrices {
            match scale {
                Some(scale) if has_matrix => self.weight(scale, &[experts])?,
                Some(scale) => return Err(format!("scale `{scale}` is for a matrix that is not there")),
                None => {}
            }
        }
        Ok(())
    }
}
