//! From a GGUF file to what families see of it.

use bantam_family_api::{AxisOrder, Checkpoint, MetaValue, TensorMeta};
use bantam_gguf::{Array, GgufError, GgufFile, TensorInfo, Value};

/// Arrays longer than this are vocabularies and the like: families get only their type and length.
const LONGEST_ARRAY: usize = 1024;

/// Metadata and tensor list of a file.
///
/// # Errors
/// If the file does not say its architecture.
pub fn checkpoint(file: &GgufFile) -> Result<Checkpoint, GgufError> {
    let metadata = file.metadata();
    Ok(Checkpoint {
        architecture: metadata.require::<&str>("general.architecture")?.into(),
        metadata: metadata.iter().map(|(key, value)| (key.into(), meta_value(value))).collect(),
        tensors: file.tensors().iter().map(|tensor| (tensor.name.clone(), tensor_meta(tensor))).collect(),
        axes: AxisOrder::FastestFirst,
    })
}

fn tensor_meta(tensor: &TensorInfo) -> TensorMeta {
    TensorMeta { shape: row_major_shape(tensor), r#type: tensor.ty.name().into() }
}

/// Extents of a tensor, slowest axis first; a tensor without dimensions is a single element. An extent beyond `usize`
/// cannot belong to a tensor that lies in a mapped file.
pub(super) fn row_major_shape(tensor: &TensorInfo) -> Vec<usize> {
    let shape: Vec<usize> = tensor.shape.iter().rev().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
    if shape.is_empty() { vec![1] } else { shape }
}

fn meta_value(value: &Value) -> MetaValue {
    match value {
        Value::U8(n) => unsigned(*n),
        Value::U16(n) => unsigned(*n),
        Value::U32(n) => unsigned(*n),
        Value::U64(n) => unsigned(*n),
        Value::I8(n) => signed(*n),
        Value::I16(n) => signed(*n),
        Value::I32(n) => signed(*n),
        Value::I64(n) => signed(*n),
        Value::F32(x) => MetaValue::Float((*x).into()),
        Value::F64(x) => MetaValue::Float(*x),
        Value::Bool(b) => MetaValue::Bool(*b),
        Value::String(s) => text(s.as_bytes()),
        Value::Array(array) => meta_array(array),
    }
}

fn meta_array(array: &Array) -> MetaValue {
    if array.len() > LONGEST_ARRAY {
        return MetaValue::Omitted { r#type: array.element_type_name().into(), length: array.len() as u64 };
    }
    MetaValue::Array(match array {
        Array::U8(a) => a.iter().copied().map(unsigned).collect(),
        Array::U16(a) => a.iter().copied().map(unsigned).collect(),
        Array::U32(a) => a.iter().copied().map(unsigned).collect(),
        Array::U64(a) => a.iter().copied().map(unsigned).collect(),
        Array::I8(a) => a.iter().copied().map(signed).collect(),
        Array::I16(a) => a.iter().copied().map(signed).collect(),
        Array::I32(a) => a.iter().copied().map(signed).collect(),
        Array::I64(a) => a.iter().copied().map(signed).collect(),
        Array::F32(a) => a.iter().map(|&x| MetaValue::Float(x.into())).collect(),
        Array::F64(a) => a.iter().copied().map(MetaValue::Float).collect(),
        Array::Bool(a) => a.iter().copied().map(MetaValue::Bool).collect(),
        Array::String(a) => a.iter().map(text).collect(),
    })
}

fn unsigned(n: impl Into<u64>) -> MetaValue {
    MetaValue::Uint(n.into())
}

/// Integers of 0 or more are the same value whatever type the file stores them in.
fn signed(n: impl Into<i64>) -> MetaValue {
    let n = n.into();
    u64::try_from(n).map_or(MetaValue::Int(n), MetaValue::Uint)
}

fn text(bytes: &[u8]) -> MetaValue {
    match str::from_utf8(bytes) {
        Ok(text) => MetaValue::Text(text.into()),
        Err(_) => MetaValue::Bytes(bytes.into()),
    }
}
