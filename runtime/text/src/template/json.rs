//! JSON in and out of templates: values from JSON, and Python's `json.dumps`.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use super::guard;
use super::messages::Marks;
use super::number::{self, Spelled};

/// Deeper values cannot come from JSON, only from a template that nests them in a loop.
const MAX_DEPTH: usize = 200;

/// `json` for a template.
pub(super) fn to_value(json: &Json, marks: &Marks<'_>) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(bool) => Value::from(*bool),
        Json::Number(number) => number::from_json(number),
        Json::String(string) => Value::from(marks.mark(string)),
        Json::Array(items) => items.iter().map(|item| to_value(item, marks)).collect(),
        Json::Object(fields) => map(fields, marks, |_, value| to_value(value, marks)),
    }
}

/// An object for a template, its values made by `value` from name and JSON.
pub(super) fn map(fields: &Map<String, Json>, marks: &Marks<'_>, value: impl Fn(&str, &Json) -> Value) -> Value {
    Value::from_pairs(fields.iter().map(|(name, field)| (marks.mark(name), value(name, field))))
}

/// The value that `text` means as JSON, with the order of keys and the spelling of numbers kept; `None` if it is no JSON.
pub(super) fn parse(text: &str, marks: &Marks<'_>) -> Option<Value> {
    // Checks the depth as well, which bounds the recursion below.
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    parse_checked(text, marks)
}

fn parse_checked(text: &str, marks: &Marks<'_>) -> Option<Value> {
    Some(match text.trim_start().as_bytes().first()? {
        b'{' => {
            let pairs: Pairs<'_> = serde_json::from_str(text).ok()?;
            let pair = |(key, raw): (String, &RawValue)| {
                Some((Value::from(marks.mark(&key)), parse_checked(raw.get(), marks)?))
            };
            Value::from_pairs(pairs.0.into_iter().map(pair).collect::<Option<Vec<_>>>()?)
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            items.into_iter().map(|raw| parse_checked(raw.get(), marks)).collect::<Option<Vec<_>>>()?.into()
        }
        b'-' | b'0'..=b'9' => number::spelled(text.trim()),
        _ => to_value(&serde_json::from_str(text).ok()?, marks),
    })
}

/// The pairs of a JSON object in their order, values unparsed.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// The filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`, which is `json.dumps`.
#[allow(clippy::needless_pass_by_value, reason = "the engine's calling convention")]
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let (ensure_ascii, indent, separators): (Option<bool>, Option<Value>, Option<Value>) = from_args(&args)?;
    let indent: Option<Value> = indent.or(kwargs.get("indent")?);
    let indent = indent.filter(|indent| !indent.is_none()).map(|indent| indentation(&indent)).transpose()?;
    let separators: Option<Value> = separators.or(kwargs.get("separators")?);
    let (between, after_key) = match separators.filter(|separators| !separators.is_none()) {
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut dump = Dump {
        state,
        out: String::new(),
        indent,
        between,
        after_key,
        ensure_ascii: ensure_ascii.or(kwargs.get("ensure_ascii")?).unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    dump.value(value, 0)?;
    Ok(dump.out)
}

/// What one level of indentation looks like.
fn indentation(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_owned());
    }
    match indent.as_usize() {
        Some(width) if width <= 64 => Ok(" ".repeat(width)),
        _ => Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: indent is {indent}, expected 0 to 64"))),
    }
}

struct Dump<'a> {
    /// Of the template, which has paid for the value but not for what is put between its parts.
    state: &'a State<'a, 'a>,
    out: String,
    indent: Option<String>,
    between: String,
    after_key: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

impl Dump<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            _ => match value.downcast_object_ref::<Spelled>() {
                Some(spelled) => self.out.push_str(spelled.text()),
                None => return Err(not_serializable(value)),
            },
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut is_empty = true;
        for item in value.try_iter()? {
            self.separate(is_empty, depth + 1)?;
            self.value(&item, depth + 1)?;
            is_empty = false;
        }
        self.close(']', is_empty, depth)
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.separate(index == 0, depth + 1)?;
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    self.out.push('"');
                    self.value(key, depth + 1)?;
                    self.out.push('"');
                }
                _ => return Err(not_serializable(key)),
            }
            guard::pay_bytes(self.state, self.after_key.len())?;
            self.out.push_str(&self.after_key);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.close('}', keys.is_empty(), depth)
    }

    fn separate(&mut self, is_first: bool, depth: usize) -> Result<(), Error> {
        if !is_first {
            guard::pay_bytes(self.state, self.between.len())?;
            self.out.push_str(&self.between);
        }
        self.new_line(depth)
    }

    fn close(&mut self, bracket: char, is_empty: bool, depth: usize) -> Result<(), Error> {
        if !is_empty {
            self.new_line(depth)?;
        }
        self.out.push(bracket);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            guard::pay_bytes(self.state, indent.len().saturating_mul(depth))?;
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
        Ok(())
    }

    fn string(&mut self, string: &str) {
        self.out.push('"');
        for c in string.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || self.ensure_ascii && !(' '..='~').contains(&c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => match float_name(float) {
            Some(name) => name.to_owned(),
            None => number::float_repr(float),
        },
        _ => value.to_string(),
    }
}

fn float_name(float: f64) -> Option<&'static str> {
    match float {
        _ if float.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}

fn not_serializable(value: &Value) -> Error {
    let message = format!("tojson: a value of kind {} has no JSON form", value.kind());
    Error::new(if value.is_undefined() { ErrorKind::UndefinedError } else { ErrorKind::InvalidOperation }, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumps(expression: &str, json: &str) -> String {
        let mut environment = minijinja::Environment::new();
        environment.add_filter("tojson", tojson);
        let value = parse(json, &Marks::none()).unwrap();
        environment.render_str(&format!("{{{{ x|tojson{expression} }}}}"), minijinja::context! { x => value }).unwrap()
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let json = r#"{"b": [1, 2.50, {}, []], "a": "é<'\"\u0001\u007f\n😀"}"#;
        assert_eq!(dumps("", json), "{\"b\": [1, 2.50, {}, []], \"a\": \"é<'\\\"\\u0001\u{7f}\\n😀\"}");
        assert_eq!(dumps("(sort_keys=true)", r#"{"b": 1, "a": 2}"#), r#"{"a": 2, "b": 1}"#);
        assert_eq!(dumps("(ensure_ascii=true)", r#""é😀""#), r#""\u00e9\ud83d\ude00""#);
        assert_eq!(dumps("(separators=(',', ':'))", r#"{"a": [1, 2]}"#), r#"{"a":[1,2]}"#);
        assert_eq!(dumps("(indent=2)", r#"{"a": [1], "b": {}}"#), "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}");
    }

    #[test]
    fn parsing_keeps_order_and_spelling() {
        let json = r#"{"z": 1.0, "a": {"n": 123456789012345678901234567890, "e": 1E5}, "l": [true, null, "x\ty"]}"#;
        assert_eq!(dumps("", json), json);
        assert!(parse("{\"a\": 1", &Marks::none()).is_none());
        assert!(parse("", &Marks::none()).is_none());
        assert!(parse(&"[".repeat(100_000), &Marks::none()).is_none());
    }
}
