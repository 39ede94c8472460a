//! JSON Schema of the messages, made of the types that read them.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

use super::{ABI, BuildAnswer, BuildRequest, Description, OpAnswer, OpRequest, WireError};

/// A 64-bit integer as a string of digits.
#[derive(JsonSchema)]
#[schemars(extend("pattern" = "^(0|-?[1-9][0-9]*)$"))]
pub(crate) struct Digits(#[allow(dead_code, reason = "for its schema alone")] String);

impl JsonSchema for WireError {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Error".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let object = |keys: &[&str]| {
            let properties: Map<String, Value> =
                keys.iter().map(|&key| (key.into(), json!({"type": "string"}))).collect();
            json!({"type": "object", "properties": properties, "required": keys, "additionalProperties": false})
        };
        json_schema!({
            "description": "Why a plugin cannot do what it was asked: a key, a tensor, or a sentence for people.",
            "oneOf": [object(&["key", "expected", "found"]), object(&["tensor", "expected", "found"]), object(&["message"])],
        })
    }
}

/// The schema of all messages. Each kind of them has a definition of its own: `Description`, `BuildRequest`, `BuildAnswer`,
/// `OpRequest` and `OpAnswer`.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let names = [
        generator.subschema_for::<Description>(),
        generator.subschema_for::<BuildRequest>(),
        generator.subschema_for::<BuildAnswer>(),
        generator.subschema_for::<OpRequest>(),
        generator.subschema_for::<OpAnswer>(),
    ];
    let mut definitions = generator.take_definitions(true);
    for message in ["BuildRequest", "BuildAnswer", "OpAnswer"] {
        let kinds = definitions.get_mut(message).and_then(|schema| schema.get_mut("oneOf")?.as_array_mut());
        kinds.into_iter().flatten().for_each(add_version);
    }
    for message in ["Description", "OpRequest"] {
        let version = definitions.get_mut(message).and_then(|schema| schema.pointer_mut("/properties/bantam_plugin"));
        version.into_iter().for_each(|version| *version = json!({"const": ABI}));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("What crosses between Bantam and a family plugin, version {ABI}"),
        "anyOf": names,
        "$defs": definitions,
    })
}

/// Adds the key that stands beside the content of a message.
fn add_version(message: &mut Value) {
    message["properties"]["bantam_plugin"] = json!({"const": ABI});
    if let Some(required) = message["required"].as_array_mut() {
        required.insert(0, "bantam_plugin".into());
    }
}
