//! Refusals in JSON.

use serde::{Deserialize, Serialize};

use crate::FamilyError;

/// Why a plugin cannot describe a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Keys", into = "Keys")]
pub enum WireError {
    /// `{"key":…,"expected":…,"found":…}`: a metadata key is missing or has a value that cannot be.
    Key {
        /// The key.
        key: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// `{"tensor":…,"expected":…,"found":…}`: a tensor is missing or has another shape.
    Tensor {
        /// The tensor.
        tensor: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// `{"message":…}`: anything else.
    Message {
        /// A sentence for people.
        message: String,
    },
}

impl WireError {
    /// An error that is a sentence.
    pub fn message(message: impl Into<String>) -> Self {
        WireError::Message { message: message.into() }
    }
}

/// All keys that a refusal may have.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
}

impl TryFrom<Keys> for WireError {
    type Error = &'static str;

    fn try_from(keys: Keys) -> Result<Self, Self::Error> {
        match keys {
            Keys { message: Some(message), key: None, tensor: None, expected: None, found: None } => {
                Ok(WireError::Message { message })
            }
            Keys { message: None, key: Some(key), tensor: None, expected: Some(expected), found: Some(found) } => {
                Ok(WireError::Key { key, expected, found })
            }
            Keys { message: None, key: None, tensor: Some(tensor), expected: Some(expected), found: Some(found) } => {
                Ok(WireError::Tensor { tensor, expected, found })
            }
            _ => Err(
                "expected the keys `message`, or `key`, `expected` and `found`, or `tensor`, `expected` and `found`",
            ),
        }
    }
}

impl From<WireError> for Keys {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Message { message } => Keys { message: Some(message), ..Keys::default() },
            WireError::Key { key, expected, found } => {
                Keys { key: Some(key), expected: Some(expected), found: Some(found), ..Keys::default() }
            }
            WireError::Tensor { tensor, expected, found } => {
                Keys { tensor: Some(tensor), expected: Some(expected), found: Some(found), ..Keys::default() }
            }
        }
    }
}

impl From<FamilyError> for WireError {
    fn from(error: FamilyError) -> Self {
        match error {
            FamilyError::Key { key, expected, found } => WireError::Key { key, expected, found },
            FamilyError::Tensor { tensor, expected, found } => WireError::Tensor { tensor, expected, found },
            other => WireError::message(other.to_string()),
        }
    }
}

impl From<WireError> for FamilyError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Key { key, expected, found } => FamilyError::Key { key, expected, found },
            WireError::Tensor { tensor, expected, found } => FamilyError::Tensor { tensor, expected, found },
            WireError::Message { message } => FamilyError::Unsupported(message),
        }
    }
}
