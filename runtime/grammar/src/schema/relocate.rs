//! Schemas moved to another place, with their references.

use serde_json::{Map, Value, json};

/// Where the whole schema is kept beside a part of it.
const WHOLE: &str = "#/$defs/whole";

/// A schema that describes what the part of `root` at `path` describes.
pub(crate) fn part(root: &Value, path: &str) -> Value {
    json!({"$defs": {"whole": moved(root)}, "$ref": format!("{WHOLE}{path}")})
}

/// `schema`, whose references lead into `root`, as a document of its own.
pub(crate) fn within(root: &Value, schema: &Value) -> Value {
    let mut alone = moved(schema);
    if let Some(object) = alone.as_object_mut() {
        object.remove("definitions");
        object.insert("$defs".into(), json!({"whole": moved(root)}));
    }
    alone
}

fn moved(value: &Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(object.iter().map(member).collect::<Map<_, _>>()),
        Value::Array(list) => Value::Array(list.iter().map(moved).collect()),
        other => other.clone(),
    }
}

fn member((name, value): (&String, &Value)) -> (String, Value) {
    let reference = value.as_str().filter(|_| name == "$ref").and_then(|reference| reference.strip_prefix('#'));
    let value = reference.map_or_else(|| moved(value), |path| Value::String(format!("{WHOLE}{path}")));
    (name.clone(), value)
}
