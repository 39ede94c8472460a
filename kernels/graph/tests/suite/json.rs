//! The JSON form: it gives back what was written, names every op, and refuses what it does not know.

use std::collections::BTreeSet;

use bantam_graph::{Graph, GraphError, Op, json};
use serde_json::{Value, json};

use crate::everything::everything;

fn read(value: &Value) -> Result<Graph, GraphError> {
    json::from_slice(&serde_json::to_vec(value).unwrap())
}

#[test]
fn a_graph_survives_its_json_form() {
    let graph = everything();
    assert_eq!(read(&json::to_value(&graph).unwrap()).unwrap(), graph);
}

/// Serde lists the ops that it expects when it meets another.
fn all_ops() -> BTreeSet<String> {
    let refusal = serde_json::from_value::<Op>(json!({ "no such op": {} })).unwrap_err().to_string();
    refusal.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_example_has_every_op() {
    let value = serde_json::to_value(everything()).unwrap();
    let nodes = value["nodes"].as_array().unwrap();
    let used: BTreeSet<String> =
        nodes.iter().flat_map(|node| node["op"].as_object().unwrap().keys().cloned()).collect();
    assert_eq!(used, all_ops());
}

#[test]
fn an_attribute_that_is_not_known_is_refused_wherever_it_stands() {
    let value = json::to_value(&everything()).unwrap();
    let mut objects = Vec::new();
    pointers(&value, String::new(), &mut objects);
    for at in objects {
        let mut changed = value.clone();
        changed.pointer_mut(&at).unwrap().as_object_mut().unwrap().insert("surprise".into(), json!(1));
        let refusal = read(&changed).unwrap_err();
        assert!(matches!(refusal, GraphError::Json(_)), "an attribute at `{at}` was ignored");
        assert!(refusal.to_string().contains("`surprise`"), "{at}: {refusal}");
    }
}

#[test]
fn a_refusal_says_where() {
    let refusal = |at: &str, key: &str, new: Value| {
        let mut value = json::to_value(&everything()).unwrap();
        value.pointer_mut(at).unwrap().as_object_mut().unwrap().insert(key.into(), new);
        read(&value).unwrap_err().to_string()
    };
    let unknown = refusal("/graph/nodes/0/op", "surprise", json!({}));
    assert!(
        unknown.contains("nodes[0].op: expected an object of one key, found the keys `input`, `surprise`"),
        "{unknown}"
    );
    let number = refusal("/graph/nodes/5/op/ngram_hash", "multipliers", json!([1, 2]));
    assert!(number.contains("nodes[5].op.ngram_hash.multipliers[0]: expected a string, found the number"), "{number}");
}

#[test]
fn integers_of_64_bits_are_strings_of_digits() {
    let graph = everything();
    let value = json::to_value(&graph).unwrap();
    assert_eq!(value["graph"]["nodes"][5]["op"]["ngram_hash"]["multipliers"][1], json!("18446744073709551615"));
    for text in ["", "+1", "01", "-1", "18446744073709551616", "1.0"] {
        let mut value = value.clone();
        value["graph"]["nodes"][5]["op"]["ngram_hash"]["multipliers"][1] = json!(text);
        assert!(read(&value).unwrap_err().to_string().contains("as a string of digits"), "{text}");
    }
}

/// Where objects stand.
fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| pointers(value, format!("{at}/{key}"), found));
            found.push(at);
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| pointers(value, format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

#[test]
fn another_version_is_refused() {
    let mut value = json::to_value(&everything()).unwrap();
    value["bantam_graph"] = json!(json::VERSION + 1);
    assert_eq!(read(&value), Err(GraphError::Version { found: json::VERSION + 1, expected: json::VERSION }));
}
