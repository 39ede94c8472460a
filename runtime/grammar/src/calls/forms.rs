//! Values between tags: a text as it stands, or JSON. The schema says which.

use serde_json::{Map, Value, json};

use super::arguments::{behind_references, refuse_beside};
use super::content::Content;
use crate::schema::{Fault, within};

/// A way to write a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    Text(Content),
    Json(Value),
}

/// All ways to write a value of this schema.
pub(super) fn forms(root: &Value, path: &str, schema: &Value) -> Result<Vec<Form>, Fault> {
    let (path, schema) = behind_references(root, path, schema)?;
    let Value::Object(object) = schema else { return Ok(vec![Form::Text(Content::any())]) };
    if let Some(values) = values_listed(object) {
        return Ok(of_values(&values));
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(options)) = object.get(keyword) {
            refuse_beside(&path, keyword, schema)?;
            return of_options(root, &path, keyword, options);
        }
    }
    let kinds = kinds(object);
    if kinds.is_empty() {
        return Ok(vec![Form::Text(Content::any())]);
    }
    let mut forms = Vec::new();
    for kind in kinds {
        forms.push(match kind {
            "string" => Form::Text(Content::of(&path, schema)?),
            _ => Form::Json(within(root, &of_kind(object, kind))),
        });
    }
    Ok(forms)
}

/// The values that a schema lists, those of other types than it says left out.
pub(super) fn values_listed(object: &Map<String, Value>) -> Option<Vec<Value>> {
    let listed = match (object.get("const"), object.get("enum")) {
        (Some(value), _) => vec![value.clone()],
        (None, Some(Value::Array(values))) => values.clone(),
        _ => return None,
    };
    let kinds = object.contains_key("type").then(|| kinds(object));
    let fits = |value: &Value| kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| is_of(kind, value)));
    Some(listed.into_iter().filter(fits).collect())
}

fn is_of(kind: &str, value: &Value) -> bool {
    match (kind, value) {
        ("integer", Value::Number(number)) => number.as_f64().is_some_and(|number| number.fract() == 0.0),
        ("number", Value::Number(_)) | ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => true,
        ("null", Value::Null) | ("array", Value::Array(_)) | ("object", Value::Object(_)) => true,
        _ => false,
    }
}

fn of_values(values: &[Value]) -> Vec<Form> {
    let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    let others: Vec<&Value> = values.iter().filter(|value| !value.is_string()).collect();
    let mut forms = Vec::new();
    forms.extend((!texts.is_empty()).then(|| Form::Text(Content::one_of(&texts))));
    forms.extend((!others.is_empty()).then(|| Form::Json(json!({"enum": others}))));
    forms
}

fn of_options(root: &Value, path: &str, keyword: &str, options: &[Value]) -> Result<Vec<Form>, Fault> {
    if keyword == "allOf" && options.len() > 1 {
        return Err(Fault::new(path, keyword, "is not supported in this model's syntax of calls; write one schema"));
    }
    let mut all = Vec::new();
    for (number, option) in options.iter().enumerate() {
        all.extend(forms(root, &format!("{path}/{keyword}/{number}"), option)?);
    }
    Ok(all)
}

/// The types that a schema names, or the one that its keywords are about. None: it says nothing.
pub(super) fn kinds(object: &Map<String, Value>) -> Vec<&str> {
    const ABOUT: &[(&str, &[&str])] = &[
        ("object", &["properties", "required", "additionalProperties", "patternProperties"]),
        ("array", &["items", "prefixItems", "minItems", "maxItems"]),
        ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
        ("string", &["minLength", "maxLength", "pattern", "format"]),
    ];
    match object.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => {
            let about = ABOUT.iter().find(|(_, keywords)| keywords.iter().any(|keyword| object.contains_key(*keyword)));
            about.map(|(kind, _)| *kind).into_iter().collect()
        }
    }
}

/// The schema, of this type alone.
pub(super) fn of_kind(object: &Map<String, Value>, kind: &str) -> Value {
    let mut alone = object.clone();
    alone.insert("type".into(), kind.into());
    Value::Object(alone)
}
