//! Reading what somebody else wrote: every refusal says where.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// What serde says of an object where it expects the one key of an enum; which keys there are, it does not.
const SEVERAL_KEYS: &str = "map with a single key";

/// Reads a value.
///
/// # Errors
/// Where something is that does not belong there, and what: `text.nodes[2].op.linear: unknown field …`.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, why) = (error.path(), error.inner().to_string());
        let why = if why.contains(SEVERAL_KEYS) { several_keys(value, path).unwrap_or(why) } else { why };
        match path.iter().next() {
            Some(_) => format!("{path}: {why}"),
            None => why,
        }
    })
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
