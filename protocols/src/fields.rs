//! Reading the fields of a JSON request: a wrong type is an error that names the field by its path.
//!
//! One rule for all protocols: `null` means absent, unknown fields are ignored, and what is known must have its type.

use serde_json::{Map, Value};

/// A field that cannot be taken as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", self.subject())]
pub(crate) struct FieldError {
    /// Where in the body: `messages[2].content`; empty for the body itself.
    pub(crate) path: String,
    /// What is wrong with it, a clause that follows the field's name.
    pub(crate) problem: String,
}

impl FieldError {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        FieldError { path: path.into(), problem: problem.into() }
    }

    fn subject(&self) -> String {
        if self.path.is_empty() { "The request body ".to_owned() } else { format!("`{}` ", self.path) }
    }
}

/// What a JSON value is, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(n) if n.is_f64() => "a fraction",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A value of the request and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    /// The whole body.
    pub(crate) fn body(value: &'a Value) -> Self {
        Field { path: String::new(), value }
    }

    /// A value that stands there, in its own form or another one.
    pub(crate) fn at(path: String, value: &'a Value) -> Self {
        Field { path, value }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// An error about this field: `problem` follows its name in the sentence.
    pub(crate) fn error(&self, problem: impl Into<String>) -> FieldError {
        FieldError::new(self.path.clone(), problem)
    }

    pub(crate) fn expected(&self, what: &str) -> FieldError {
        self.error(format!("must be {what}, found {}", kind(self.value)))
    }

    pub(crate) fn text(&self) -> Result<&'a str, FieldError> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    pub(crate) fn flag(&self) -> Result<bool, FieldError> {
        self.value.as_bool().ok_or_else(|| self.expected("a boolean"))
    }

    pub(crate) fn number(&self) -> Result<f32, FieldError> {
        self.value.as_f64().map(|n| n as f32).ok_or_else(|| self.expected("a number"))
    }

    /// An integer; `3.0` counts as one, as some clients know no other numbers.
    pub(crate) fn integer(&self) -> Result<i64, FieldError> {
        let whole = self.whole()?;
        i64::try_from(whole).map_err(|_| self.out_of_range(i128::from(i64::MIN), i128::from(i64::MAX)))
    }

    /// An integer of 64 bits, with or without a sign.
    pub(crate) fn bits(&self) -> Result<u64, FieldError> {
        let whole = self.whole()?;
        let bits = u64::try_from(whole).ok().or_else(|| i64::try_from(whole).ok().map(|n| n as u64));
        bits.ok_or_else(|| self.out_of_range(i128::from(i64::MIN), i128::from(u64::MAX)))
    }

    /// Beyond 2^64 the nearest that JSON's numbers are read as.
    fn whole(&self) -> Result<i128, FieldError> {
        let Value::Number(n) = self.value else { return Err(self.expected("an integer")) };
        let float = n.as_f64().filter(|x| x.fract() == 0.0).map(|x| x as i128);
        n.as_i128().or(float).ok_or_else(|| self.expected("an integer"))
    }

    fn out_of_range(&self, least: i128, most: i128) -> FieldError {
        self.error(format!("must be between {least} and {most}, found {}", self.value))
    }

    /// An integer in `least..=most`.
    pub(crate) fn count(&self, least: usize, most: usize) -> Result<usize, FieldError> {
        let n = self.integer()?;
        usize::try_from(n).ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| {
            self.error(if most == usize::MAX {
                format!("must be at least {least}, found {n}")
            } else {
                format!("must be between {least} and {most}, found {n}")
            })
        })
    }

    pub(crate) fn token(&self) -> Result<u32, FieldError> {
        self.count(0, u32::MAX as usize).map(|n| n as u32)
    }

    pub(crate) fn object(&self) -> Result<Fields<'a>, FieldError> {
        match self.value {
            Value::Object(map) => Ok(Fields { path: self.path.clone(), map }),
            _ => Err(self.expected("an object")),
        }
    }

    /// The elements of an array, each with its index in the path.
    pub(crate) fn items(&self) -> Result<Vec<Field<'a>>, FieldError> {
        let Value::Array(items) = self.value else { return Err(self.expected("an array")) };
        let at = |(i, value)| Field { path: format!("{}[{i}]", self.path), value };
        Ok(items.iter().enumerate().map(at).collect())
    }
}

