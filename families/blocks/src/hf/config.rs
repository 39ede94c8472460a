//! Typed access to `config.json`.
//!
//! A key that is there has a value of its type, or reading it fails: there is no way to ask for a value that takes a wrong
//! one for none. Null is a wrong value too, but for keys that the reference lets be null; those have accessors of their own.

use bantam_family_api::{FamilyError, MetaValue};
use serde_json::{Map, Value};

/// An object of `config.json`. Every error names the whole key.
#[derive(Clone, Copy, Debug)]
pub struct Config<'c> {
    object: &'c Map<String, Value>,
    /// Keys of the objects around it, outermost first.
    parents: [Option<&'c str>; 2],
}

/// The only value of a key with which a checkpoint is a model that the family describes.
#[derive(Clone, Copy, Debug)]
pub enum Fixed {
    /// A bool.
    Flag(bool),
    /// A text.
    Word(&'static str),
    /// An integer.
    Size(usize),
}

impl<'c> Config<'c> {
    /// The whole file.
    pub fn new(object: &'c Map<String, Value>) -> Self {
        Config { object, parents: [None; 2] }
    }

    /// The object under a key of this one; `None` if the key is missing or null.
    ///
    /// # Errors
    /// If the value is anything else.
    pub fn object_or_null(&self, key: &'c str) -> Result<Option<Self>, FamilyError> {
        if self.is_null(key) {
            return Ok(None);
        }
        let object = self.typed(key, "an object", Value::as_object)?;
        let parents = match self.parents {
            [None, _] => [Some(key), None],
            [outer, _] => [outer, Some(key)],
        };
        Ok(object.map(|object| Config { object, parents }))
    }

    /// The whole key, for people.
    pub fn path(&self, key: &str) -> String {
        let parents: String = self.parents.iter().flatten().map(|parent| format!("{parent}.")).collect();
        format!("config.json: {parents}{key}")
    }

    /// Whether the object has a key, even with null.
    pub fn has(&self, key: &str) -> bool {
        self.object.contains_key(key)
    }

    /// Whether a key is there and null.
    pub fn is_null(&self, key: &str) -> bool {
        self.object.get(key).is_some_and(Value::is_null)
    }

