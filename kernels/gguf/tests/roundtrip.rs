//! What the writer writes, the reader reads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use bantam_gguf::writer::GgufWriter;
use bantam_gguf::{GgmlType, GgufFile, GgufHeader, StringArray, Value};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn value() -> impl Strategy<Value = Value> {
    let bytes = || vec(any::<u8>(), 0..20);
    prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        bytes().prop_map(|bytes| Value::String(bytes.into())),
        vec(any::<u8>(), 0..5).prop_map(Value::from),
        vec(any::<i16>(), 0..5).prop_map(Value::from),
        vec(any::<u32>(), 0..5).prop_map(Value::from),
        vec(any::<i32>(), 0..5).prop_map(Value::from),
        vec(any::<f32>(), 0..5).prop_map(Value::from),
        vec(any::<bool>(), 0..5).prop_map(Value::from),
        vec(any::<u64>(), 0..5).prop_map(Value::from),
        vec(any::<f64>(), 0..5).prop_map(Value::from),
        vec(bytes(), 0..5).prop_map(|strings| StringArray::from_iter(strings).into()),
    ]
}

/// A type, a shape of whole blocks, and data of the right size.
fn tensor() -> impl Strategy<Value = (GgmlType, Vec<u64>, Vec<u8>)> {
    (proptest::sample::select(GgmlType::ALL), vec(0..3u64, 1..=4), any::<u8>()).prop_map(|(ty, mut shape, fill)| {
        let blocks: u64 = shape.iter().product();
        shape[0] *= ty.block_len() as u64;
        (ty, shape, vec![fill; blocks as usize * ty.block_bytes()])
    })
}

proptest! {
    #[test]
    fn files_survive_writing_and_reading(
        keys in btree_map("[a-z.]{1,10}", value(), 0..8),
        tensors in btree_map("[a-z0-9._]{1,63}", tensor(), 0..6),
        alignment in proptest::option::of(proptest::sample::select(vec![1u32, 8, 32, 4096])),
    ) {
        let mut writer = GgufWriter::new();
        for (key, value) in &keys {
            writer.key(key, value.clone());
        }
        if let Some(alignment) = alignment {
            writer.key("general.alignment", alignment);
        }
        for (name, (ty, shape, data)) in &tensors {
            writer.tensor(name, *ty, shape, data.as_slice());
        }
        let bytes = writer.to_bytes();
        let mut written = Vec::new();
        writer.write(&mut written).unwrap();
        prop_assert_eq!(&written, &bytes);

        let header = GgufHeader::parse(Path::new("m.gguf"), &bytes).unwrap();
        prop_assert_eq!((header.version, header.alignment), (3, alignment.unwrap_or(32)));
        let file = GgufFile::from_bytes("m.gguf", bytes).unwrap();
        prop_assert_eq!(file.tensors(), header.tensors);
        for (key, value) in &keys {
            // NaNs differ from themselves, so values are compared as they print.
            prop_assert_eq!(format!("{:?}", file.metadata().value(key).unwrap()), format!("{value:?}"));
        }
        for (name, (ty, shape, data)) in &tensors {
            let tensor = file.require_tensor(name).unwrap();
            prop_assert_eq!((tensor.ty, &tensor.shape), (*ty, shape));
            prop_assert_eq!(file.tensor_bytes(tensor).unwrap(), data);
            prop_assert_eq!(tensor.offset % header.alignment as usize, 0);
        }
    }
}
