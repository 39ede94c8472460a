//! Floats in JSON, which has no words for those that are no numbers.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A number, or one of the words for what is none.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum Float {
    Number(f64),
    Word(Word),
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) enum Word {
    #[serde(rename = "inf")]
    Infinity,
    #[serde(rename = "-inf")]
    NegativeInfinity,
    #[serde(rename = "nan")]
    Nan,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
pub(crate) fn serialize<S: Serializer>(x: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let float = match *x {
        x if x.is_nan() => Float::Word(Word::Nan),
        f64::INFINITY => Float::Word(Word::Infinity),
        f64::NEG_INFINITY => Float::Word(Word::NegativeInfinity),
        x => Float::Number(x),
    };
    float.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let float = Float::deserialize(deserializer);
    let float = float.map_err(|_| D::Error::custom("expected a number, or \"inf\", \"-inf\" or \"nan\""))?;
    Ok(match float {
        Float::Number(x) => x,
        Float::Word(Word::Infinity) => f64::INFINITY,
        Float::Word(Word::NegativeInfinity) => f64::NEG_INFINITY,
        Float::Word(Word::Nan) => f64::NAN,
    })
}
