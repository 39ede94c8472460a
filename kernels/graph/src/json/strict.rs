//! Reading what somebody else wrote: every refusal says where, in words of JSON.

use std::{cell::Cell, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, error::Category};
use serde_path_to_error::{Path, Segment};

use super::{objects::Strict, words::plain};

/// What serde says of an object where it expects the one key of an enum; which keys there are, it does not.
const SEVERAL_KEYS: &str = "map with a single key";

/// Reads a value.
///
/// # Errors
/// Where something is that does not belong there, and what: `text.nodes[2].op.linear: unknown key …`.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(Strict(value)).map_err(|error| {
        let (path, why) = (error.path(), error.inner().to_string());
        let several = if why.contains(SEVERAL_KEYS) { several_keys(value, path) } else { None };
        at(path, &several.unwrap_or_else(|| plain(&why)))
    })
}

fn at(path: &Path, why: &str) -> String {
    match path.iter().next() {
        Some(_) => format!("{path}: {why}"),
        None => why.into(),
    }
}

fn several_keys(value: &Value, path: &Path) -> Option<String> {
    let found = path.iter().try_fold(value, |value, segment| match segment {
        Segment::Seq { index } => value.get(*index),
        Segment::Map { key } | Segment::Enum { variant: key } => value.get(key),
        Segment::Unknown => None,
    })?;
    let keys: Vec<&str> = found.as_object()?.keys().map(String::as_str).collect();
    Some(format!("expected an object of one key, found the keys `{}`", keys.join("`, `")))
}

/// Reads JSON of at most so many values, counting those in others. An object that has a key twice is refused: which of the
/// two was meant, nobody knows.
///
/// # Errors
/// What is no JSON, has a key twice, or holds too many values.
pub fn parse(bytes: &[u8], most: usize) -> Result<Value, String> {
    LEFT.set(most);
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, inner) = (error.path(), error.inner());
        match inner.classify() {
            Category::Data => {
                // Where it stands is told by the path.
                let why = inner.to_string();
                at(path, why.rsplit_once(" at line ").map_or(why.as_str(), |(why, _)| why))
            }
            Category::Io | Category::Syntax | Category::Eof => format!("no JSON: {inner}"),
        }
    });
    let Checked(value) = parsed?;
    json.end().map_err(|error| format!("no JSON: {error}"))?;
    Ok(value)
}

thread_local! {
    /// Values that the JSON which this thread reads may still have.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// A value in which no object has a key twice.
struct Checked(Value);

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let left =
            LEFT.get().checked_sub(1).ok_or_else(|| D::Error::custom("it holds more values than any model needs"));
        LEFT.set(left?);
        deserializer.deserialize_any(Values).map(Checked)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Checked(value)) = entries.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if values.contains_key(&key) {
                let key: String = key.chars().take(LONGEST_SHOWN).collect();
                return Err(A::Error::custom(format_args!("the key `{key}` is there twice")));
            }
            let Checked(value) = entries.next_value()?;
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

/// How much of a key is shown.
const LONGEST_SHOWN: usize = 100;
