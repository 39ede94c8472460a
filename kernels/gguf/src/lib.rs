//! GGUF containers and the tensor number formats.
//!
//! [`GgufFile::open`] maps a model (all shards of a split one), checks it as untrusted input, and gives access to keys
//! and tensors. [`dequantize`] decodes every number format to f32; [`unpack_block`] decodes a block to integers and
//! scales, which is what matrix kernels want. [`writer`] makes files.

#![allow(unsafe_code, reason = "mapping files")]

mod cursor;
mod error;
mod file;
mod formats;
mod header;
mod metadata;
mod os;
mod shards;
pub mod types;
mod value;
pub mod writer;

pub use error::GgufError;
pub use file::GgufFile;
pub use formats::{FormatError, UnpackedBlock, dequantize, dequantize_row, unpack_block};
pub use header::{GgufHeader, TensorInfo};
pub use metadata::{FromValue, Metadata};
pub use types::GgmlType;
pub use value::{Array, GgufString, StringArray, Value};
