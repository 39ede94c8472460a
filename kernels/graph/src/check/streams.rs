//! Residual streams.

use super::{
    Checker, Fit, MAX_EXTENT, ValueType,
    fit::{positive, product, whole},
};
use crate::{StreamCollapse, StreamGates, StreamUpdate};

/// Most normalisations that are accepted: they converge long before.
const MAX_ITERATIONS: u32 = 1000;

impl Checker<'_> {
    pub(super) fn stream_gates(&self, o: &StreamGates) -> Fit<Vec<ValueType>> {
        let x = self.float(&o.x)?;
        let pairs = product("pairs of streams", o.streams, o.streams)?;
        let width = o.streams.saturating_mul(2).saturating_add(pairs).min(MAX_EXTENT);
        if x.width != width {
            return Err(format!("`{}` must have {width} entries for {} streams, found {}", o.x, o.streams, x.width));
        }
        self.weight(&o.scale, &[3])?;
        self.weight(&o.base, &[width])?;
        positive("eps", o.eps)?;
        if !(1..=MAX_ITERATIONS).contains(&o.iterations) {
            return Err(format!("iterations must be in 1..={MAX_ITERATIONS}, found {}", o.iterations));
        }
        Ok(vec![x.float(o.streams), x.float(o.streams), x.float(pairs)])
    }

    pub(super) fn stream_collapse(&self, o: &StreamCollapse) -> Fit<ValueType> {
        let x = self.float(&o.x)?;
        let width = whole("the streams", x.width, o.streams)?;
        if let Some(weights) = &o.weights {
            let w = self.float(weights)?;
            if w != x.float(o.streams) && w != x {
                return Err(format!("`{weights}` must have {} entries or {}, found {w}", o.streams, x.width));
            }
        }
        Ok(x.float(width))
    }

    pub(super) fn stream_update(&self, o: &StreamUpdate) -> Fit<ValueType> {
        let y = self.float(&o.y)?;
        let streams = self.float(&o.post)?.width;
        self.float_of(&o.post, y, streams)?;
        let width = product("a row", streams, y.width)?;
        if let Some(x) = &o.x {
            self.float_of(x, y, width)?;
        }
        if let Some(mix) = &o.mix {
            if o.x.is_none() {
                return Err("nothing to mix: `x` is not given".into());
            }
            self.float_of(mix, y, product("pairs of streams", streams, streams)?)?;
        }
        Ok(y.float(width))
    }
}
