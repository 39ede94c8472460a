//! A schema as the compiler takes it best, with the same meaning.

use serde_json::{Map, Value, json};

use super::check::{FORMATS, says_nothing};
use super::walk::{children, children_and_definitions, pointed_at};

/// Drops what says nothing, and writes out alternatives that are references.
pub(super) fn prepare(schema: &Value) -> Value {
    let mut prepared = schema.clone();
    let mut ahead = vec![String::new()];
    while let Some(path) = ahead.pop() {
        let Some(here) = prepared.pointer_mut(&path) else { continue };
        if let Some(object) = here.as_object_mut() {
            object.retain(|keyword, value| !says_nothing(keyword, value) && !is_remark(keyword, value));
            write_out(object, schema);
            bound(object);
        }
        ahead.extend(children_and_definitions(here).into_iter().map(|(step, _)| format!("{path}{step}")));
    }
    prepared
}

/// Whether this is a format that nobody defines.
fn is_remark(keyword: &str, value: &Value) -> bool {
    keyword == "format" && value.as_str().is_some_and(|name| !FORMATS.contains(&name))
}

/// Gives integers an end: models that fall into repeating digits would never stop. All that 64 bits hold have fewer.
fn bound(object: &mut Map<String, Value>) {
    const MOST: i64 = 1_000_000_000_000_000_000;
    let bounds = ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"];
    let within =
        |keyword: &&str| object.get(*keyword).and_then(Value::as_f64).is_none_or(|bound| bound.abs() < MOST as f64);
    if object.get("type").and_then(Value::as_str) != Some("integer") || !bounds.iter().all(within) {
        return;
    }
    for (keyword, exclusive, bound) in [("minimum", "exclusiveMinimum", -MOST), ("maximum", "exclusiveMaximum", MOST)] {
        if !object.contains_key(keyword) && !object.contains_key(exclusive) {
            object.insert(keyword.into(), bound.into());
        }
    }
}

/// The compiler takes `oneOf` where it sees that the alternatives exclude each other, and it does not see through
/// references.
fn write_out(object: &mut Map<String, Value>, root: &Value) {
    let Some(Value::Array(options)) = object.get_mut("oneOf") else { return };
    for option in options {
        if let Some(written_out) = behind(option, root) {
            *option = written_out;
        }
    }
}

/// What a bare reference refers to, one level of it: parts that have alternatives themselves stay references, so that
/// schemas that contain themselves have an end.
fn behind(option: &Value, root: &Value) -> Option<Value> {
    let reference = option.as_object().filter(|object| object.len() == 1)?.get("$ref")?.as_str()?;
    let (path, target) = pointed_at(root, reference)?;
    if target.get("$ref").is_some() || target.get("oneOf").is_some() {
        return None;
    }
    let mut copy = target.clone();
    for (step, child) in children(target) {
        if has_alternatives(child)
            && let Some(place) = copy.pointer_mut(&step)
        {
            *place = json!({"$ref": format!("#{path}{step}")});
        }
    }
    Some(copy)
}

fn has_alternatives(schema: &Value) -> bool {
    schema.get("oneOf").is_some() || children(schema).iter().any(|(_, child)| has_alternatives(child))
}
