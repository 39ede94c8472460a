//! Ops from outside: what can be said of them without knowing them.

use super::{Checker, Fit, ValueType, fit::extent};
use crate::{Custom, MAX_CUSTOM_OPERANDS};

impl Checker<'_> {
    pub(super) fn custom(&self, o: &Custom) -> Fit<ValueType> {
        let most = MAX_CUSTOM_OPERANDS;
        let [first, ..] = o.x.as_slice() else { return Err("it has no operand".into()) };
        if o.x.len() > most || o.weights.len() > most {
            let (x, weights) = (o.x.len(), o.weights.len());
            return Err(format!("expected at most {most} operands and {most} weights, found {x} and {weights}"));
        }
        let like = self.float(first)?;
        for name in &o.x {
            let t = self.float(name)?;
            if t.rows != like.rows {
                return Err(format!("operand `{name}` must be over {} as `{first}` is, found {t}", like.rows));
            }
        }
        for name in &o.weights {
            self.any_weight(name)?;
        }
        extent("width", o.width)?;
        Ok(like.float(o.width))
    }
}
