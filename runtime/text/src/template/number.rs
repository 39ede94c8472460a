//! Numbers as Python writes them.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Object, ObjectRepr};

/// A number whose text the template engine would write otherwise: a float with an exponent in Python's notation, an
/// integer of any size, or a number of a tool call's arguments in the model's own spelling.
#[derive(Debug)]
pub(super) struct Spelled(String);

impl Spelled {
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn is_integer(&self) -> bool {
        !self.0.contains(['.', 'e', 'E'])
    }
}

impl Object for Spelled {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `value` for a template.
pub(super) fn from_json(value: &serde_json::Number) -> Value {
    if let Some(integer) = value.as_i64() {
        Value::from(integer)
    } else if let Some(integer) = value.as_u64() {
        Value::from(integer)
    } else {
        from_float(value.as_f64().unwrap_or(f64::NAN))
    }
}

fn from_float(float: f64) -> Value {
    let python = float_repr(float);
    if python == Value::from(float).to_string() { Value::from(float) } else { Value::from_object(Spelled(python)) }
}

/// The number that `json` spells, such that a template writes it the same again.
pub(super) fn spelled(json: &str) -> Value {
    if let Some(integer) = json.parse::<i64>().ok().filter(|integer| integer.to_string() == json) {
        return Value::from(integer);
    }
    match json.parse::<f64>() {
        Ok(float) if Value::from(float).to_string() == json => Value::from(float),
        _ => Value::from_object(Spelled(json.to_owned())),
    }
}

/// Python's `repr` of a float: the shortest digits that mean it, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float_repr(float: f64) -> String {
    if !float.is_finite() {
        let name = if float.is_nan() { "nan" } else { "inf" };
        return if float < 0.0 { format!("-{name}") } else { name.to_owned() };
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        return format!("{float:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (1e-7, "1e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e22, "1.25e+22"),
            (-1e100, "-1e+100"),
            (5e-324, "5e-324"),
            (123_456_789.125, "123456789.125"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (float, python) in cases {
            assert_eq!(float_repr(float), python);
            assert_eq!(from_float(float).to_string(), python);
        }
    }

    #[test]
    fn spelling_is_kept() {
        for json in ["1", "-1", "0", "1.0", "1.50", "1E5", "1e-7", "-0", "123456789012345678901234567890"] {
            assert_eq!(spelled(json).to_string(), json);
        }
    }
}