    /// Whether there is nothing in the object.
    pub fn is_empty(&self) -> bool {
        self.object.is_empty()
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        take: impl Fn(&'c Value) -> Option<T>,
    ) -> Result<Option<T>, FamilyError> {
        let value = self.object.get(key);
        value.map(|value| take(value).ok_or_else(|| self.wrong(key, expected, &value.to_string()))).transpose()
    }

    /// An error about this key.
    pub fn wrong(&self, key: &str, expected: &str, found: &str) -> FamilyError {
        FamilyError::key(self.path(key), expected, found)
    }

    /// An error about this key, which is missing.
    pub fn missing(&self, key: &str, expected: &str) -> FamilyError {
        self.wrong(key, expected, "no such key")
    }

    /// A value that metadata can hold, if given.
    ///
    /// # Errors
    /// If the value is null or holds an object.
    pub fn meta_opt(&self, key: &str) -> Result<Option<MetaValue>, FamilyError> {
        self.typed(key, "a number, text, bool or an array of these", meta_value)
    }

    /// A count or size, if given.
    ///
    /// # Errors
    /// If the value is no integer of 0 or more.
    pub fn size_opt(&self, key: &str) -> Result<Option<usize>, FamilyError> {
        self.typed(key, "an integer of 0 or more", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// A count or size; `None` if the key is missing or null.
    ///
    /// # Errors
    /// If the value is anything but an integer of 0 or more.
    pub fn size_or_null(&self, key: &str) -> Result<Option<usize>, FamilyError> {
        if self.is_null(key) { Ok(None) } else { self.size_opt(key) }
    }

    /// A size of at least 1 that must be given.
    ///
    /// # Errors
    /// If it is missing, 0 or no integer.
    pub fn size(&self, key: &str) -> Result<usize, FamilyError> {
        const EXPECTED: &str = "an integer of 1 or more";
        match self.size_opt(key)? {
            None => Err(self.missing(key, EXPECTED)),
            Some(0) => Err(self.wrong(key, EXPECTED, "0")),
            Some(n) => Ok(n),
        }
    }

    /// The size under `key`, at most `most`: so many tensors there are, and a layer has one or more.
    ///
    /// # Errors
    /// If it is missing, 0, above, or no integer.
    pub fn layers(&self, key: &str, most: usize) -> Result<usize, FamilyError> {
        match self.size(key)? {
            n if n > most => {
                Err(self.wrong(key, &format!("at most the {most} tensors that there are"), &n.to_string()))
            }
            n => Ok(n),
        }
    }

    /// A number, if given.
    ///
    /// # Errors
    /// If the value is no number.
    pub fn number_opt(&self, key: &str) -> Result<Option<f64>, FamilyError> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// Whether something is so, if given.
    ///
    /// # Errors
    /// If the value is no bool.
    pub fn bool_opt(&self, key: &str) -> Result<Option<bool>, FamilyError> {
        self.typed(key, "a bool", Value::as_bool)
    }

    /// Text, if given.
    ///
    /// # Errors
    /// If the value is no text.
    pub fn text_opt(&self, key: &str) -> Result<Option<&'c str>, FamilyError> {
        self.typed(key, "text", Value::as_str)
    }

    /// An array of at most `most` numbers in which null stands for 0; `None` if the key is missing or null.
    ///
    /// # Errors
    /// If the value is anything else.
    pub fn numbers_or_null(&self, key: &str, most: usize) -> Result<Option<Vec<f64>>, FamilyError> {
        let number = |value: &Value| if value.is_null() { Some(0.0) } else { value.as_f64() };
        let short = |value: &'c Value| value.as_array().filter(|array| array.len() <= most);
        match self.is_null(key) {
            true => Ok(None),
            false => self.typed(key, &format!("an array of {most} numbers or fewer"), |value| {
                short(value)?.iter().map(number).collect()
            }),
        }
    }

    /// An array of `count` texts; `None` if the key is missing or null.
    ///
    /// # Errors
    /// If the value is anything else.
    pub fn texts_or_null(&self, key: &str, count: usize) -> Result<Option<Vec<&'c str>>, FamilyError> {
        let whole = |value: &'c Value| value.as_array().filter(|array| array.len() == count);
        match self.is_null(key) {
            true => Ok(None),
            false => self.typed(key, &format!("an array of {count} texts"), |value| {
                whole(value)?.iter().map(Value::as_str).collect()
            }),
        }
    }

    /// Checks keys of which only one value is known. The reference takes that one where a key is missing.
    ///
    /// # Errors
    /// Another value.
    pub fn fixed(&self, table: &[(&str, Fixed)]) -> Result<(), FamilyError> {
        for &(key, expected) in table {
            let Some(found) = self.object.get(key) else { continue };
            let (fits, expected) = match expected {
                Fixed::Flag(flag) => (found.as_bool() == Some(flag), flag.to_string()),
                Fixed::Word(word) => (found.as_str() == Some(word), format!("\"{word}\"")),
                Fixed::Size(size) => (found.as_u64() == Some(size as u64), size.to_string()),
            };
            if !fits {
                return Err(self.wrong(key, &expected, &found.to_string()));
            }
        }
        Ok(())
    }

    /// Refuses keys for which there is nothing in the family; null and an empty array say nothing either.
    ///
    /// # Errors
    /// A key with a value.
    pub fn refuse(&self, keys: &[&str]) -> Result<(), FamilyError> {
        let nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        match keys.iter().find_map(|key| Some((key, self.object.get(*key).filter(|value| !nothing(value))?))) {
            Some((key, found)) => Err(self.wrong(key, "no such key", &found.to_string())),
            None => Ok(()),
        }
    }
}

/// A value as metadata holds it; `None` for what it cannot hold.
fn meta_value(value: &Value) -> Option<MetaValue> {
    Some(match value {
        Value::Bool(b) => MetaValue::Bool(*b),
        Value::String(text) => MetaValue::Text(text.clone()),
        Value::Array(values) => MetaValue::Array(values.iter().map(meta_value).collect::<Option<_>>()?),
        Value::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) => MetaValue::Uint(n),
            (None, Some(n)) => MetaValue::Int(n),
            (None, None) => MetaValue::Float(n.as_f64()?),
        },
        Value::Null | Value::Object(_) => return None,
    })
}
