//! A corpus of JSON schemas: whatever a model writes under one is valid, and what cannot be held to is refused by its place.

use bantam_grammar::{ResponseFormat, Rules};
use serde_json::{Map, Value, json};

use crate::model::{Chance, Model, llama, smollm};

fn corpus() -> Map<String, Value> {
    serde_json::from_str(include_str!("schemas.json")).unwrap()
}

fn rules(schema: &Value) -> Rules {
    Rules { response: ResponseFormat::JsonSchema(schema.clone()), ..Rules::default() }
}

/// What a model writes under a schema is valid.
fn check(model: &Model, name: &str, schema: &Value, seed: u64) {
    let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
    let mut guide = model.compile(&rules(schema)).guide();
    let text = model.text(&model.write(&mut guide, &mut Chance::new(seed)));
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
    if let Err(error) = validator.validate(&value) {
        panic!("{name}: {error}: {text}");
    }
}

#[test]
fn answers_are_valid_under_each_schema_of_the_corpus() {
    let corpus = corpus();
    assert!(corpus.len() >= 200, "{} schemas", corpus.len());
    for (name, schema) in &corpus {
        for seed in 1..=2 {
            check(smollm(), name, schema, seed);
        }
        check(llama(), name, schema, 3);
    }
}

#[test]
fn what_cannot_be_held_to_is_refused_by_its_place() {
    let inside = |schema: Value| json!({"type": "object", "properties": {"a": {"type": "array", "items": schema}}});
    let cases = [
        ("not", json!({"not": {"type": "string"}})),
        ("if", json!({"if": {"type": "string"}, "then": {}})),
        ("contains", json!({"type": "array", "contains": {"type": "string"}})),
        ("uniqueItems", json!({"type": "array", "uniqueItems": true})),
        ("propertyNames", json!({"type": "object", "propertyNames": {"pattern": "^a"}})),
        ("dependentRequired", json!({"type": "object", "dependentRequired": {"a": ["b"]}})),
        ("dependentSchemas", json!({"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}})),
        ("dependencies", json!({"type": "object", "dependencies": {"a": ["b"]}})),
        ("unevaluatedProperties", json!({"type": "object", "unevaluatedProperties": false})),
        ("unevaluatedItems", json!({"type": "array", "unevaluatedItems": false})),
        ("$dynamicRef", json!({"$dynamicRef": "#x"})),
        ("$ref", json!({"$ref": "https://example.com/schema.json"})),
        ("$ref", json!({"$ref": "#/$defs/nothing"})),
        ("$ref", json!({"$ref": 5})),
        ("format", json!({"type": "string", "format": "idn-email"})),
        ("pattern", json!({"type": "string", "pattern": "(?=a)b"})),
        ("pattern", json!({"type": "string", "pattern": "("})),
        ("pattern", json!({"type": "string", "pattern": 3})),
        ("type", json!({"type": "text"})),
        ("type", json!({"type": 1})),
        ("enum", json!({"enum": "a"})),
        ("minLength", json!({"type": "string", "minLength": -1})),
        ("minimum", json!({"type": "integer", "minimum": "1"})),
        ("minProperties", json!({"type": "object", "minProperties": 3})),
        ("oneOf", json!({"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 3}]})),
        ("properties", json!({"type": "object", "properties": []})),
        ("multipleOf", json!({"type": "number", "multipleOf": "x"})),
    ];
    for (keyword, schema) in cases {
        let error = smollm().vocabulary.compile(&rules(&inside(schema.clone()))).expect_err(keyword);
        assert_eq!(error.keyword.as_deref(), Some(keyword), "{schema}: {error}");
        assert_eq!(error.path.as_deref(), Some("#/properties/a/items"), "{schema}: {error}");
        assert_eq!(error.field, "response_format.json_schema.schema");
    }
}

#[test]
fn refusals_behind_references_name_the_definition() {
    let schema = json!({"$defs": {"d/e": {"properties": {"x": {"not": {}}}}}, "items": {"$ref": "#/$defs/d~1e"}});
    let error = smollm().vocabulary.compile(&rules(&schema)).unwrap_err();
    assert_eq!(error.path.as_deref(), Some("#/$defs/d~1e/properties/x"));
    let expected = "`response_format.json_schema.schema` at #/$defs/d~1e/properties/x: `not`: is not supported; \
        leave it out or say it in the description";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn no_valid_answer_is_an_error_that_names_the_contradiction() {
    let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 3}}});
    let error = smollm().vocabulary.compile(&rules(&schema)).unwrap_err();
    assert_eq!(error.path.as_deref(), Some("#/properties/a"), "{error}");
}

#[test]
fn white_space_has_an_end() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "boolean"}}}, "required": ["a"], "additionalProperties": false});
    let model = smollm();
    let mut guide = model.compile(&rules(&schema)).guide();
    let blank = |id: &u32| {
        !model.tokenizer.token_bytes(*id, false).is_empty()
            && model.tokenizer.token_bytes(*id, false).trim_ascii().is_empty()
    };
    let blanks: Vec<u32> = (0..u32::try_from(model.tokenizer.vocab_size()).unwrap()).filter(blank).collect();
    let (mut chance, mut run) = (Chance::new(1), 0);
    for step in 0..500 {
        let mask = guide.mask().unwrap();
        let allowed: Vec<u32> = blanks.iter().copied().filter(|&id| Model::allows(mask, id)).collect();
        let token = match allowed.len() {
            0 => model.choose(mask, &mut chance, step),
            count => allowed[chance.below(count)],
        };
        run = if allowed.is_empty() { 0 } else { run + model.tokenizer.token_bytes(token, false).len() };
        assert!(run <= 33, "{run} bytes of white space");
        guide.accept(token).unwrap();
        if guide.must_end() || token == model.end {
            return;
        }
    }
}