/// An object of the request and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// The path of a field of this object, present or not.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A field, unless it is absent or null.
    pub(crate) fn get(&self, key: &str) -> Option<Field<'a>> {
        let value = self.map.get(key).filter(|v| !v.is_null())?;
        Some(Field { path: self.path_of(key), value })
    }

    /// A field that must be there.
    pub(crate) fn required(&self, key: &str) -> Result<Field<'a>, FieldError> {
        self.get(key).ok_or_else(|| FieldError::new(self.path_of(key), "is required"))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, FieldError> {
        self.get(key).map(|f| f.text()).transpose()
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, FieldError> {
        self.get(key).map(|f| f.flag()).transpose()
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>, FieldError> {
        self.get(key).map(|f| f.number()).transpose()
    }

    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, FieldError> {
        self.get(key).map(|f| f.integer()).transpose()
    }

    pub(crate) fn count(&self, key: &str, least: usize, most: usize) -> Result<Option<usize>, FieldError> {
        self.get(key).map(|f| f.count(least, most)).transpose()
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Fields<'a>>, FieldError> {
        self.get(key).map(|f| f.object()).transpose()
    }

    pub(crate) fn items(&self, key: &str) -> Result<Option<Vec<Field<'a>>>, FieldError> {
        self.get(key).map(|f| f.items()).transpose()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Bodies that nobody would send, for the tests of the protocols.

    use proptest::prelude::*;

    use super::*;

    /// Any JSON whose objects have these keys, and whose texts are among these words: made-up bodies get past the first
    /// field.
    pub(crate) fn any_json(
        keys: &'static [&'static str],
        words: &'static [&'static str],
    ) -> impl Strategy<Value = Value> + Clone {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(words).prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, move |inner| {
            let key = prop::sample::select(keys).prop_map(str::to_owned);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..8).prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    /// These bodies, each with one field that is anything.
    pub(crate) fn nearly_right(
        right: Vec<Value>,
        keys: &'static [&'static str],
        words: &'static [&'static str],
    ) -> impl Strategy<Value = Value> {
        let replaced = |(mut body, key, value): (Value, &str, Value)| {
            body[key] = value;
            body
        };
        (prop::sample::select(right), prop::sample::select(keys), any_json(keys, words)).prop_map(replaced)
    }

    /// Whether this names the field at fault, one of `keys`, or the body.
    pub(crate) fn is_named(fault: &FieldError, keys: &[&str]) -> bool {
        let named = if fault.path.is_empty() { "The request body".to_owned() } else { format!("`{}`", fault.path) };
        let key = fault.path.split(['.', '[']).next().unwrap_or_default();
        fault.to_string().starts_with(&named) && (key.is_empty() || keys.contains(&key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem<T: std::fmt::Debug>(result: Result<T, FieldError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn null_is_absent_and_absent_is_none() {
        let body = json!({"a": null, "b": 1});
        let fields = Field::body(&body).object().unwrap();
        assert!(fields.get("a").is_none());
        assert_eq!(fields.text("c").unwrap(), None);
        assert_eq!(fields.integer("b").unwrap(), Some(1));
        assert_eq!(problem(fields.required("a")), "`a` is required");
    }

    #[test]
    fn wrong_types_are_named_by_path() {
        let body = json!({"messages": [{"content": "x"}, {"content": 3}], "n": "two", "t": 1.5});
        let fields = Field::body(&body).object().unwrap();
        let messages = fields.items("messages").unwrap().unwrap();
        assert_eq!(messages[0].object().unwrap().text("content").unwrap(), Some("x"));
        let second = messages[1].object().unwrap();
        assert_eq!(problem(second.text("content")), "`messages[1].content` must be a string, found an integer");
        assert_eq!(problem(second.required("role")), "`messages[1].role` is required");
        assert_eq!(problem(fields.count("n", 1, 9)), "`n` must be an integer, found a string");
        assert_eq!(problem(fields.integer("t")), "`t` must be an integer, found a fraction");
        assert_eq!(problem(fields.flag("t")), "`t` must be a boolean, found a fraction");
        assert_eq!(problem(Field::body(&json!([])).object()), "The request body must be an object, found an array");
    }

    #[test]
    fn integers_may_be_written_as_whole_floats_but_stay_in_range() {
        let body = json!({"a": 3.0, "b": -1, "c": 1e300, "d": 18446744073709551615_u64});
        let fields = Field::body(&body).object().unwrap();
        assert_eq!(fields.integer("a").unwrap(), Some(3));
        assert_eq!(problem(fields.count("b", 1, usize::MAX)), "`b` must be at least 1, found -1");
        assert_eq!(problem(fields.count("a", 4, 5)), "`a` must be between 4 and 5, found 3");
        let range = "must be between -9223372036854775808 and 9223372036854775807, found 18446744073709551615";
        assert_eq!(problem(fields.integer("d")), format!("`d` {range}"));
        assert!(problem(fields.integer("c")).starts_with("`c` must be between -9223372036854775808 and"));
        let bits = |key: &str| fields.get(key).unwrap().bits();
        assert_eq!((bits("b").unwrap(), bits("d").unwrap()), (u64::MAX, u64::MAX));
        assert!(problem(bits("c")).contains("and 18446744073709551615, found "));
    }
}
