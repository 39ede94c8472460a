//! The tensors of a directory of safetensors files, checked as untrusted input.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bantam_backend::{SharedBytes, WeightData};
use bantam_gguf::{GgmlType, MappedFile};
use safetensors::{Dtype, SafeTensors, tensor::SafeTensorError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::form::WeightForm;

/// What is wrong with files of tensors. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    /// A file cannot be read.
    #[error("{}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file breaks the format as a whole.
    #[error("{}: expected {expected}, found {found}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What must be there.
        expected: String,
        /// What is.
        found: String,
    },
    /// A tensor breaks the format, or is not where the index says.
    #[error("{}: tensor `{tensor}`: expected {expected}, found {found}", .file.display())]
    Tensor {
        /// The file that is at fault.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// What must be there.
        expected: String,
        /// What is.
        found: String,
    },
}

/// One tensor.
#[derive(Clone, Debug)]
pub struct TensorEntry {
    file: Arc<MappedFile>,
    /// Number format, as the file spells it.
    pub dtype: Dtype,
    /// Row-major shape.
    pub shape: Vec<usize>,
    range: std::ops::Range<usize>,
}

/// All tensors of a directory, by name.
#[derive(Debug)]
pub struct SafetensorsFiles {
    tensors: BTreeMap<String, TensorEntry>,
}

impl TensorEntry {
    /// Bytes in the file.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Its bytes in the mapped file.
    pub(super) fn raw(&self) -> &[u8] {
        (*self.file).as_ref().get(self.range.clone()).unwrap_or_default()
    }

    /// Where it lies.
    pub fn file(&self) -> &Path {
        self.file.path()
    }

    /// Its number format here; `None` for those that no backend reads.
    pub fn ty(&self) -> Option<GgmlType> {
        match self.dtype {
            Dtype::F32 => Some(GgmlType::F32),
            Dtype::F16 => Some(GgmlType::F16),
            Dtype::BF16 => Some(GgmlType::BF16),
            _ => None,
        }
    }

    /// Its numbers, where they lie; `name` stands in errors.
    ///
    /// # Errors
    /// A number format that no backend reads.
    pub fn data(&self, name: &str) -> Result<WeightData, String> {
        let ty = self.readable(name)?;
        let bytes = SharedBytes::new(Arc::clone(&self.file) as _, self.range.clone())
            .ok_or_else(|| format!("tensor `{name}` does not lie in the file"))?;
        Ok(WeightData { ty, shape: self.shape.clone(), bytes })
    }

    /// Number format and shape of what [`TensorEntry::data`] gives.
    pub(super) fn form(&self, name: &str) -> Result<WeightForm, String> {
        Ok(WeightForm { ty: self.readable(name)?, shape: self.shape.clone(), computed: false })
    }

    fn readable(&self, name: &str) -> Result<GgmlType, String> {
        self.ty().ok_or_else(|| format!("tensor `{name}`: expected F32, F16 or BF16, found {}", self.dtype))
    }

    pub(super) fn release(&self) -> io::Result<()> {
        self.file.release(self.range.clone())
    }
}

impl SafetensorsFiles {
    /// Opens the files that the directory's index names, or all that it has if there is none.
    ///
    /// # Errors
    /// No files, a missing one, a file that breaks the format, a tensor that is not where the index says or in two files.
    pub fn open(directory: &Path) -> Result<Self, SafetensorsError> {
        let names = names(directory)?;
        let index = names.iter().find(|name| name.ends_with(".safetensors.index.json"));
        match index {
            Some(name) => Self::indexed(directory, &directory.join(name)),
            None => Self::unindexed(directory, &names),
        }
    }

