//! The fixtures in memory.

use std::{collections::HashMap, path::Path};

use bantam_gguf::{Array, GgufFile, Value, dequantize};
use bantam_lfm2::Lfm2;
use bantam_plugin_sdk::family::{Checkpoint, Family, FamilyError, MetaValue, Model, TensorMeta};

use crate::interpreter::Tensor;

/// A checkpoint with the values of its tensors, and what the reference says of it.
pub(crate) struct Fixture {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) tensors: HashMap<String, Tensor>,
    pub(crate) expect: serde_json::Value,
    pub(crate) logits: Vec<f32>,
}

pub(crate) fn dense() -> Fixture {
    Fixture::read("lfm2-dense")
}

pub(crate) fn mixture() -> Fixture {
    Fixture::read("lfm2moe-base")
}

pub(crate) fn both() -> [Fixture; 2] {
    [dense(), mixture()]
}

pub(crate) fn describe(checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
    Lfm2.describe(checkpoint)
}

/// What a checkpoint is refused with.
pub(crate) fn refusal(checkpoint: &Checkpoint) -> String {
    describe(checkpoint).unwrap_err().to_string()
}

impl Fixture {
    fn read(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plugins").join(name);
        let file = GgufFile::open(folder.join("model.gguf")).unwrap();
        let architecture = file.metadata().require::<&str>("general.architecture").unwrap().into();
        let mut checkpoint = Checkpoint { architecture, ..Checkpoint::default() };
        checkpoint.metadata = file.metadata().iter().map(|(key, v)| (key.into(), meta_value(v))).collect();
        let mut tensors = HashMap::new();
        for info in file.tensors() {
            let shape: Vec<usize> = info.shape.iter().rev().map(|&n| n as usize).collect();
            let mut values = vec![0.0; shape.iter().product()];
            dequantize(info.ty, file.tensor_bytes(info).unwrap(), &mut values).unwrap();
            let meta = TensorMeta { shape: shape.clone(), r#type: info.ty.name().into() };
            checkpoint.tensors.insert(info.name.clone(), meta);
            let data = values.into_iter().map(f64::from).collect();
            tensors.insert(info.name.clone(), Tensor { shape, data });
        }
        let read = |file: &str| std::fs::read(folder.join(file)).unwrap();
        let logits = read("logits.f32").as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Fixture { checkpoint, tensors, expect: serde_json::from_slice(&read("expect.json")).unwrap(), logits }
    }

    /// An array of token ids in `expect.json`.
    pub(crate) fn ids(&self, key: &str) -> Vec<u32> {
        serde_json::from_value(self.expect[key].clone()).unwrap()
    }

    /// The checkpoint with another value of a key.
    pub(crate) fn with(&self, key: &str, value: MetaValue) -> Checkpoint {
        let mut checkpoint = self.checkpoint.clone();
        checkpoint.metadata.insert(format!("{}.{key}", checkpoint.architecture), value);
        checkpoint
    }

    /// The checkpoint without a key.
    pub(crate) fn without(&self, key: &str) -> Checkpoint {
        let mut checkpoint = self.checkpoint.clone();
        checkpoint.metadata.remove(&format!("{}.{key}", checkpoint.architecture));
        checkpoint
    }
}

fn meta_value(value: &Value) -> MetaValue {
    match value {
        Value::U32(n) => MetaValue::Uint((*n).into()),
        Value::F32(x) => MetaValue::Float((*x).into()),
        Value::Bool(b) => MetaValue::Bool(*b),
        Value::String(s) => MetaValue::Text(s.to_str().unwrap().into()),
        Value::Array(Array::I32(sizes)) => {
            MetaValue::Array(sizes.iter().map(|&n| MetaValue::Uint(n.try_into().unwrap())).collect())
        }
        Value::Array(array) => {
            MetaValue::Omitted { r#type: array.element_type_name().into(), length: array.len() as u64 }
        }
        other => panic!("no fixture holds a {other}"),
    }
}
