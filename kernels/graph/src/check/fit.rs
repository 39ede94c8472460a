//! Conditions that many ops share.

use super::{Checker, Fit, MAX_EXTENT, ValueType};

impl Checker<'_> {
    pub(super) fn value(&self, name: &str) -> Fit<ValueType> {
        self.types.get(name).copied().ok_or_else(|| format!("operand `{name}` is not computed before it"))
    }

    pub(super) fn float(&self, name: &str) -> Fit<ValueType> {
        let t = self.value(name)?;
        if t.integer { Err(format!("operand `{name}` must be f32, found integers")) } else { Ok(t) }
    }

    /// An f32 operand with the rows of `like` and this width.
    pub(super) fn float_of(&self, name: &str, like: ValueType, width: usize) -> Fit {
        let t = self.float(name)?;
        if t == like.float(width) {
            Ok(())
        } else {
            Err(format!("operand `{name}` must be {width} f32 over {}, found {t}", like.rows))
        }
    }

    /// An integer operand with the rows of `like` and this width, or any.
    pub(super) fn integer_of(&self, name: &str, like: ValueType, width: Option<usize>) -> Fit {
        let t = self.integer(name)?;
        if t == like.ids(width.unwrap_or(t.width)) {
            Ok(())
        } else {
            let width = width.map_or("some".into(), |n| n.to_string());
            Err(format!("operand `{name}` must be {width} integers a row over {}, found {t}", like.rows))
        }
    }

    pub(super) fn integer(&self, name: &str) -> Fit<ValueType> {
        let t = self.value(name)?;
        if t.integer { Ok(t) } else { Err(format!("operand `{name}` must be integers, found {t}")) }
    }

    pub(super) fn same(&self, a: &str, b: &str) -> Fit<ValueType> {
        let (ta, tb) = (self.float(a)?, self.float(b)?);
        if ta == tb { Ok(ta) } else { Err(format!("`{a}` is {ta} but `{b}` is {tb}")) }
    }
}

/// A size that is at least 1 and harmless to multiply with another.
pub(super) fn extent(name: &str, n: usize) -> Fit {
    if (1..=MAX_EXTENT).contains(&n) { Ok(()) } else { Err(format!("{name} must be in 1..={MAX_EXTENT}, found {n}")) }
}

/// `a · b`, if it is a size.
pub(super) fn product(name: &str, a: usize, b: usize) -> Fit<usize> {
    match a.checked_mul(b) {
        Some(n) if (1..=MAX_EXTENT).contains(&n) => Ok(n),
        _ => Err(format!("{name} of {a} × {b} must be in 1..={MAX_EXTENT}")),
    }
}

/// How often `part` goes into `width`, without rest.
pub(super) fn whole(name: &str, width: usize, part: usize) -> Fit<usize> {
    if part > 0 && width.is_multiple_of(part) {
        Ok(width / part)
    } else {
        Err(format!("{width} is no whole multiple of {name} {part}"))
    }
}

pub(super) fn finite(name: &str, x: f32) -> Fit {
    if x.is_finite() { Ok(()) } else { Err(format!("{name} must be a number, found {x}")) }
}

pub(super) fn positive(name: &str, x: f32) -> Fit {
    if x.is_finite() && x > 0.0 { Ok(()) } else { Err(format!("{name} must be a number > 0, found {x}")) }
}
