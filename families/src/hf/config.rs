//! Typed access to `config.json`.

use bantam_family_api::{FamilyError, MetaValue};
use serde_json::{Map, Value};

/// An object of `config.json`. Every error names the whole key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config<'c> {
    object: &'c Map<String, Value>,
    parent: Option<&'c str>,
}

impl<'c> Config<'c> {
    /// The whole file.
    pub(crate) fn new(object: &'c Map<String, Value>) -> Self {
        Config { object, parent: None }
    }

    /// The object under a key of this one; `None` if there is none.
    pub(crate) fn object(&self, key: &'c str) -> Option<Self> {
        let object = self.object.get(key)?.as_object()?;
        Some(Config { object, parent: Some(key) })
    }

    /// The whole key, for people.
    pub(crate) fn path(&self, key: &str) -> String {
        let parent = self.parent.map(|parent| format!("{parent}.")).unwrap_or_default();
        format!("config.json: {parent}{key}")
    }

    /// The value of a key, if it is given and not null.
    pub(crate) fn get(&self, key: &str) -> Option<&'c Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        take: impl Fn(&'c Value) -> Option<T>,
    ) -> Result<Option<T>, FamilyError> {
        let value = self.get(key).map(|value| take(value).ok_or_else(|| self.wrong(key, expected, &value.to_string())));
        value.transpose()
    }

    /// An error about this key.
    pub(crate) fn wrong(&self, key: &str, expected: &str, found: &str) -> FamilyError {
        FamilyError::Key { key: self.path(key), expected: expected.into(), found: found.into() }
    }

    /// A count or size, if given.
    ///
    /// # Errors
    /// If the value is no integer of 0 or more.
    pub(crate) fn size_opt(&self, key: &str) -> Result<Option<usize>, FamilyError> {
        self.typed(key, "an integer of 0 or more", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// A size of at least 1 that must be given.
    ///
    /// # Errors
    /// If it is missing, 0 or no integer.
    pub(crate) fn size(&self, key: &str) -> Result<usize, FamilyError> {
        match self.size_opt(key)? {
            None => Err(self.wrong(key, "an integer of 1 or more", "no such key")),
            Some(0) => Err(self.wrong(key, "an integer of 1 or more", "0")),
            Some(n) => Ok(n),
        }
    }

    /// A number, if given.
    ///
    /// # Errors
    /// If the value is no number.
    pub(crate) fn number_opt(&self, key: &str) -> Result<Option<f64>, FamilyError> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// Whether something is so, if given.
    ///
    /// # Errors
    /// If the value is no bool.
    pub(crate) fn bool_opt(&self, key: &str) -> Result<Option<bool>, FamilyError> {
        self.typed(key, "a bool", Value::as_bool)
    }

    /// Text, if given.
    ///
    /// # Errors
    /// If the value is no text.
    pub(crate) fn text_opt(&self, key: &str) -> Result<Option<&'c str>, FamilyError> {
        self.typed(key, "text", Value::as_str)
    }

    /// An array of numbers in which null stands for 0, if given.
    ///
    /// # Errors
    /// If the value is anything else.
    pub(crate) fn numbers_opt(&self, key: &str) -> Result<Option<Vec<f64>>, FamilyError> {
        let number = |value: &Value| if value.is_null() { Some(0.0) } else { value.as_f64() };
        self.typed(key, "an array of numbers", |value| value.as_array()?.iter().map(number).collect())
    }

    /// An array of texts, if given.
    ///
    /// # Errors
    /// If the value is anything else.
    pub(crate) fn texts_opt(&self, key: &str) -> Result<Option<Vec<&'c str>>, FamilyError> {
        self.typed(key, "an array of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }
}

/// A value as metadata holds it; `None` for what it cannot hold.
pub(super) fn meta_value(value: &Value) -> Option<MetaValue> {
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
