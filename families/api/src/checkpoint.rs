//! A checkpoint as families see it: metadata and the list of tensors, no weights.

use std::{collections::BTreeMap, fmt::Display};

use bantam_graph::json::digits;
use serde::{Deserialize, Serialize};

use crate::{
    FamilyError,
    wire::{base64, float},
};

/// A metadata value. Long arrays (vocabularies) are left out of what families get: only their type and length stay.
///
/// Its JSON form names the kind and loses nothing: `{"uint":"7"}`, `{"float":1e-5}`, `{"text":"silu"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MetaValue {
    /// true or false.
    Bool(bool),
    /// An integer of 0 or more. In JSON a string of digits.
    Uint(
        #[serde(with = "digits")]
        #[cfg_attr(feature = "schema", schemars(with = "bantam_graph::json::digits::schema::Uint"))]
        u64,
    ),
    /// A negative integer. In JSON a string of digits.
    Int(
        #[serde(with = "digits")]
        #[cfg_attr(feature = "schema", schemars(with = "bantam_graph::json::digits::schema::Int"))]
        i64,
    ),
    /// A number. In JSON `"inf"`, `"-inf"` and `"nan"` where it is none.
    Float(
        #[serde(with = "float")]
        #[cfg_attr(feature = "schema", schemars(with = "float::Float"))]
        f64,
    ),
    /// Text.
    Text(String),
    /// Text that is not UTF-8, byte by byte. In JSON as base64.
    Bytes(
        #[serde(with = "base64")]
        #[cfg_attr(feature = "schema", schemars(with = "crate::wire::schema::Base64"))]
        Vec<u8>,
    ),
    /// A short array.
    Array(Vec<MetaValue>),
    /// A long array.
    Omitted {
        /// Type of its elements.
        r#type: String,
        /// Number of them. In JSON a string of digits.
        #[serde(with = "digits")]
        #[cfg_attr(feature = "schema", schemars(with = "bantam_graph::json::digits::schema::Uint"))]
        length: u64,
    },
}

impl MetaValue {
    fn describe(&self) -> String {
        match self {
            MetaValue::Bool(v) => format!("the bool {v}"),
            MetaValue::Uint(v) => format!("the integer {v}"),
            MetaValue::Int(v) => format!("the integer {v}"),
            MetaValue::Float(v) => format!("the number {v}"),
            MetaValue::Text(v) => format!("the text {v:?}"),
            MetaValue::Bytes(v) => format!("text that is not UTF-8, \"{}\"", v.escape_ascii()),
            MetaValue::Array(v) => format!("an array of {}: [{}]", v.len(), MetaValue::first_of(v)),
            MetaValue::Omitted { length, .. } => format!("an array of {length}"),
        }
    }

    /// The first elements of an array.
    fn first_of(array: &[MetaValue]) -> String {
        const SHOWN: usize = 8;
        let shown: Vec<String> = array.iter().take(SHOWN).map(MetaValue::literal).collect();
        shown.join(", ") + if array.len() > SHOWN { ", …" } else { "" }
    }

    fn literal(&self) -> String {
        match self {
            MetaValue::Bool(v) => v.to_string(),
            MetaValue::Uint(v) => v.to_string(),
            MetaValue::Int(v) => v.to_string(),
            MetaValue::Float(v) => v.to_string(),
            MetaValue::Text(v) => format!("{v:?}"),
            MetaValue::Bytes(v) => format!("\"{}\"", v.escape_ascii()),
            MetaValue::Array(_) | MetaValue::Omitted { .. } => "[…]".into(),
        }
    }

    fn as_usize(&self) -> Option<usize> {
        match self {
            MetaValue::Uint(v) => usize::try_from(*v).ok(),
            _ => None,
        }
    }

    fn as_bool(&self) -> Option<bool> {
        match self {
            MetaValue::Bool(b) => Some(*b),
            _ => None,
        }
    }

    fn as_f32(&self) -> Option<f32> {
        match self {
            MetaValue::Float(v) => Some(*v as f32),
            MetaValue::Uint(v) => Some(*v as f32),
            MetaValue::Int(v) => Some(*v as f32),
            _ => None,
        }
    }
}

/// A tensor of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TensorMeta {
    /// Row-major shape (slowest axis first: a matrix is `[out, in]`).
    pub shape: Vec<usize>,
    /// Number format, as ggml spells it.
    pub r#type: String,
}

