//! What templates expect of Python: methods of strings, and tests and filters where Jinja follows Python.

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::guard;
use super::number::Spelled;

/// What `str.isspace` calls white space: Unicode's, and the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Calls a method that the engine does not know.
pub(super) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        pay(state, text, method, args)?;
        match string_method(text, method, args) {
            Err(error) if error.kind() == ErrorKind::UnknownMethod => {}
            result => return result,
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// What a list costs for each of its items, in bytes.
const ITEM_BYTES: usize = 64;

/// Has the template pay for what a method makes, beside what the engine counts for the text and the arguments.
fn pay(state: &State<'_, '_>, text: &str, method: &str, args: &[Value]) -> Result<(), Error> {
    let bytes = match method {
        "split" | "rsplit" => match args.first().and_then(Value::as_str) {
            None => text.split(is_space).count().saturating_mul(ITEM_BYTES),
            Some("") => 0,
            Some(separator) => text.matches(separator).count().saturating_mul(ITEM_BYTES),
        },
        "splitlines" => text.matches(['\n', '\r']).count().saturating_mul(ITEM_BYTES),
        "format" => format_bytes(text, args),
        _ => 0,
    };
    guard::pay_bytes(state, bytes)
}

/// The most that `text.format(args)` can make: each field may be any of the arguments, padded to any width that the
/// format or a number among the arguments tells.
fn format_bytes(text: &str, args: &[Value]) -> usize {
    let widths = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widths = widths.fold(0_usize, |sum, digits| sum.saturating_add(digits.parse().unwrap_or(usize::MAX)));
    let argument = |value: &Value| value.as_usize().unwrap_or(0).max(value.len().unwrap_or(0));
    let longest = args.iter().map(argument).max().unwrap_or(0);
    text.matches('{').count().saturating_mul(longest).saturating_add(widths)
}

/// The methods that differ from, or are not in, the engine's own set.
fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    Ok(match method {
        "strip" => strip(text, args, true, true)?,
        "lstrip" => strip(text, args, true, false)?,
        "rstrip" => strip(text, args, false, true)?,
        "split" => split(text, args, false)?,
        "rsplit" => split(text, args, true)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, behind) = text.split_once(separator).map_or((text, None), |(a, b)| (a, Some(b)));
            parts(before, behind.map(|_| separator), behind.unwrap_or_default())
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, behind) = text.rsplit_once(separator).map_or((None, text), |(a, b)| (Some(a), b));
            parts(before.unwrap_or_default(), before.map(|_| separator), behind)
        }
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

fn parts(before: &str, separator: Option<&str>, behind: &str) -> Value {
    [before, separator.unwrap_or_default(), behind].into_iter().map(Value::from).collect()
}

fn strip(text: &str, args: &[Value], left: bool, right: bool) -> Result<Value, Error> {
    let (chars,): (Option<&str>,) = from_args(args)?;
    let goes = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(goes) } else { text };
    Ok(Value::from(if right { text.trim_end_matches(goes) } else { text }))
}

/// `str.split` and `str.rsplit`.
fn split(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (separator, most, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator: Option<Value> = separator.or(kwargs.get("sep")?);
    let most: Option<i64> = most.or(kwargs.get("maxsplit")?);
    kwargs.assert_all_used()?;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let separator = separator.filter(|separator| !separator.is_none());
    let mut pieces = match &separator {
        None => words(text, most, from_right),
        Some(separator) => match separator.as_str() {
            None | Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "split: the separator is no text")),
            Some(separator) if from_right => text.rsplitn(most.saturating_add(1), separator).collect(),
            Some(separator) => text.splitn(most.saturating_add(1), separator).collect(),
        },
    };
    if from_right {
        pieces.reverse();
    }
    Ok(pieces.into_iter().map(Value::from).collect())
}

/// Words between white space, at most `most` cut off; from the right they come last first. What is left behind the last
/// cut keeps the white space at its far end.
fn words(text: &str, most: usize, from_right: bool) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = near_trimmed(text, from_right);
    while !rest.is_empty() {
        let cut = if from_right { rest.rsplit_once(is_space).map(|(a, b)| (b, a)) } else { rest.split_once(is_space) };
        let Some((word, others)) = cut.filter(|_| pieces.len() < most) else {
            pieces.push(rest);
            break;
        };
        pieces.push(word);
        rest = near_trimmed(others, from_right);
    }
    pieces
}

fn near_trimmed(text: &str, from_right: bool) -> &str {
    if from_right { text.trim_end_matches(is_space) } else { text.trim_start_matches(is_space) }
}

/// The filter `trim`, which is `str(value).strip(chars)`.
pub(super) fn trim(value: &Value, chars: Option<&str>) -> String {
    let text = value.to_string();
    text.trim_matches(|c| chars.map_or_else(|| is_space(c), |chars| chars.contains(c))).to_owned()
}

/// The test `iterable`: false for none, true for undefined.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// The test `sequence`: what has a length and can be indexed, so strings and maps too.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

/// The test `number`; booleans are numbers.
pub(super) fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool) || spelled(value).is_some()
}

/// The test `integer`; booleans are not.
pub(super) fn is_integer(value: &Value) -> bool {
    value.is_integer() && value.kind() == ValueKind::Number || spelled(value).is_some_and(Spelled::is_integer)
}

/// The test `float`.
pub(super) fn is_float(value: &Value) -> bool {
    value.kind() == ValueKind::Number && !value.is_integer()
        || spelled(value).is_some_and(|number| !number.is_integer())
}

fn spelled(value: &Value) -> Option<&Spelled> {
    value.downcast_object_ref()
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};

    fn eval(expression: &str) -> String {
        let mut environment = Environment::new();
        environment.set_unknown_method_callback(super::call_method);
        environment.render_str(&format!("{{{{ {expression} }}}}"), context! {}).unwrap()
    }

    #[test]
    fn strings_split_as_in_python() {
        assert_eq!(eval(r"' a  b c '.split()"), "['a', 'b', 'c']");
        assert_eq!(eval(r"' a  b c '.split(none, 1)"), "['a', 'b c ']");
        assert_eq!(eval(r"' a  b c '.rsplit(maxsplit=1)"), "[' a  b', 'c']");
        assert_eq!(eval(r"'a,b,,c'.split(',')"), "['a', 'b', '', 'c']");
        assert_eq!(eval(r"'a,b,,c'.split(',', 1)"), "['a', 'b,,c']");
        assert_eq!(eval(r"'a,b,c'.rsplit(',', 1)"), "['a,b', 'c']");
        assert_eq!(eval(r"''.split(',')"), "['']");
        assert_eq!(eval(r"''.split()"), "[]");
        assert_eq!(eval(r"'a=b=c'.partition('=')|list"), "['a', '=', 'b=c']");
        assert_eq!(eval(r"'abc'.rpartition('=')|list"), "['', '', 'abc']");
    }

    #[test]
    fn strings_strip_as_in_python() {
        assert_eq!(eval("'\\x1f x\\u00a0'.strip()"), "x");
        assert_eq!(eval("'xxaxx'.lstrip('x') ~ 'abc'.removeprefix('a') ~ 'abc'.removesuffix('x')"), "axxbcabc");
    }
}