    fn indexed(directory: &Path, index: &Path) -> Result<Self, SafetensorsError> {
        let places = read_index(index)?;
        let mut tensors = BTreeMap::new();
        let files: BTreeSet<&str> = places.values().map(String::as_str).collect();
        for name in files {
            let of_it = || places.iter().filter(|(_, file)| *file == name).map(|(tensor, _)| tensor);
            let mut found = open_indexed(directory, index, name, of_it().next().map_or("", String::as_str))?;
            for tensor in of_it() {
                let entry = found.remove(tensor).ok_or_else(|| SafetensorsError::Tensor {
                    file: directory.join(name),
                    tensor: tensor.clone(),
                    expected: format!("to be there, as {} says", index.display()),
                    found: "no tensor of this name".into(),
                })?;
                tensors.insert(tensor.clone(), entry);
            }
        }
        Ok(SafetensorsFiles { tensors })
    }

    fn unindexed(directory: &Path, names: &[String]) -> Result<Self, SafetensorsError> {
        let files: Vec<&String> = names.iter().filter(|name| name.ends_with(".safetensors")).collect();
        if files.is_empty() {
            let (expected, found) = ("one or more .safetensors files".into(), "none".into());
            return Err(SafetensorsError::File { file: directory.into(), expected, found });
        }
        if let Some(missing) = files.iter().find_map(|name| missing_shard(name, &files)) {
            let (expected, found) = (format!("`{missing}` beside the other shards"), "no such file".into());
            return Err(SafetensorsError::File { file: directory.into(), expected, found });
        }
        let mut tensors: BTreeMap<String, TensorEntry> = BTreeMap::new();
        for name in files {
            for (tensor, entry) in open_file(&directory.join(name))? {
                if let Some(other) = tensors.get(&tensor) {
                    let (file, expected) = (entry.file().into(), "each tensor once".into());
                    let found = format!("it also in {}", other.file().display());
                    return Err(SafetensorsError::Tensor { file, tensor, expected, found });
                }
                tensors.insert(tensor, entry);
            }
        }
        Ok(SafetensorsFiles { tensors })
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.tensors.get(name)
    }

    /// All tensors, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &TensorEntry)> {
        self.tensors.iter().map(|(name, entry)| (name.as_str(), entry))
    }
}

/// Names of the directory's files, in order.
fn names(directory: &Path) -> Result<Vec<String>, SafetensorsError> {
    let named = |source| SafetensorsError::Io { file: directory.into(), source };
    let entries = std::fs::read_dir(directory).map_err(named)?.collect::<Result<Vec<_>, _>>().map_err(named)?;
    let mut names: Vec<String> = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The file of each tensor. Only plain names are taken: an index must not lead out of the directory.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>, SafetensorsError> {
    let bytes = std::fs::read(path).map_err(|source| SafetensorsError::Io { file: path.into(), source })?;
    let index: Index = serde_json::from_slice(&bytes).map_err(|e| SafetensorsError::File {
        file: path.into(),
        expected: "an object `weight_map` with the file of each tensor".into(),
        found: e.to_string(),
    })?;
    let leads_out = |file: &String| Path::new(file).file_name().is_none_or(|name| name != file.as_str());
    match index.weight_map.iter().find(|(_, file)| leads_out(file)) {
        None => Ok(index.weight_map),
        Some((tensor, file)) => Err(SafetensorsError::Tensor {
            file: path.into(),
            tensor: tensor.clone(),
            expected: "the name of a file in the same directory".into(),
            found: format!("`{file}`"),
        }),
    }
}

/// Opens a file that an index names; if it is missing, the error says who wants it.
fn open_indexed(
    directory: &Path,
    index: &Path,
    name: &str,
    tensor: &str,
) -> Result<BTreeMap<String, TensorEntry>, SafetensorsError> {
    let file = directory.join(name);
    if file.is_file() {
        return open_file(&file);
    }
    let expected = format!("`{name}` beside it");
    Err(SafetensorsError::Tensor { file: index.into(), tensor: tensor.into(), expected, found: "no such file".into() })
}

/// `model-00002-of-00003.safetensors`, if `name` is another of these and that one is not there.
fn missing_shard(name: &str, names: &[&String]) -> Option<String> {
    let (stem, count) = name.strip_suffix(".safetensors")?.rsplit_once("-of-")?;
    let (stem, number) = stem.rsplit_once('-')?;
    number.parse::<usize>().ok()?;
    let shard = |i: usize| format!("{stem}-{i:0width$}-of-{count}.safetensors", width = number.len());
    // One more than there are files is missing already, whatever the name says.
    (1..=count.parse::<usize>().ok()?.min(names.len() + 1)).map(shard).find(|shard| !names.contains(&shard))
}

fn open_file(path: &Path) -> Result<BTreeMap<String, TensorEntry>, SafetensorsError> {
    let file = MappedFile::open(path).map_err(|source| SafetensorsError::Io { file: path.into(), source })?;
    let file = Arc::new(file);
    let bytes: &[u8] = (*file).as_ref();
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| refusal(path, bytes, &e))?;
    // Checked by the library: the header and what it describes fill the file.
    let start = size_of::<u64>().saturating_add(header);
    let entry = |info: &safetensors::tensor::TensorInfo| TensorEntry {
        file: Arc::clone(&file),
        dtype: info.dtype,
        shape: if info.shape.is_empty() { vec![1] } else { info.shape.clone() },
        range: start.saturating_add(info.data_offsets.0)..start.saturating_add(info.data_offsets.1),
    };
    Ok(metadata.tensors().into_iter().map(|(name, info)| (name, entry(info))).collect())
}

