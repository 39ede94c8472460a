//! JSON objects that must be there: the type of their own also takes null for one without keys.

use serde::{
    Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// Reads an object.
///
/// # Errors
/// What is none, null included.
pub fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    struct Object;

    impl<'de> Visitor<'de> for Object {
        type Value = Map<String, Value>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut map = Map::new();
            while let Some((key, value)) = entries.next_entry()? {
                map.insert(key, value);
            }
            Ok(map)
        }
    }

    deserializer.deserialize_map(Object)
}
