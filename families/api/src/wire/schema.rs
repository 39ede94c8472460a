//! JSON Schema of the messages, made of the types that read them.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

use crate::CallSyntax;

use super::{ABI, BuildAnswer, BuildRequest, Description, OpAnswer, OpRequest, WireError};

/// Bytes as base64, with padding.
pub(crate) struct Base64;

impl JsonSchema for Base64 {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Base64".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bytes as base64, with padding.",
            "type": "string",
            "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$",
        })
    }
}

/// Bounds of an integer by its format, which validators need not know.
fn bound(schema: &mut Value) {
    match schema {
        Value::Object(keys) => {
            let most = match keys.get("format").and_then(Value::as_str) {
                Some("uint" | "uint64") => Some(u64::MAX),
                Some("uint32") => Some(u32::MAX.into()),
                _ => None,
            };
            keys.extend(most.map(|most| ("maximum".to_owned(), json!(most))));
            keys.values_mut().for_each(bound);
        }
        Value::Array(entries) => entries.iter_mut().for_each(bound),
        _ => {}
    }
}

/// Lets the list of call syntaxes hold kinds that this version does not know.
fn with_unknown_calls(definitions: &mut Map<String, Value>) {
    let Some(calls) = definitions.get_mut("ChatFormat").and_then(|chat| chat.pointer_mut("/properties/calls/items"))
    else {
        return;
    };
    let unknown = json!({"not": {"enum": CallSyntax::KINDS}});
    *calls = json!({"anyOf": [
        calls.take(),
        {
            "description": "A kind that this version does not know: such calls stay text.",
            "anyOf": [
                {"type": "string", "allOf": [unknown.clone()]},
                {"type": "object", "minProperties": 1, "maxProperties": 1, "propertyNames": unknown},
            ],
        },
    ]});
}

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

impl JsonSchema for OpAnswer {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OpAnswer".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let error = generator.subschema_for::<WireError>();
        json_schema!({
            "description": "What a plugin says of an op.",
            "oneOf": [
                {
                    "type": "object",
                    "properties": {
                        "width": {
                            "type": "integer",
                            "format": "uint",
                            "minimum": 0,
                            "description": "Entries of a row of its result.",
                        },
                        "cuda": {
                            "type": ["string", "null"],
                            "description": "Source of a function in CUDA C++ that computes a row on a card, if there is one.",
                        },
                    },
                    "required": ["width"],
                    "additionalProperties": false,
                },
                {
                    "description": "Why there is no such op.",
                    "type": "object",
                    "properties": {"error": error},
                    "required": ["error"],
                    "additionalProperties": false,
                },
            ],
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
    with_unknown_calls(&mut definitions);
    definitions.values_mut().for_each(bound);
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
