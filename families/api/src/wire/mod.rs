//! What crosses between Bantam and a family plugin: bytes that hold JSON.
//!
//! A plugin answers two questions: who it is ([`Description`]) and what a checkpoint is ([`BuildRequest`] to
//! [`BuildAnswer`]). [`description`] and [`answer`] do a plugin's whole work for a [`crate::Family`].
//!
//! Each message is an object with the version beside one other key. Nothing that is not known is passed over: an ignored
//! attribute would make a model silently wrong. The one exception is a kind of call syntax, whose calls then stay text.

pub(crate) mod base64;
mod build;
mod error;
pub(crate) mod float;
mod introduction;
mod op;
#[cfg(feature = "schema")]
pub mod schema;
mod serve;

pub use build::{BuildAnswer, BuildRequest};
pub use error::WireError;
pub use introduction::Description;
pub use op::{OpAnswer, OpDescription, OpRequest};
pub use serve::{answer, description};

use serde_json::Value;

/// Version of the functions that a plugin exports and of the JSON that they take and give.
pub const ABI: u32 = 0;

/// Why bytes are not the message that they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Another version.
    #[error("version {found} of `bantam_plugin`, expected {ABI}: build the plugin with the SDK of this version")]
    Version {
        /// Found.
        found: String,
    },
    /// They are no JSON, or something is missing, twice, of another type, or not known.
    #[error("{0}")]
    Content(String),
}

/// The JSON in these bytes, if it is of this version and holds at most so many values.
fn of_this_version(bytes: &[u8], most: usize) -> Result<Value, Malformed> {
    let value = bantam_graph::json::parse(bytes, most).map_err(Malformed::Content)?;
    match value.get("bantam_plugin") {
        Some(version) if *version == ABI => Ok(value),
        Some(other) => Err(Malformed::Version { found: other.to_string() }),
        None => Err(Malformed::Content("expected an object with a key `bantam_plugin`, the version".into())),
    }
}

/// Most values in what a plugin answers.
const MOST_ANSWERED: usize = bantam_graph::json::MOST_VALUES;
/// Most values in what it is asked: a checkpoint has as many as its files have tensors.
const MOST_ASKED: usize = usize::MAX;

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, Malformed> {
    bantam_graph::json::read(value).map_err(Malformed::Content)
}
