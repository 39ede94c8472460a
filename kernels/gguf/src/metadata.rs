//! The keys of a file, with typed access.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::GgufError;
use crate::value::{Array, GgufString, StringArray, Value};

/// The keys and values of a file, in file order.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: PathBuf,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    pub(crate) fn new(file: &Path) -> Self {
        Self { file: file.into(), entries: Vec::new(), index: HashMap::new() }
    }

    /// Appends a key; `false`, and nothing appended, where it is there already.
    pub(crate) fn insert(&mut self, key: &str, value: Value) -> bool {
        if self.index.contains_key(key) {
            return false;
        }
        self.index.insert(key.into(), self.entries.len());
        self.entries.push((key.into(), value));
        true
    }

    /// The file that the keys come from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key`, of whatever type.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.entries.get(*self.index.get(key)?).map(|(_, value)| value)
    }

    /// The value of `key` as a `T`; `None` where there is no such key.
    ///
    /// # Errors
    /// [`GgufError::Value`] where the key holds something that is no `T`.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        T::from_value(value).map(Some).ok_or_else(|| GgufError::Value {
            file: self.file.clone(),
            key: key.into(),
            expected: T::EXPECTED,
            found: value.to_string(),
        })
    }

    /// The value of `key` as a `T`.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`] where there is no such key, [`GgufError::Value`] where it holds something that is no `T`.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.get(key)?.ok_or_else(|| GgufError::MissingKey {
            file: self.file.clone(),
            key: key.into(),
            expected: T::EXPECTED,
        })
    }
}

/// A Rust type that metadata values can be read as.
///
/// Integers may be stored as any integer type that holds the number, floats as f32 or f64; nothing else is converted.
pub trait FromValue<'a>: Sized {
    /// What an error message calls the type.
    const EXPECTED: &'static str;

    /// The value as this type; `None` where it is of another type or out of range.
    fn from_value(value: &'a Value) -> Option<Self>;
}

macro_rules! from_integer {
    ($($rust:ty, $one:literal, $many:literal;)*) => {$(
        impl FromValue<'_> for $rust {
            const EXPECTED: &'static str = $one;

            fn from_value(value: &Value) -> Option<Self> {
                match *value {
                    Value::U8(n) => n.try_into().ok(),
                    Value::I8(n) => n.try_into().ok(),
                    Value::U16(n) => n.try_into().ok(),
                    Value::I16(n) => n.try_into().ok(),
                    Value::U32(n) => n.try_into().ok(),
                    Value::I32(n) => n.try_into().ok(),
                    Value::U64(n) => n.try_into().ok(),
                    Value::I64(n) => n.try_into().ok(),
                    _ => None,
                }
            }
        }

        impl FromValue<'_> for Vec<$rust> {
            const EXPECTED: &'static str = $many;

            fn from_value(value: &Value) -> Option<Self> {
                let Value::Array(array) = value else { return None };
                match array {
                    Array::U8(array) => array.iter().map(|&n| n.try_into().ok()).collect(),
                    Array::I8(array) => array.iter().map(|&n| n.try_into().ok()).collect(),
                    Array::U16(array) => array.iter().map(|&n| n.try_into().ok()).collect(),
                    Array::I16(array) => array.iter().map(|&n| n.try_into().ok()).collect(),
                    Array::U32(array) => array.iter().map(|&n| n.try_into().ok()).collect(),
                    Array::I32(array) => array.iter().map(|&n| n.try_into().ok()).collect(),
                    Array::U64(array) => array.iter().map(|&n| n.try_into().ok()).collect(),
                    Array::I64(array) => array.iter().map(|&n| n.try_into().ok()).collect(),
                    _ => None,
                }
            }
        }
    )*};
}

from_integer! {
    u32, "an integer from 0 to 2^32 - 1", "an array of integers from 0 to 2^32 - 1";
    i32, "an integer from -2^31 to 2^31 - 1", "an array of integers from -2^31 to 2^31 - 1";
    u64, "an integer from 0 to 2^64 - 1", "an array of integers from 0 to 2^64 - 1";
    i64, "an integer from -2^63 to 2^63 - 1", "an array of integers from -2^63 to 2^63 - 1";
    usize, "an integer of at least 0", "an array of integers of at least 0";
}

/// Implements [`FromValue`] for a type by a pattern per way of storing it.
macro_rules! from_value {
    ($($rust:ty, $expected:literal, $($pattern:pat => $value:expr),*;)*) => {$(
        impl<'a> FromValue<'a> for $rust {
            const EXPECTED: &'static str = $expected;

            fn from_value(value: &'a Value) -> Option<Self> {
                match value {
                    $($pattern => $value,)*
                    _ => None,
                }
            }
        }
    )*};
}

from_value! {
    f32, "a float", Value::F32(x) => Some(*x), Value::F64(x) => Some(*x as f32);
    f64, "a float", Value::F32(x) => Some((*x).into()), Value::F64(x) => Some(*x);
    bool, "a bool", Value::Bool(b) => Some(*b);
    &'a str, "a string of UTF-8", Value::String(s) => s.to_str();
    &'a GgufString, "a string", Value::String(s) => Some(s);
    &'a [f32], "an array of f32", Value::Array(Array::F32(xs)) => Some(xs);
    &'a [i32], "an array of i32", Value::Array(Array::I32(xs)) => Some(xs);
    &'a [bool], "an array of bool", Value::Array(Array::Bool(bs)) => Some(bs);
    &'a StringArray, "an array of strings", Value::Array(Array::String(strings)) => Some(strings);
    &'a Array, "an array", Value::Array(array) => Some(array);
}
