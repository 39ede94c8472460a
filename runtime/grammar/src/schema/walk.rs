//! The schemas inside a schema.

use serde_json::Value;

/// Keywords whose value is a schema.
const ONE: &[&str] = &["items", "additionalItems", "additionalProperties"];
/// Keywords whose value is a list of schemas.
const LISTED: &[&str] = &["anyOf", "oneOf", "allOf", "prefixItems", "items"];
/// Keywords whose value is an object of schemas, by names that are no keywords.
const NAMED: &[&str] = &["properties", "patternProperties"];
/// The same, of schemas that count only where something refers to them.
const DEFINED: &[&str] = &["$defs", "definitions"];

/// The schemas directly inside, each with its path from this one.
pub(crate) fn children(schema: &Value) -> Vec<(String, &Value)> {
    inside(schema, NAMED)
}

/// Those, and the definitions.
pub(crate) fn children_and_definitions(schema: &Value) -> Vec<(String, &Value)> {
    inside(schema, &[NAMED, DEFINED].concat())
}

fn inside<'a>(schema: &'a Value, named: &[&str]) -> Vec<(String, &'a Value)> {
    let Some(object) = schema.as_object() else { return Vec::new() };
    let mut found = Vec::new();
    for (keyword, value) in object {
        let keyword = keyword.as_str();
        match value {
            Value::Array(list) if LISTED.contains(&keyword) => {
                found.extend(list.iter().enumerate().map(|(index, each)| (format!("/{keyword}/{index}"), each)));
            }
            Value::Object(map) if named.contains(&keyword) => {
                found.extend(map.iter().map(|(name, each)| (format!("/{keyword}/{}", escaped(name)), each)));
            }
            Value::Object(_) | Value::Bool(_) if ONE.contains(&keyword) => found.push((format!("/{keyword}"), value)),
            _ => {}
        }
    }
    found
}

/// A name as a JSON pointer has it.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// What a reference refers to, with its path. None: not a place in this document, as far as can be told.
pub(crate) fn pointed_at<'a>(root: &'a Value, reference: &str) -> Option<(String, &'a Value)> {
    let path = reference.strip_prefix('#')?;
    Some((path.to_owned(), root.pointer(path)?))
}