impl TensorMeta {
    /// Whether its numbers are floats, or stand for floats in blocks; integers, `F64` and what is unknown are neither.
    pub fn holds_weights(&self) -> bool {
        const FLOATS: &[&str] = &["F32", "F16", "BF16"];
        const IN_BLOCKS: &[&str] = &["Q", "IQ", "TQ", "MXFP", "NVFP"];
        FLOATS.contains(&self.r#type.as_str()) || IN_BLOCKS.iter().any(|kind| self.r#type.starts_with(kind))
    }
}

/// In which order a checkpoint's files, and so the people who look into them, write the extents of a shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AxisOrder {
    /// As ggml does.
    #[default]
    FastestFirst,
    /// As Hugging Face's files do.
    SlowestFirst,
}

/// Metadata and tensor list of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// `general.architecture`.
    pub architecture: String,
    /// All metadata by key.
    pub metadata: BTreeMap<String, MetaValue>,
    /// All tensors by name.
    pub tensors: BTreeMap<String, TensorMeta>,
    /// How errors write shapes: as the files that the checkpoint comes from do.
    #[serde(default)]
    pub axes: AxisOrder,
}

impl Checkpoint {
    /// A shape for people. `shape` is row-major, as all shapes here.
    pub fn shown(&self, shape: &[impl Display]) -> String {
        let mut extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
        if self.axes == AxisOrder::FastestFirst {
            extents.reverse();
        }
        format!("[{}]", extents.join(", "))
    }

    /// Reads the keys `ARCHITECTURE.*`.
    pub fn fields(&self) -> Fields<'_> {
        Fields { checkpoint: self, prefix: format!("{}.", self.architecture) }
    }

    /// Reads the keys `tokenizer.ggml.*`.
    pub fn tokenizer_fields(&self) -> Fields<'_> {
        Fields { checkpoint: self, prefix: "tokenizer.ggml.".into() }
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    /// Shape of a tensor.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn shape(&self, tensor: &str) -> Result<&[usize], FamilyError> {
        self.tensors.get(tensor).map(|t| t.shape.as_slice()).ok_or_else(|| FamilyError::Tensor {
            tensor: tensor.into(),
            expected: "to be in the checkpoint".into(),
            found: "no tensor of this name".into(),
        })
    }

    /// Checks a tensor's shape. First axes of extent 1 do not count: some writers drop them.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn expect(&self, tensor: &str, shape: &[usize]) -> Result<(), FamilyError> {
        let found = self.tensors.get(tensor).map(|t| &t.shape);
        match found {
            Some(found) if without_leading_ones(found) == without_leading_ones(shape) => Ok(()),
            _ => Err(FamilyError::Tensor {
                tensor: tensor.into(),
                expected: format!("shape {}", self.shown(shape)),
                found: found.map_or("no tensor of this name".into(), |found| self.shown(found)),
            }),
        }
    }

    /// As [`Checkpoint::expect`], for a tensor of weights.
    ///
    /// # Errors
    /// Also if it holds integers or another format that no weight has.
    pub fn expect_weights(&self, tensor: &str, shape: &[usize]) -> Result<(), FamilyError> {
        self.expect(tensor, shape)?;
        match self.tensors.get(tensor) {
            Some(meta) if !meta.holds_weights() => Err(FamilyError::Tensor {
                tensor: tensor.into(),
                expected: "F32, F16, BF16 or a quantized type".into(),
                found: meta.r#type.clone(),
            }),
            _ => Ok(()),
        }
    }
}

fn without_leading_ones(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|&&n| n == 1).count();
    shape.get(ones..).unwrap_or_default()
}

/// Typed access to the metadata under a prefix. Every error names the whole key.
#[derive(Clone, Debug)]
pub struct Fields<'c> {
    checkpoint: &'c Checkpoint,
    prefix: String,
}

