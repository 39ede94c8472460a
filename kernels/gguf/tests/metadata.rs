//! Typed access to keys, and the errors that name them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use bantam_gguf::writer::GgufWriter;
use bantam_gguf::{Array, FromValue, GgufFile, GgufString, StringArray, Value};
use proptest::prelude::*;

fn file_with(key: &str, value: impl Into<Value>) -> GgufFile {
    GgufFile::from_bytes("m.gguf", GgufWriter::new().key(key, value).to_bytes()).unwrap()
}

/// The error of reading `value` as a `T`.
fn refusal<T: for<'a> FromValue<'a>>(value: impl Into<Value>) -> String {
    let file = file_with("k", value);
    match file.metadata().get::<T>("k") {
        Ok(_) => panic!("{:?} was read as {}", file.metadata().value("k"), T::EXPECTED),
        Err(error) => error.to_string(),
    }
}

/// `n` as every integer type that holds it.
fn integers(n: i128) -> Vec<Value> {
    let values: [Option<Value>; 8] = [
        u8::try_from(n).map(Value::U8).ok(),
        i8::try_from(n).map(Value::I8).ok(),
        u16::try_from(n).map(Value::U16).ok(),
        i16::try_from(n).map(Value::I16).ok(),
        u32::try_from(n).map(Value::U32).ok(),
        i32::try_from(n).map(Value::I32).ok(),
        u64::try_from(n).map(Value::U64).ok(),
        i64::try_from(n).map(Value::I64).ok(),
    ];
    values.into_iter().flatten().collect()
}

/// The array of the one element `value`.
fn array_of(value: &Value) -> Value {
    match *value {
        Value::U8(n) => vec![n].into(),
        Value::I8(n) => vec![n].into(),
        Value::U16(n) => vec![n].into(),
        Value::I16(n) => vec![n].into(),
        Value::U32(n) => vec![n].into(),
        Value::I32(n) => vec![n].into(),
        Value::U64(n) => vec![n].into(),
        Value::I64(n) => vec![n].into(),
        ref other => panic!("{other} is no integer"),
    }
}

fn edge_integers() -> impl Strategy<Value = i128> {
    let edges = [0, 8, 16, 32, 64].map(|bits| 1i128 << bits);
    (proptest::sample::select(edges.to_vec()), -2..=2i128, any::<bool>(), 0..=1u32)
        .prop_map(|(edge, step, negative, half)| (edge >> half) * if negative { -1 } else { 1 } + step)
}

proptest! {
    #[test]
    fn an_integer_is_read_as_any_type_that_holds_it(n in edge_integers()) {
        for value in integers(n) {
            let scalar = file_with("k", value.clone());
            let scalar = scalar.metadata();
            prop_assert_eq!(scalar.get::<u32>("k").ok(), u32::try_from(n).ok().map(Some));
            prop_assert_eq!(scalar.get::<i32>("k").ok(), i32::try_from(n).ok().map(Some));
            prop_assert_eq!(scalar.get::<u64>("k").ok(), u64::try_from(n).ok().map(Some));
            prop_assert_eq!(scalar.get::<i64>("k").ok(), i64::try_from(n).ok().map(Some));
            prop_assert_eq!(scalar.get::<usize>("k").ok(), usize::try_from(n).ok().map(Some));
            let array = file_with("k", array_of(&value));
            let array = array.metadata();
            prop_assert_eq!(array.get::<Vec<u32>>("k").ok(), u32::try_from(n).ok().map(|n| Some(vec![n])));
            prop_assert_eq!(array.get::<Vec<i64>>("k").ok(), i64::try_from(n).ok().map(|n| Some(vec![n])));
        }
    }
}

#[test]
fn other_types_are_read_as_what_they_are() {
    let strings = StringArray::from_iter([b"a".as_slice(), b"", b"\xff\xfe"]);
    let mut writer = GgufWriter::new();
    writer.key("f", 1.5f32).key("d", 0.25f64).key("b", true).key("s", "text").key("ss", strings.clone());
    writer.key("fs", vec![1.0f32, -2.0]).key("is", vec![-1i32, 1]).key("bs", vec![true, false]);
    writer.key("bytes", Value::String(GgufString::from(b"\xff")));
    let file = GgufFile::from_bytes("m.gguf", writer.to_bytes()).unwrap();
    let keys = file.metadata();
    assert_eq!(keys.require::<f32>("f").unwrap(), 1.5);
    assert_eq!(keys.require::<f64>("f").unwrap(), 1.5);
    assert_eq!(keys.require::<f32>("d").unwrap(), 0.25);
    assert!(keys.require::<bool>("b").unwrap());
    assert_eq!(keys.require::<&str>("s").unwrap(), "text");
    assert_eq!(keys.require::<&[f32]>("fs").unwrap(), [1.0, -2.0]);
    assert_eq!(keys.require::<&[i32]>("is").unwrap(), [-1, 1]);
    assert_eq!(keys.require::<&[bool]>("bs").unwrap(), [true, false]);
    assert_eq!(keys.require::<&GgufString>("bytes").unwrap().as_bytes(), b"\xff");
    assert_eq!(keys.require::<&StringArray>("ss").unwrap(), &strings);
    assert_eq!(keys.require::<&Array>("is").unwrap().element_type_name(), "i32");
    assert_eq!(
        keys.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        ["f", "d", "b", "s", "ss", "fs", "is", "bs", "bytes"]
    );
}

#[test]
fn strings_that_are_not_utf8_keep_their_bytes() {
    let strings = StringArray::from_iter([b"a".as_slice(), b"", b"\xff\xfe"]);
    assert_eq!(strings.iter().collect::<Vec<_>>(), [b"a".as_slice(), b"", b"\xff\xfe"]);
    assert_eq!((strings.get_str(0), strings.get_str(1), strings.get_str(2)), (Some("a"), Some(""), None));
    assert_eq!((strings.get(2), strings.get(3)), (Some(b"\xff\xfe".as_slice()), None));
    assert_eq!(GgufString::from(b"\xff").to_str(), None);
}

#[test]
fn a_wrong_type_is_named() {
    assert_eq!(refusal::<u32>(-5i32), "m.gguf: key k: expected an integer from 0 to 2^32 - 1, found i32 -5");
    assert_eq!(refusal::<u32>(1.0f32), "m.gguf: key k: expected an integer from 0 to 2^32 - 1, found f32 1");
    assert_eq!(refusal::<bool>(1u8), "m.gguf: key k: expected a bool, found u8 1");
    assert_eq!(refusal::<f32>("x"), "m.gguf: key k: expected a float, found string \"x\"");
    assert_eq!(
        refusal::<Vec<u32>>(vec![1i64, -1]),
        "m.gguf: key k: expected an array of integers from 0 to 2^32 - 1, found array of 2 i64"
    );
    let error = refusal::<u32>("x".repeat(100).as_str());
    assert!(error.ends_with(&format!("found string \"{}\"…", "x".repeat(64))), "{error}");
}

#[test]
fn a_missing_key_is_none_or_an_error() {
    let file = file_with("k", 1u32);
    assert_eq!(file.metadata().get::<u32>("l").unwrap(), None);
    let error = file.metadata().require::<&str>("l").unwrap_err();
    assert_eq!(error.to_string(), "m.gguf: key l: expected a string of UTF-8, found no such key");
}

#[test]
fn a_missing_tensor_is_an_error() {
    let file = file_with("k", 1u32);
    assert_eq!(file.tensor("t"), None);
    assert_eq!(file.require_tensor("t").unwrap_err().to_string(), "m.gguf: tensor t: not in the file");
}
