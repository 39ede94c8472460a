//! What of a schema is left to those who declared it.

use serde_json::Value;

use super::walk::children_and_definitions;

/// The parameters of a tool that does not insist on its schema, without the keywords that no grammar is made of and that a
/// tool looks after well enough by itself: that items differ from each other.
pub fn relaxed(parameters: &Value) -> Value {
    let mut relaxed = parameters.clone();
    let mut ahead = vec![String::new()];
    while let Some(path) = ahead.pop() {
        let Some(here) = relaxed.pointer_mut(&path) else { continue };
        if let Some(object) = here.as_object_mut() {
            object.remove("uniqueItems");
        }
        ahead.extend(children_and_definitions(here).into_iter().map(|(step, _)| format!("{path}{step}")));
    }
    relaxed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_keyword_goes_wherever_it_stands() {
        let schema = json!({"properties": {
            "a": {"type": "array", "uniqueItems": true, "items": {"type": "array", "uniqueItems": true}},
            "uniqueItems": {"type": "boolean", "not": {}},
        }});
        let expected = json!({"properties": {
            "a": {"type": "array", "items": {"type": "array"}},
            "uniqueItems": {"type": "boolean", "not": {}},
        }});
        assert_eq!(relaxed(&schema), expected);
    }
}
