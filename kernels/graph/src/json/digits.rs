//! 64-bit integers as strings of decimal digits: many JSON readers keep numbers in 53 bits.
//!
//! For `#[serde(with = "bantam_graph::json::digits")]`; lists of them with [`list`].

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// How much of a text is shown that is no such integer: more than one has digits.
const LONGEST_SHOWN: usize = 24;

/// Writes an integer.
///
/// # Errors
/// What the serializer refuses.
pub fn serialize<T: Display, S: Serializer>(number: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Reads an integer, as [`serialize`] writes it: no sign but `-`, no leading zeros.
///
/// # Errors
/// Another value than such a string, or an integer that does not fit.
pub fn deserialize<'de, T: Display + FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    let number = text.parse().ok().filter(|number: &T| number.to_string() == text);
    number.ok_or_else(|| {
        let text: String = text.chars().take(LONGEST_SHOWN).collect();
        D::Error::custom(format_args!("expected an integer of 64 bits as a string of digits, found {text:?}"))
    })
}

/// The same for a list.
pub mod list {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent, bound(serialize = "T: Display", deserialize = "T: Display + FromStr"))]
    struct Digits<T>(#[serde(with = "super")] T);

    /// Writes integers.
    ///
    /// # Errors
    /// What the serializer refuses.
    pub fn serialize<T: Display, S: Serializer>(numbers: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(numbers.iter().map(Digits))
    }

    /// Reads integers.
    ///
    /// # Errors
    /// As [`super::deserialize`].
    pub fn deserialize<'de, T: Display + FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        let numbers = Vec::<Digits<T>>::deserialize(deserializer)?;
        Ok(numbers.into_iter().map(|Digits(number)| number).collect())
    }
}

/// JSON Schema of such strings.
#[cfg(feature = "schema")]
pub mod schema {
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    /// Stands for a `u64`.
    #[derive(Debug)]
    pub struct Uint;

    /// Stands for an `i64`.
    #[derive(Debug)]
    pub struct Int;

    impl JsonSchema for Uint {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            "Uint".into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "description": "An integer from 0 to 2^64 - 1 as a string of digits.",
                "type": "string",
                "pattern": format!("^({})$", up_to(u64::MAX)),
            })
        }
    }

    impl JsonSchema for Int {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            "Int".into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            let (most, least) = (up_to(i64::MAX.unsigned_abs()), up_to(i64::MIN.unsigned_abs()));
            json_schema!({
                "description": "An integer from -2^63 to 2^63 - 1 as a string of digits.",
                "type": "string",
                "pattern": format!("^({most}|-({}))$", least.trim_start_matches("0|")),
            })
        }
    }

    /// A regular expression for the integers from 0 to this one, without leading zeros.
    fn up_to(most: u64) -> String {
        let digits = most.to_string();
        let mut choices = vec!["0".to_owned(), format!("[1-9][0-9]{{0,{}}}", digits.len() - 2)];
        // As long as it, and smaller at one digit.
        for (i, digit) in digits.bytes().enumerate() {
            let least = if i == 0 { b'1' } else { b'0' };
            if digit > least {
                let (least, below) = (char::from(least), char::from(digit - 1));
                choices.push(format!("{}[{least}-{below}][0-9]{{{}}}", &digits[..i], digits.len() - i - 1));
            }
        }
        choices.push(digits);
        choices.join("|")
    }
}
