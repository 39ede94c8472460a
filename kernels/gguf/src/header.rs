//! Parsing and checking the header of one file: magic, keys, tensor infos.
//!
//! The file is untrusted. Nothing is allocated by a count from the file, only by what was read, and all arithmetic on
//! its numbers is checked.

use std::collections::HashSet;
use std::path::Path;

use crate::cursor::Cursor;
use crate::error::{Fault, GgufError, named, quote};
use crate::metadata::Metadata;
use crate::types::GgmlType;
use crate::value::Value;

/// The first bytes of every file.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// The key that sets the alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
/// The alignment of files that do not set it.
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;

/// Versions with the layout of this module; 3 only added that big-endian files may exist.
const VERSIONS: [u32; 2] = [2, 3];
/// The block layouts this crate decodes; earlier ones differ.
const QUANTIZATION_VERSION: u32 = 2;
/// Bytes of the shortest key, value included, and of the shortest tensor info.
const MIN_KEY_BYTES: u64 = 8 + 1 + 4 + 1;
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;
/// ggml's limits.
const MAX_KEY_BYTES: usize = 65535;
const MAX_NAME_BYTES: usize = 63;
const MAX_DIMS: u32 = 4;

/// What stands before the data of a file, checked against the whole file.
#[derive(Clone, Debug)]
pub struct GgufHeader {
    /// Version of the container: 2 or 3.
    pub version: u32,
    /// Every tensor begins at a multiple of this many bytes from the first.
    pub alignment: u32,
    /// The keys.
    pub metadata: Metadata,
    /// The tensors, in file order, which is also the order of their data.
    pub tensors: Vec<TensorInfo>,
}

/// Where a tensor is and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Its number format.
    pub ty: GgmlType,
    /// Up to four dimensions, the fastest (the row) first; none: a single element.
    pub shape: Vec<u64>,
    /// Which file of a split model it is in.
    pub shard: usize,
    /// Where it begins, in bytes from the start of that file.
    pub offset: usize,
    /// Its size in bytes.
    pub bytes: usize,
}

