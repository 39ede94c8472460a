//! Requests made to do harm: an answer or an error, soon, and never a panic.

use std::time::{Duration, Instant};

use bantam_family_api::CallSyntax;
use bantam_grammar::{ResponseFormat, Rules, Tool};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::families::syntaxes;
use crate::model::{Chance, Model, smollm};

/// Compiling and one mask, on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(20);

/// Compiles rules and, if they are taken, goes some tokens.
fn endure(rules: &Rules) -> Result<(), String> {
    let begun = Instant::now();
    let compiled = smollm().vocabulary.compile(rules);
    let outcome = compiled.map_err(|error| error.to_string()).and_then(|grammar| {
        let (mut guide, mut chance) = (grammar.guide(), Chance::new(1));
        for step in 0..8 {
            let mask = guide.mask().map_err(|error| error.to_string())?;
            let token = smollm().choose(mask, &mut chance, step);
            guide.accept(token).map_err(|error| error.to_string())?;
        }
        Ok(())
    });
    assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
    outcome
}

fn form(schema: Value) -> Rules {
    Rules { response: ResponseFormat::JsonSchema(schema), ..Rules::default() }
}

/// `inner` in so many lists.
fn nested(depth: usize, inner: Value) -> Value {
    (0..depth).fold(inner, |inner, _| json!({"type": "array", "items": inner}))
}

#[test]
fn schemas_beyond_all_bounds_are_refused() {
    let names = |count: usize| {
        (0..count).map(|number| (format!("p{number}"), json!({"type": "string"}))).collect::<Map<_, _>>()
    };
    let refused = [
        nested(100, json!({})),
        json!({"type": "object", "properties": names(20_000)}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"$ref": "#"}),
    ];
    for schema in refused {
        let shown = schema.to_string().chars().take(80).collect::<String>();
        assert!(endure(&form(schema)).is_err(), "{shown}");
    }
}

#[test]
fn long_chains_of_references_do_not_exhaust_the_stack() {
    let define = |number: usize| {
        (format!("d{number}"), json!({"type": "array", "items": {"$ref": format!("#/$defs/d{}", number + 1)}}))
    };
    let mut definitions: Map<String, Value> = (0..4000).map(define).collect();
    definitions.insert("d4000".into(), json!({"type": "null"}));
    // Taken or refused: what counts is that the process lives.
    let _ = endure(&form(json!({"$ref": "#/$defs/d0", "$defs": definitions})));
}

#[test]
fn large_bounds_cost_nothing() {
    let schema = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 100_000},
            "list": {"type": "array", "items": {"type": "string", "maxLength": 1_000_000}, "maxItems": 10_000},
            "pattern": {"type": "string", "pattern": "^(a{1,500}){1,500}(b{1,500}){1,500}$"},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 100_000},
        },
        "required": ["text", "list", "pattern", "map"],
    });
    let begun = Instant::now();
    assert_eq!(endure(&form(schema)), Ok(()));
    assert!(begun.elapsed() < Duration::from_secs(5), "took {:?}", begun.elapsed());
}

#[test]
fn what_a_request_overrides_for_the_compiler_is_ignored() {
    let schema =
        json!({"type": "boolean", "x-guidance": {"whitespace_pattern": "[ ]+", "lenient": true, "no such": 1}});
    assert_eq!(endure(&form(schema)), Ok(()));
}

/// Something that could be a schema, and seldom is one.
fn schemas() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "enum",
        "const",
        "pattern",
        "format",
        "required",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "multipleOf",
        "additionalProperties",
        "patternProperties",
        "prefixItems",
        "$defs",
        "minProperties",
        "maxProperties",
        "x-guidance",
        "$id",
        "$schema",
        "a",
    ]);
    let text = prop::sample::select(vec![
        "string",
        "object",
        "array",
        "integer",
        "number",
        "null",
        "boolean",
        "#",
        "#/$defs/a",
        "#/properties/a",
        "date",
        "^a+$",
        "(",
        "[a-z]{2,9}",
        "",
        "http://example.com/",
        "\u{0}",
    ]);
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..20_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        let members = prop::collection::vec((word.clone(), inner.clone()), 0..6);
        let object =
            members.prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
        prop_oneof![3 => object.prop_map(Value::Object), 1 => prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
    })
}

fn any_syntax() -> impl Strategy<Value = CallSyntax> {
    prop::sample::select(syntaxes().into_iter().map(|(_, syntax)| syntax).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_schema_does_harm(schema in schemas()) {
        let _ = endure(&form(schema));
    }

    #[test]
    fn no_tool_does_harm(parameters in schemas(), syntax in any_syntax(), name in "\\PC{1,12}") {
        let tools = vec![Tool { name, parameters }];
        let _ = endure(&Rules { calls: vec![syntax], tools, choice: bantam_grammar::ToolChoice::Required, ..Rules::default() });
    }

    #[test]
    fn no_bytes_as_a_schema_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(schema) = serde_json::from_slice(&bytes) {
            let _ = endure(&form(schema));
        }
    }

    #[test]
    fn no_text_as_a_grammar_does_harm(text in "[a-z:=\"\\[\\]()|*+?{},./\\\\ \n#<>@%&~0-9-]{0,60}") {
        for response in [ResponseFormat::Regex(text.clone()), ResponseFormat::Lark(text.clone()), ResponseFormat::Gbnf(text.clone())] {
            let _ = endure(&Rules { response, ..Rules::default() });
        }
    }

    #[test]
    fn any_grammar_of_a_plain_kind_is_taken(lines in prop::collection::vec("[a-z]{1,5}", 1..6)) {
        let text = format!("root ::= {}", lines.iter().map(|line| format!("\"{line}\"")).collect::<Vec<_>>().join(" | "));
        let grammar = smollm().compile(&Rules { response: ResponseFormat::Gbnf(text), ..Rules::default() });
        let written = smollm().text(&smollm().write(&mut grammar.guide(), &mut Chance::new(1)));
        prop_assert!(lines.contains(&written), "{written}");
    }
}

#[test]
fn ids_behind_the_vocabulary_are_not_allowed() {
    let mut guide = smollm().compile(&form(json!({"type": "string"}))).guide();
    let size = u32::try_from(smollm().tokenizer.vocab_size()).unwrap();
    assert!((size..size + 64).all(|id| !Model::allows(guide.mask().unwrap(), id)));
}
