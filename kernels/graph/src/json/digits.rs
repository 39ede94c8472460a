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
