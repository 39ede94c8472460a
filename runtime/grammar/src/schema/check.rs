//! What in a schema is known not to be supported, found before anything is compiled.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::Fault;
use super::walk::{children, pointed_at};

/// Schemas in a schema. The compiler goes from one to the next by calls, and its stack is bounded.
const MOST_SCHEMAS: usize = 8192;
/// How deep they may stand in each other.
const DEEPEST: usize = 64;

/// Keywords that restrict what is valid, and that no grammar is made of.
const UNSUPPORTED: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Formats that JSON schema defines and that no grammar is made of. Any other unknown name is a remark.
const UNSUPPORTED_FORMATS: &[&str] = &[
    "idn-email",
    "idn-hostname",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "uri-reference",
    "uri-template",
];

/// Formats that texts are held to.
pub(super) const FORMATS: &[&str] =
    &["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

/// Goes through everything that counts, also behind references.
pub(super) fn check(root: &Value) -> Result<(), Fault> {
    let mut ahead = vec![(String::new(), root, 0)];
    let mut referred = HashSet::new();
    let mut count = 0;
    while let Some((path, schema, depth)) = ahead.pop() {
        count += 1;
        if count > MOST_SCHEMAS {
            return Err(Fault::new(
                "",
                "",
                format!("there are more than {MOST_SCHEMAS} schemas in it; make it smaller"),
            ));
        }
        if depth > DEEPEST {
            return Err(Fault::new(&path, "", format!("is nested deeper than {DEEPEST}; use `$ref` or flatten it")));
        }
        let Some(object) = object(&path, schema)? else { continue };
        keywords(&path, object)?;
        if let Some((target, schema)) = reference(root, &path, object)?
            && referred.insert(target.clone())
        {
            ahead.push((target, schema, 0));
        }
        let below = children(schema).into_iter().map(|(step, schema)| (format!("{path}{step}"), schema, depth + 1));
        ahead.extend(below);
    }
    Ok(())
}

fn object<'a>(path: &str, schema: &'a Value) -> Result<Option<&'a Map<String, Value>>, Fault> {
    match schema {
        Value::Object(object) => Ok(Some(object)),
        Value::Bool(_) => Ok(None),
        other => Err(Fault::new(path, "", format!("a schema is an object or a boolean, found {}", excerpt(other)))),
    }
}

fn keywords(path: &str, object: &Map<String, Value>) -> Result<(), Fault> {
    for (keyword, value) in object {
        if UNSUPPORTED.contains(&keyword.as_str()) && !says_nothing(keyword, value) {
            return Err(Fault::new(path, keyword, "is not supported; leave it out or say it in the description"));
        }
    }
    if let Some(format) = object.get("format").and_then(Value::as_str)
        && UNSUPPORTED_FORMATS.contains(&format)
    {
        let known = FORMATS.join(", ");
        return Err(Fault::new(
            path,
            "format",
            format!("{format:?} is not supported; use `pattern` or one of {known}"),
        ));
    }
    properties_needed(path, object)
}

/// Whether a keyword with this value restricts nothing.
pub(super) fn says_nothing(keyword: &str, value: &Value) -> bool {
    match keyword {
        "uniqueItems" => *value == Value::Bool(false),
        "unevaluatedItems" | "unevaluatedProperties" => *value == Value::Bool(true),
        "propertyNames" => is_any_text(value),
        "dependencies" | "dependentRequired" | "dependentSchemas" => value.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Whether a schema takes every name of a property: names are texts.
fn is_any_text(schema: &Value) -> bool {
    let says_nothing = |(keyword, value): (&String, &Value)| match keyword.as_str() {
        "type" => value == "string",
        "title" | "description" | "$comment" => true,
        _ => false,
    };
    schema == true || schema.as_object().is_some_and(|schema| schema.iter().all(says_nothing))
}

/// A grammar counts members, and a name may come twice: so it can make sure of one undeclared name, not of several.
fn properties_needed(path: &str, object: &Map<String, Value>) -> Result<(), Fault> {
    let required = object.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    match object.get("minProperties").and_then(Value::as_u64) {
        Some(least) if least > required + 1 => {
            let reason = format!("{least} is supported only up to one more than `required` lists; list more there");
            Err(Fault::new(path, "minProperties", reason))
        }
        _ => Ok(()),
    }
}

/// What the schema refers to, if it does. References by anchor are left to the compiler.
fn reference<'a>(
    root: &'a Value,
    path: &str,
    object: &Map<String, Value>,
) -> Result<Option<(String, &'a Value)>, Fault> {
    let Some(value) = object.get("$ref") else { return Ok(None) };
    let Some(text) = value.as_str() else {
        return Err(Fault::new(path, "$ref", format!("is a text, found {}", excerpt(value))));
    };
    if !text.starts_with('#') {
        let reason = format!("{text:?} is outside of the schema, and nothing is fetched; put it into `$defs`");
        return Err(Fault::new(path, "$ref", reason));
    }
    match pointed_at(root, text) {
        None if text.starts_with("#/") && !text.contains('%') => {
            Err(Fault::new(path, "$ref", format!("{text:?} refers to nothing in the schema")))
        }
        found => Ok(found),
    }
}

fn excerpt(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_may_be_any_text_are_no_restriction() {
        for any in
            [json!(true), json!({}), json!({"type": "string"}), json!({"type": "string", "description": "a name"})]
        {
            assert_eq!(check(&json!({"type": "object", "propertyNames": any})), Ok(()), "{any}");
        }
        for some in [json!(false), json!({"pattern": "^a"}), json!({"type": "string", "maxLength": 3})] {
            let fault = check(&json!({"properties": {"x": {"propertyNames": some}}})).unwrap_err();
            assert!(format!("{fault:?}").contains("propertyNames"), "{fault:?}");
        }
    }
}
