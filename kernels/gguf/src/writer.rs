//! Writing GGUF files.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::header::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use crate::types::GgmlType;
use crate::value::{Value, encode_string};

const VERSION: u32 = 3;

/// Collects keys and tensors and writes them as one file of version 3.
///
/// What it is given is written as it is; whether that makes a valid file is for the reader to judge.
#[derive(Clone, Debug, Default)]
pub struct GgufWriter<'a> {
    keys: Vec<(String, Value)>,
    tensors: Vec<Tensor<'a>>,
}

#[derive(Clone, Debug)]
struct Tensor<'a> {
    name: String,
    ty: GgmlType,
    shape: Vec<u64>,
    data: Cow<'a, [u8]>,
}

impl<'a> GgufWriter<'a> {
    /// A writer of an empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a key.
    pub fn key(&mut self, key: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.keys.push((key.into(), value.into()));
        self
    }

    /// Appends a tensor: `shape` with the fastest dimension first, `data` in the layout of `ty`.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        ty: GgmlType,
        shape: &[u64],
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        self.tensors.push(Tensor { name: name.into(), ty, shape: shape.into(), data: data.into() });
        self
    }

    /// Appends an F32 tensor.
    pub fn tensor_f32(&mut self, name: impl Into<String>, shape: &[u64], values: &[f32]) -> &mut Self {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, GgmlType::F32, shape, data)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        let alignment = self.alignment();
        out.write_all(&self.header(alignment))?;
        for tensor in &self.tensors {
            out.write_all(&tensor.data)?;
            let end = tensor.data.len();
            out.write_all(&vec![0; end.next_multiple_of(alignment) - end])?;
        }
        out.flush()
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let alignment = self.alignment();
        let mut bytes = self.header(alignment);
        for tensor in &self.tensors {
            bytes.extend_from_slice(&tensor.data);
            pad(&mut bytes, alignment);
        }
        bytes
    }

    /// The alignment that the keys ask for.
    fn alignment(&self) -> usize {
        let asked = self.keys.iter().find_map(|(key, value)| match value {
            Value::U32(alignment) if key == ALIGNMENT_KEY => Some(*alignment),
            _ => None,
        });
        asked.unwrap_or(DEFAULT_ALIGNMENT).max(1) as usize
    }

    /// Everything before the data, padding included.
    fn header(&self, alignment: usize) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            encode_string(key.as_bytes(), &mut out);
            out.extend_from_slice(&value.type_id().to_le_bytes());
            value.encode(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            tensor.encode_info(offset, &mut out);
            offset = (offset + tensor.data.len()).next_multiple_of(alignment);
        }
        pad(&mut out, alignment);
        out
    }
}

impl Tensor<'_> {
    fn encode_info(&self, offset: usize, out: &mut Vec<u8>) {
        encode_string(self.name.as_bytes(), out);
        out.extend_from_slice(&(self.shape.len() as u32).to_le_bytes());
        self.shape.iter().for_each(|dim| out.extend_from_slice(&dim.to_le_bytes()));
        out.extend_from_slice(&(self.ty as u32).to_le_bytes());
        out.extend_from_slice(&(offset as u64).to_le_bytes());
    }
}

fn pad(bytes: &mut Vec<u8>, alignment: usize) {
    bytes.resize(bytes.len().next_multiple_of(alignment), 0);
}
