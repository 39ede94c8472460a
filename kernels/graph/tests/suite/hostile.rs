//! No JSON makes reading panic, overflow or take long, and what is accepted is sound.

use bantam_graph::{check, json};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::everything::everything;

/// Every place in a value, as a pointer.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| places(value, format!("{at}/{key}"), found)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| places(value, format!("{at}/{i}"), found)),
        _ => {}
    }
    found.push(at);
}

#[derive(Clone, Debug)]
enum Change {
    /// Another value in its place.
    Put(Value),
    /// What stands at another place.
    CopyFrom(prop::sample::Index),
    /// Nothing, in a list or an object.
    Remove,
}

fn change() -> impl Strategy<Value = Change> {
    let numbers = [0, 1, 2, 3, 1 << 16, 1 << 31, (1 << 31) + 1, 1 << 32, 1 << 62, u64::MAX - 1, u64::MAX];
    prop_oneof![
        prop::sample::select(numbers.to_vec()).prop_map(|n| Change::Put(json!(n))),
        prop::sample::select(vec![-1.0, -0.0, 1e-45, 0.5, 1e38, 1e39, 1e308]).prop_map(|x| Change::Put(json!(x))),
        prop::sample::select(vec![json!(null), json!(""), json!("k.0"), json!([]), json!({}), json!(true)])
            .prop_map(Change::Put),
        any::<prop::sample::Index>().prop_map(Change::CopyFrom),
        Just(Change::Remove),
    ]
}

fn apply(value: &mut Value, at: &str, change: &Change, places: &[String]) {
    match change {
        Change::Put(new) => *value.pointer_mut(at).unwrap() = new.clone(),
        Change::CopyFrom(index) => {
            let new = value.pointer(index.get(places).as_str()).cloned();
            if let (Some(new), Some(old)) = (new, value.pointer_mut(at)) {
                *old = new;
            }
        }
        Change::Remove => {
            let Some((parent, key)) = at.rsplit_once('/') else { return };
            match value.pointer_mut(parent) {
                Some(Value::Object(map)) => drop(map.remove(key)),
                Some(Value::Array(list)) => drop(list.remove(key.parse().unwrap())),
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn changed_graphs_are_read_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 1..4)) {
        let mut value = json::to_value(&everything()).unwrap();
        for (index, change) in changes {
            let mut found = Vec::new();
            places(&value, String::new(), &mut found);
            let at = index.get(&found).clone();
            apply(&mut value, &at, &change, &found);
        }
        if let Ok(graph) = json::from_slice(&serde_json::to_vec(&value).unwrap()) {
            let checked = check(&graph).unwrap();
            for node in &graph.nodes {
                for name in node.op.results(&node.name) {
                    prop_assert!(checked.types[&name].width > 0);
                }
                prop_assert!(node.op.operands().iter().all(|name| checked.types.contains_key(*name)));
                prop_assert!(node.op.weights().iter().all(|name| graph.weight(name).is_some()));
            }
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_read(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = serde_json::to_vec(&json::to_value(&everything()).unwrap()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        // Either is right; it must only come back.
        let _ = json::from_slice(&bytes);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let deep = "{\"exp\":".repeat(100_000);
    let text = format!("{{\"bantam_graph\":0,\"graph\":{{\"weights\":[{{\"expr\":{deep}");
    assert!(json::from_slice(text.as_bytes()).is_err());
}
