//! GGUF containers and the tensor number formats.
//!
//! [`GgufFile::open`] maps a model (all shards of a split one), checks it as untrusted input, and gives access to keys
//! and tensors. [`dequantize`] decodes every number format to f32; [`unpack_block`] decodes a block to integers and
//! scales, which is what matrix kernels want. [`writer`] makes files.
//!
//! ```
//! use bantam_gguf::{GgufFile, dequantize, writer::GgufWriter};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut writer = GgufWriter::new();
//! writer.key("general.architecture", "llama").key("llama.block_count", 1u32);
//! writer.tensor_f32("output_norm.weight", &[2], &[0.5, 2.0]);
//! let model = GgufFile::from_bytes("tiny.gguf", writer.to_bytes())?;
//!
//! assert_eq!(model.metadata().require::<u32>("llama.block_count")?, 1);
//! assert_eq!(model.metadata().get::<f32>("llama.rope.freq_base")?, None);
//! let norm = model.require_tensor("output_norm.weight")?;
//! let mut values = [0.0; 2];
//! dequantize(norm.ty, model.tensor_bytes(norm)?, &mut values)?;
//! assert_eq!(values, [0.5, 2.0]);
//! # Ok(())
//! # }
//! ```

#![allow(unsafe_code, reason = "mapping files")]

mod cursor;
mod error;
mod file;
mod formats;
mod header;
mod mapped;
mod metadata;
mod os;
mod shards;
pub mod types;
mod value;
pub mod writer;

pub use error::GgufError;
pub use file::GgufFile;
pub use formats::{FormatError, UnpackedBlock, code_book, dequantize, dequantize_row, unpack_block};
pub use header::{GgufHeader, TensorInfo};
pub use mapped::MappedFile;
pub use metadata::{FromValue, Metadata};
pub use types::GgmlType;
pub use value::{Array, GgufString, StringArray, Value};