impl Fields<'_> {
    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        take: impl Fn(&MetaValue) -> Option<T>,
    ) -> Result<Option<T>, FamilyError> {
        match self.checkpoint.metadata.get(&format!("{}{key}", self.prefix)) {
            None => Ok(None),
            Some(v) => take(v).map(Some).ok_or_else(|| self.wrong(key, expected, &v.describe())),
        }
    }

    /// An error about this key.
    pub fn wrong(&self, key: &str, expected: &str, found: &str) -> FamilyError {
        FamilyError::key(format!("{}{key}", self.prefix), expected, found)
    }

    fn required<T>(&self, key: &str, expected: &str, value: Option<T>) -> Result<T, FamilyError> {
        value.ok_or_else(|| self.wrong(key, expected, "no such key"))
    }

    /// A count or size, if given.
    ///
    /// # Errors
    /// If the value is no integer of 0 or more.
    pub fn usize_opt(&self, key: &str) -> Result<Option<usize>, FamilyError> {
        self.typed(key, "an integer of 0 or more", MetaValue::as_usize)
    }

    /// A size of at least 1 that must be given.
    ///
    /// # Errors
    /// If it is missing, 0 or no integer.
    pub fn size(&self, key: &str) -> Result<usize, FamilyError> {
        match self.required(key, "an integer of 1 or more", self.usize_opt(key)?)? {
            0 => Err(self.wrong(key, "an integer of 1 or more", "0")),
            n => Ok(n),
        }
    }

    /// A size of at least 1, or `default`.
    ///
    /// # Errors
    /// If it is 0 or no integer.
    pub fn size_or(&self, key: &str, default: usize) -> Result<usize, FamilyError> {
        if self.usize_opt(key)?.is_none() { Ok(default) } else { self.size(key) }
    }

    /// A number, if given.
    ///
    /// # Errors
    /// If the value is no finite number.
    pub fn f32_opt(&self, key: &str) -> Result<Option<f32>, FamilyError> {
        self.typed(key, "a number", |v| v.as_f32().filter(|x| x.is_finite()))
    }

    /// A number that must be given.
    ///
    /// # Errors
    /// If it is missing or no finite number.
    pub fn f32(&self, key: &str) -> Result<f32, FamilyError> {
        self.required(key, "a number", self.f32_opt(key)?)
    }

    /// Whether something is so, if given.
    ///
    /// # Errors
    /// If the value is no bool.
    pub fn bool_opt(&self, key: &str) -> Result<Option<bool>, FamilyError> {
        self.typed(key, "a bool", MetaValue::as_bool)
    }

    /// Text, if given.
    ///
    /// # Errors
    /// If the value is no text.
    pub fn text_opt(&self, key: &str) -> Result<Option<String>, FamilyError> {
        self.typed(key, "text", |v| match v {
            MetaValue::Text(t) => Some(t.clone()),
            _ => None,
        })
    }

    /// One size for all layers, or an array with one per layer; `None` if not given.
    ///
    /// # Errors
    /// If the value is neither, or an array of another length.
    pub fn per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<usize>>, FamilyError> {
        self.typed(key, &format!("an integer or an array of {layers} integers"), |v| match v {
            MetaValue::Array(a) if a.len() == layers => a.iter().map(MetaValue::as_usize).collect(),
            MetaValue::Array(_) => None,
            v => v.as_usize().map(|n| vec![n; layers]),
        })
    }

    /// One number for all layers, or an array with one per layer; `None` if not given.
    ///
    /// # Errors
    /// If the value is neither, or an array of another length, or a number is not finite.
    pub fn numbers_per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<f32>>, FamilyError> {
        let number = |v: &MetaValue| v.as_f32().filter(|x| x.is_finite());
        self.typed(key, &format!("a number or an array of {layers} numbers"), |v| match v {
            MetaValue::Array(a) if a.len() == layers => a.iter().map(number).collect(),
            MetaValue::Array(_) => None,
            v => number(v).map(|x| vec![x; layers]),
        })
    }

    /// Integers, if given.
    ///
    /// # Errors
    /// If the value is no array of integers of 0 or more.
    pub fn integers_opt(&self, key: &str) -> Result<Option<Vec<u64>>, FamilyError> {
        let integer = |v: &MetaValue| if let MetaValue::Uint(n) = v { Some(*n) } else { None };
        self.typed(key, "a short array of integers of 0 or more", |v| match v {
            MetaValue::Array(a) => a.iter().map(integer).collect(),
            _ => None,
        })
    }

    /// A bool for each layer, if given.
    ///
    /// # Errors
    /// If the value is no array of bools, or one of another length.
    pub fn bools_opt(&self, key: &str, layers: usize) -> Result<Option<Vec<bool>>, FamilyError> {
        self.typed(key, &format!("an array of {layers} bools"), |v| match v {
            MetaValue::Array(a) if a.len() == layers => a.iter().map(MetaValue::as_bool).collect(),
            _ => None,
        })
    }

    /// Whether the value of a key is an array, of whatever.
    pub fn is_array(&self, key: &str) -> bool {
        let value = self.checkpoint.metadata.get(&format!("{}{key}", self.prefix));
        matches!(value, Some(MetaValue::Array(_) | MetaValue::Omitted { .. }))
    }
}
