//! The schema accepts exactly what the host reads: answers of real plugins and families, changed at each place in each way that
//! we could think of, are taken by both or by neither.
//!
//! What is compared is reading. What the host checks of an answer that it has read is no part of it, and no schema can say it:
//! that graphs type-check, that names and shapes fit the checkpoint, how many values there are in all. So are two things of the
//! text, of which a schema sees nothing: a key that is there twice, and `1.0` where an integer belongs.

use std::collections::BTreeSet;

use bantam_plugin_sdk::family::wire::{BuildAnswer, Description, Malformed, OpAnswer};
use serde_json::{Value, json};

use crate::{
    answers::{Answers, answers},
    validator,
};

/// Where something is in a message: keys and indices.
type Place = Vec<Value>;

/// Objects whose keys are names that anybody chooses.
const MAPS: &[&str] = &["metadata", "tensors", "origins", "config", "attributes"];

fn at<'v>(value: &'v mut Value, place: &[Value]) -> &'v mut Value {
    place.iter().fold(value, |value, step| match step.as_str() {
        Some(key) => &mut value[key],
        None => &mut value[step.as_u64().unwrap() as usize],
    })
}

/// All places in a value, itself first.
fn places(value: &Value) -> Vec<Place> {
    let below: Vec<(Value, &Value)> = match value {
        Value::Array(entries) => entries.iter().enumerate().map(|(i, entry)| (json!(i), entry)).collect(),
        Value::Object(keys) => keys.iter().map(|(key, value)| (json!(key), value)).collect(),
        _ => Vec::new(),
    };
    let behind = |(step, value): (Value, &Value)| {
        places(value).into_iter().map(move |place| [vec![step.clone()], place].concat())
    };
    [Vec::new()].into_iter().chain(below.into_iter().flat_map(behind)).collect()
}

/// What a place is called, whichever of many alike it is.
fn name(place: &[Value]) -> String {
    let (mut name, mut is_map) = (String::new(), false);
    for step in place {
        match step.as_str() {
            Some(_) if is_map => name += ".*",
            Some(key) => name = name + "." + key,
            None => name += "[]",
        }
        is_map = !is_map && step.as_str().is_some_and(|key| MAPS.contains(&key));
    }
    name
}

/// Keys and kinds of a value and all in it: what is alike in it can be changed alike.
fn form(value: &Value) -> String {
    match value {
        Value::Null => "n".into(),
        Value::Bool(_) => "b".into(),
        Value::Number(number) => if number.is_f64() { "f" } else { "i" }.into(),
        Value::String(_) => "s".into(),
        Value::Array(entries) => {
            let forms: BTreeSet<String> = entries.iter().map(form).collect();
            format!("[{}]", forms.into_iter().collect::<Vec<_>>().join(","))
        }
        Value::Object(keys) => {
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}:{}", form(value))).collect();
            format!("{{{}}}", keys.join(","))
        }
    }
}

/// Leaves out of each list of objects what is like another one that was seen.
fn prune(value: &mut Value, seen: &mut BTreeSet<String>) {
    match value {
        Value::Array(entries) => {
            let mut is_first = true;
            entries.retain(|entry| {
                let is_new = !entry.is_object() || seen.insert(form(entry));
                std::mem::take(&mut is_first) || is_new
            });
            entries.iter_mut().for_each(|entry| prune(entry, seen));
        }
        Value::Object(keys) => keys.values_mut().for_each(|value| prune(value, seen)),
        _ => {}
    }
}

/// Other values in the place of one, each with a word for what was done.
fn changes(value: &Value) -> Vec<(String, Value)> {
    let others = json!([
        null, true, false, "", "nonsense", "7", "-7", "007", "18446744073709551616", "AA==", "AA", 0, 1, 255, 256, -1, 1.5,
        1e300, 4_294_967_296_u64, 9_007_199_254_740_993_u64, u64::MAX, i64::MIN, [], [0], [[]], ["nonsense"], {},
        {"nonsense": 1}, {"nonsense": 1, "more": 2}
    ]);
    let mut changed: Vec<(String, Value)> =
        others.as_array().unwrap().iter().map(|other| (format!("{other} instead"), other.clone())).collect();
    match value {
        Value::Object(keys) => {
            for key in keys.keys() {
                let mut without = keys.clone();
                let taken = without.shift_remove(key).unwrap();
                changed.push((format!("without `{key}`"), Value::Object(without.clone())));
                without.insert(format!("{key}s"), taken);
                changed.push((format!("`{key}s` for `{key}`"), Value::Object(without)));
            }
            let mut with = keys.clone();
            with.insert("nonsense".into(), json!(1));
            changed.push(("with `nonsense`".into(), Value::Object(with)));
        }
        Value::Array(entries) => {
            changed.extend([json!(null), json!("nonsense"), json!(-1)].into_iter().map(|one| {
                let with = entries.iter().cloned().chain([one.clone()]).collect();
                (format!("with {one} behind"), Value::Array(with))
            }));
            changed.push(("one less".into(), entries.iter().skip(1).cloned().collect()));
            changed.push(("twice".into(), entries.iter().chain(entries).cloned().collect()));
        }
        _ => {}
    }
    changed
}

/// What the host says to a message that it does not read.
type Reads = fn(&[u8]) -> Result<(), String>;

fn read<T>(read: Result<T, Malformed>) -> Result<(), String> {
    read.map(drop).map_err(|why| why.to_string())
}

/// Changes these messages; where the two differ, and how often they were compared.
fn differences(messages: Vec<Value>, definition: &str, reads: Reads) -> (Vec<String>, [usize; 2]) {
    let validator = validator(definition);
    let (mut seen, mut tried, mut found, mut counts) = (BTreeSet::new(), BTreeSet::new(), Vec::new(), [0, 0]);
    for mut message in messages {
        prune(&mut message, &mut seen);
        for place in places(&message) {
            let value = at(&mut message, &place).clone();
            if !tried.insert(name(&place) + &form(&value)) {
                continue;
            }
            for (what, other) in changes(&value) {
                *at(&mut message, &place) = other;
                let (by_schema, by_host) = (validator.is_valid(&message), reads(message.to_string().as_bytes()));
                counts[usize::from(by_host.is_ok())] += 1;
                if by_schema != by_host.is_ok() {
                    found.push(format!("{definition}{}: {what}: schema {by_schema}, host {by_host:?}", name(&place)));
                }
                *at(&mut message, &place) = value.clone();
            }
        }
    }
    found.sort();
    found.dedup();
    (found, counts)
}

#[test]
fn it_accepts_exactly_what_the_host_reads() {
    let Answers { descriptions, built, ops } = answers();
    let kinds: [(Vec<Value>, &str, Reads); 3] = [
        (descriptions, "Description", |bytes| read(Description::from_slice(bytes))),
        (built, "BuildAnswer", |bytes| read(BuildAnswer::from_slice(bytes))),
        (ops, "OpAnswer", |bytes| read(OpAnswer::from_slice(bytes))),
    ];
    for (messages, definition, reads) in kinds {
        for message in &messages {
            assert_eq!(reads(message.to_string().as_bytes()), Ok(()), "{definition}: {message:.300}");
        }
        let (found, [refused, taken]) = differences(messages, definition, reads);
        assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
        assert!(refused > 50 && taken > 0, "{definition}: {refused} refused, {taken} taken");
    }
}