impl TensorInfo {
    /// Values in a row: the first dimension.
    pub fn row_len(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Number of values.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl GgufHeader {
    /// Parses and checks the header of a file given whole; `file` only names it in errors.
    ///
    /// # Errors
    /// [`GgufError::Invalid`] where the file breaks a rule of the format, also where its data is incomplete.
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self, GgufError> {
        parse(file, bytes).map_err(|fault| fault.in_file(file))
    }
}

fn parse(file: &Path, bytes: &[u8]) -> Result<GgufHeader, Fault> {
    let mut cursor = Cursor::new(bytes);
    let version = read_version(&mut cursor)?;
    let tensor_count = cursor.u64("tensor count")?;
    let key_count = cursor.u64("key count")?;
    check_count("key count", key_count, MIN_KEY_BYTES, &cursor)?;
    let metadata = read_keys(file, key_count, &mut cursor)?;
    let alignment = alignment(&metadata)?;
    check_count("tensor count", tensor_count, MIN_TENSOR_BYTES, &cursor)?;
    let mut tensors = read_tensor_infos(tensor_count, &mut cursor)?;
    place_tensors(&mut tensors, cursor.position(), alignment as usize, bytes.len())?;
    check_quantization_version(&metadata, &tensors)?;
    Ok(GgufHeader { version, alignment, metadata, tensors })
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, Fault> {
    let magic = cursor.array("magic")?;
    if magic != MAGIC {
        return Err(Fault::new("magic", "\"GGUF\"", quote(&magic)));
    }
    let version = cursor.u32("version")?;
    if VERSIONS.contains(&version) {
        return Ok(version);
    }
    let swapped = version.swap_bytes();
    let found = if VERSIONS.contains(&swapped) {
        format!("a big-endian file of version {swapped}")
    } else {
        version.to_string()
    };
    Err(Fault::new("version", "2 or 3, little-endian", found))
}

fn check_count(field: &str, count: u64, item_bytes: u64, cursor: &Cursor<'_>) -> Result<(), Fault> {
    let most = cursor.left() as u64 / item_bytes;
    if count > most {
        return Err(Fault::new(field, format!("at most {most}, as the file is no longer"), count.to_string()));
    }
    Ok(())
}

fn read_keys(file: &Path, count: u64, cursor: &mut Cursor<'_>) -> Result<Metadata, Fault> {
    let mut metadata = Metadata::new(file);
    for number in 1..=count {
        let key = read_key(cursor).map_err(|fault| fault.within(&format!("key {number} of {count}")))?;
        let value = read_value(cursor).map_err(|fault| fault.within(&named("key", key)))?;
        if !metadata.insert(key, value) {
            return Err(Fault::new(named("key", key), "each key once", "it twice"));
        }
    }
    Ok(metadata)
}

fn read_key<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Fault> {
    let key = cursor.text("name")?;
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(Fault::new("name", format!("1 to {MAX_KEY_BYTES} bytes"), key.len().to_string()));
    }
    Ok(key)
}

fn read_value(cursor: &mut Cursor<'_>) -> Result<Value, Fault> {
    let id = cursor.u32("value type")?;
    Value::decode(id, cursor)
}

fn alignment(metadata: &Metadata) -> Result<u32, Fault> {
    match metadata.value(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(alignment)) if alignment.is_power_of_two() => Ok(alignment),
        Some(other) => Err(Fault::new(named("key", ALIGNMENT_KEY), "a u32 that is a power of two", other.to_string())),
    }
}

fn read_tensor_infos(count: u64, cursor: &mut Cursor<'_>) -> Result<Vec<TensorInfo>, Fault> {
    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    for number in 1..=count {
        let name = read_tensor_name(cursor).map_err(|fault| fault.within(&format!("tensor {number} of {count}")))?;
        tensors.push(read_tensor_info(name, cursor).map_err(|fault| fault.within(&named("tensor", name)))?);
        if !names.insert(name) {
            return Err(Fault::new(named("tensor", name), "each name once", "it twice"));
        }
    }
    Ok(tensors)
}

fn read_tensor_name<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Fault> {
    let name = cursor.text("name")?;
    if name.len() > MAX_NAME_BYTES {
        return Err(Fault::new("name", format!("at most {MAX_NAME_BYTES} bytes"), quote(name.as_bytes())));
    }
    Ok(name)
}

/// Reads what follows the name. The offset is still the file's: relative to the first tensor.
fn read_tensor_info(name: &str, cursor: &mut Cursor<'_>) -> Result<TensorInfo, Fault> {
    let dims = cursor.u32("number of dimensions")?;
    if dims > MAX_DIMS {
        return Err(Fault::new("number of dimensions", format!("at most {MAX_DIMS}"), dims.to_string()));
    }
    let mut shape = Vec::with_capacity(dims as usize);
    for _ in 0..dims {
        shape.push(cursor.u64("dimensions")?);
    }
    let ty = read_type(cursor)?;
    let bytes = tensor_bytes(ty, &shape)?;
    let offset = cursor.u64("offset")?;
    let offset = usize::try_from(offset)
        .map_err(|_| Fault::new("offset", "one that fits the address space", offset.to_string()))?;
    Ok(TensorInfo { name: name.into(), ty, shape, shard: 0, offset, bytes })
}

fn read_type(cursor: &mut Cursor<'_>) -> Result<GgmlType, Fault> {
    let id = cursor.u32("type")?;
    GgmlType::from_id(id).ok_or_else(|| {
        let found = match GgmlType::removed_name(id) {
            Some(name) => format!("{id}, the removed format {name}"),
            None => format!("{id}, an unknown format"),
        };
        Fault::new("type", "a known number format", found)
    })
}

/// The size of a tensor, if its elements can be counted, its rows are whole blocks, and its bytes can be addressed.
fn tensor_bytes(ty: GgmlType, shape: &[u64]) -> Result<usize, Fault> {
    let too_big = || Fault::new("dimensions", "a size below 2^63", format!("{shape:?}"));
    if shape.iter().any(|&dim| i64::try_from(dim).is_err()) {
        return Err(too_big());
    }
    let elements = shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim)).ok_or_else(too_big)?;
    i64::try_from(elements).map_err(|_| too_big())?;
    let row_len = shape.first().copied().unwrap_or(1);
    if !row_len.is_multiple_of(ty.block_len() as u64) {
        let expected = format!("a first dimension that is a multiple of {}, the block of {ty}", ty.block_len());
        return Err(Fault::new("dimensions", expected, format!("{shape:?}")));
    }
    let bytes = (elements / ty.block_len() as u64).checked_mul(ty.block_bytes() as u64);
    bytes.and_then(|bytes| isize::try_from(bytes).ok()).map(isize::unsigned_abs).ok_or_else(too_big)
}

/// Turns offsets from the first tensor into offsets from the start of the file. Tensors must follow one another in the
/// order of their infos, each padded to the alignment, and end inside the file.
fn place_tensors(tensors: &mut [TensorInfo], infos_end: usize, alignment: usize, file_len: usize) -> Result<(), Fault> {
    let too_big = || Fault::new("data", "a size below 2^64", "a larger one");
    let data_start = infos_end.checked_next_multiple_of(alignment).ok_or_else(too_big)?;
    let mut next = 0;
    for tensor in tensors {
        let fault = |field: &str, expected: String, found: String| {
            Err(Fault::new(field, expected, found).within(&named("tensor", &tensor.name)))
        };
        if tensor.offset != next {
            return fault("offset", format!("{next}, as tensors follow one another"), tensor.offset.to_string());
        }
        let start = data_start.checked_add(next).ok_or_else(too_big)?;
        let end = start.checked_add(tensor.bytes).ok_or_else(too_big)?;
        if end > file_len {
            let left = file_len.saturating_sub(start);
            return fault(
                "data",
                format!("{} bytes at {start}", tensor.bytes),
                format!("{left} to the end of the file"),
            );
        }
        next = (next + tensor.bytes).checked_next_multiple_of(alignment).ok_or_else(too_big)?;
        tensor.offset = start;
    }
    Ok(())
}

fn check_quantization_version(metadata: &Metadata, tensors: &[TensorInfo]) -> Result<(), Fault> {
    const KEY: &str = "general.quantization_version";
    let quantized = tensors.iter().any(|tensor| tensor.ty.is_quantized());
    match metadata.value(KEY) {
        Some(value) if quantized && *value != Value::U32(QUANTIZATION_VERSION) => {
            Err(Fault::new(named("key", KEY), format!("u32 {QUANTIZATION_VERSION}"), value.to_string()))
        }
        _ => Ok(()),
    }
}