/// The library's error with the tensor at fault, where one is.
fn refusal(path: &Path, bytes: &[u8], error: &SafeTensorError) -> SafetensorsError {
    let file = path.into();
    let (tensor, expected) = match error {
        SafeTensorError::InvalidOffset(tensor) => {
            (Some(tensor.clone()), "`data_offsets` that begin where those of another tensor end, or at 0")
        }
        SafeTensorError::TensorInvalidInfo | SafeTensorError::ValidationOverflow => {
            (missized(bytes), "`data_offsets` as far apart as `shape` and `dtype` say")
        }
        SafeTensorError::MetadataIncompleteBuffer => (None, "a file as long as its tensors, without a rest"),
        _ => (None, "a header of JSON, and before it its length"),
    };
    match tensor {
        None => SafetensorsError::File { file, expected: expected.into(), found: error.to_string() },
        Some(tensor) => {
            let found = described(bytes, &tensor).unwrap_or_else(|| error.to_string());
            SafetensorsError::Tensor { file, tensor, expected: expected.into(), found }
        }
    }
}

/// The header as plain JSON.
fn header(bytes: &[u8]) -> Option<Map<String, Value>> {
    let (len, rest) = bytes.split_first_chunk::<8>()?;
    serde_json::from_slice(rest.get(..usize::try_from(u64::from_le_bytes(*len)).ok()?)?).ok()
}

/// What the header says of a tensor.
fn described(bytes: &[u8], tensor: &str) -> Option<String> {
    header(bytes)?.get(tensor).map(Value::to_string)
}

/// The first tensor that is not as large as its shape says.
fn missized(bytes: &[u8]) -> Option<String> {
    let fits = |info: &Value| {
        let dtype: Dtype = serde_json::from_value(info.get("dtype")?.clone()).ok()?;
        let shape: Vec<u64> = serde_json::from_value(info.get("shape")?.clone()).ok()?;
        let [start, end]: [u64; 2] = serde_json::from_value(info.get("data_offsets")?.clone()).ok()?;
        let bits = shape.iter().try_fold(dtype.bitsize() as u64, |bits, extent| bits.checked_mul(*extent))?;
        (end.checked_sub(start)? == bits / 8).then_some(())
    };
    header(bytes)?.into_iter().find(|(name, info)| name != "__metadata__" && fits(info).is_none()).map(|(name, _)| name)
}
