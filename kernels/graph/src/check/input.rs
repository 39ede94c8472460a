//! Inputs and tables.

use super::{
    Checker, Fit, ValueType,
    fit::{extent, finite, product},
};
use crate::{Embed, InputSource, Lookup, NO_ID, NgramHash, Rows};

impl Checker<'_> {
    pub(super) fn input(&mut self, source: InputSource) -> Fit<ValueType> {
        let ids = ValueType { rows: Rows::Tokens, width: 1, integer: true };
        match source {
            InputSource::TokenIds | InputSource::Positions => Ok(ids),
            InputSource::PreviousTokens { back, missing } => {
                extent("back", back)?;
                if missing == NO_ID { Err(format!("missing must be a token, found {missing}")) } else { Ok(ids) }
            }
            InputSource::StridedPositions { stride } => {
                extent("stride", stride)?;
                Ok(ValueType { rows: Rows::Strided { stride }, ..ids })
            }
            InputSource::Hidden { index, width } => {
                extent("width", width)?;
                match self.hidden.insert(index, width) {
                    Some(_) => Err(format!("another node is hidden input {index} already")),
                    None => Ok(ids.float(width)),
                }
            }
        }
    }

    pub(super) fn embed(&self, o: &Embed) -> Fit<ValueType> {
        finite("scale", o.scale)?;
        let ids = self.integer(&o.ids)?;
        match self.any_weight(&o.table)?.shape[..] {
            [_, width] => Ok(ids.float(product("a row", ids.width, width)?)),
            ref s => Err(format!("table `{}`: expected [vocab, width], found {s:?}", o.table)),
        }
    }

    pub(super) fn lookup(&self, o: &Lookup) -> Fit<ValueType> {
        let ids = self.integer(&o.ids)?;
        match self.any_weight(&o.table)?.shape[..] {
            [_, width] if ids.width == 1 => Ok(ids.ids(width)),
            ref s => Err(format!("expected one id a row and a table [vocab, width], found {} and {s:?}", ids.width)),
        }
    }

    pub(super) fn ngram_hash(&self, o: &NgramHash) -> Fit<ValueType> {
        let Some(first) = o.ids.first() else { return Err("no ids to hash".into()) };
        let t = self.integer(first)?;
        o.ids.iter().try_for_each(|ids| self.integer_of(ids, t, Some(1)))?;
        if o.multipliers.len() != o.ids.len() {
            return Err(format!("{} multipliers for {} places", o.multipliers.len(), o.ids.len()));
        }
        for head in &o.heads {
            let end = u64::from(head.offset) + u64::from(head.rows);
            if !(1..=o.ids.len()).contains(&head.order) || head.rows == 0 || end > u64::from(NO_ID) {
                let (order, rows, offset, most) = (head.order, head.rows, head.offset, o.ids.len());
                return Err(format!(
                    "a hash of order {order} with {rows} rows from {offset}: expected 1 to {most} tokens, rows within 32 bits"
                ));
            }
        }
        Ok(t.ids(o.heads.len()))
    }
}
