//! An opened model: one mapped file, or all shards of a split one.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::{Fault, GgufError, named};
use crate::header::{GgufHeader, TensorInfo};
use crate::metadata::Metadata;
use crate::os;
use crate::shards::Split;

/// A model file, mapped and checked: all tensors lie inside it. Only its header has been read so far.
///
/// The files must not be changed while they are open.
#[derive(Debug)]
pub struct GgufFile {
    shards: Vec<Shard>,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Data {
    fn bytes(&self) -> &[u8] {
        match self {
            Data::Mapped(map) => map,
            Data::Owned(bytes) => bytes,
        }
    }
}

impl GgufFile {
    /// Opens a model by its only or first file; the other shards are found by its name.
    ///
    /// # Errors
    /// [`GgufError::Io`] for a file that cannot be read, [`GgufError::NotFirstShard`] for a later shard, and
    /// [`GgufError::Invalid`], [`GgufError::Value`] or [`GgufError::MissingKey`] for a broken file, whichever it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let (shard, header) = open_shard(path)?;
        let split = Split::of_first(path, &header.metadata)?;
        let mut model = Self::new(shard, header)?;
        if let Some(split) = split {
            for number in 2..=split.count {
                let (shard, header) = open_shard(&split.path(number))?;
                split.check_shard(number, &shard.path, &header.metadata)?;
                model.add_shard(shard, header.tensors)?;
            }
            split.check_tensors(path, model.tensors.len())?;
        }
        Ok(model)
    }

    /// A model in memory, in one piece. `name` stands for the file in errors.
    ///
    /// # Errors
    /// [`GgufError::Invalid`] where the bytes break a rule of the format.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self, GgufError> {
        let path = name.into();
        let header = GgufHeader::parse(&path, &bytes)?;
        Self::new(Shard { path, data: Data::Owned(bytes) }, header)
    }

    fn new(shard: Shard, header: GgufHeader) -> Result<Self, GgufError> {
        let GgufHeader { version, metadata, tensors, .. } = header;
        let mut model = Self { shards: Vec::new(), version, metadata, tensors: Vec::new(), index: HashMap::new() };
        model.add_shard(shard, tensors)?;
        Ok(model)
    }

    fn add_shard(&mut self, shard: Shard, tensors: Vec<TensorInfo>) -> Result<(), GgufError> {
        for tensor in tensors {
            if self.index.contains_key(&tensor.name) {
                let field = named("tensor", &tensor.name);
                return Err(Fault::new(field, "each name once", "it also in an earlier shard").in_file(shard.path));
            }
            self.index.insert(tensor.name.clone(), self.tensors.len());
            self.tensors.push(TensorInfo { shard: self.shards.len(), ..tensor });
        }
        self.shards.push(shard);
        Ok(())
    }

    /// The only or first file.
    pub fn path(&self) -> &Path {
        self.metadata.file()
    }

    /// Every file, by shard.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|shard| &*shard.path)
    }

    /// Version of the container.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The keys (of the first shard: the others have none of the model's).
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors of all shards, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(*self.index.get(name)?)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`GgufError::MissingTensor`] where there is none.
    pub fn require_tensor(&self, name: &str) -> Result<&TensorInfo, GgufError> {
        self.tensor(name).ok_or_else(|| GgufError::MissingTensor { file: self.path().into(), tensor: name.into() })
    }

    /// The bytes of a tensor of this model.
    ///
    /// # Errors
    /// [`GgufError::MissingTensor`] where `tensor` lies outside the files, having come from another model.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<&[u8], GgufError> {
        let (shard, range) = self.locate(tensor)?;
        Ok(&shard.data.bytes()[range])
    }

    /// Tells the system that the memory behind a tensor may be reused: its values have been copied elsewhere. Reading
    /// the tensor again is allowed and fetches it from the file.
    ///
    /// # Errors
    /// [`GgufError::MissingTensor`] as for [`tensor_bytes`](Self::tensor_bytes), [`GgufError::Io`] where the system
    /// refuses; ignoring it costs memory only.
    pub fn release_pages(&self, tensor: &TensorInfo) -> Result<(), GgufError> {
        let (shard, range) = self.locate(tensor)?;
        match &shard.data {
            Data::Mapped(map) => {
                os::release(map, range).map_err(|source| GgufError::Io { file: shard.path.clone(), source })
            }
            Data::Owned(_) => Ok(()),
        }
    }

    fn locate(&self, tensor: &TensorInfo) -> Result<(&Shard, Range<usize>), GgufError> {
        let found = self.shards.get(tensor.shard).and_then(|shard| {
            let end = tensor.offset.checked_add(tensor.bytes)?;
            (end <= shard.data.bytes().len()).then_some((shard, tensor.offset..end))
        });
        found.ok_or_else(|| GgufError::MissingTensor { file: self.path().into(), tensor: tensor.name.clone() })
    }
}

fn open_shard(path: &Path) -> Result<(Shard, GgufHeader), GgufError> {
    let map = os::map(path).map_err(|source| GgufError::Io { file: path.into(), source })?;
    let header = GgufHeader::parse(path, &map)?;
    Ok((Shard { path: path.into(), data: Data::Mapped(map) }, header))
}
