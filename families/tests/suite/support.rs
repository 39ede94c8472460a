//! Fixture checkpoints in memory, to be described, run and damaged.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use bantam_family_api::{Checkpoint, Family, FamilyError, MetaValue, Model, TensorMeta};
use bantam_gguf::{Array, GgufFile, Value, dequantize};
use bantam_graph::Graph;

use crate::interpreter::Tensor;

/// A checkpoint with the values of its tensors.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) expect: serde_json::Value,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) tensors: HashMap<String, Tensor>,
}

/// The fixture of this name.
pub(crate) fn fixture(name: &str) -> Fixture {
    let folder = [MODELS, DRAFTS].concat().into_iter().flat_map(folders).find(|path| path.ends_with(name));
    Fixture::read(&folder.unwrap_or_else(|| panic!("no fixture `{name}`")))
}

/// All fixtures of models.
pub(crate) fn fixtures() -> Vec<Fixture> {
    MODELS.iter().flat_map(|kind| folders(kind)).map(|path| Fixture::read(&path)).collect()
}

/// All fixtures of drafts that come without their model.
pub(crate) fn drafts() -> Vec<Fixture> {
    DRAFTS.iter().flat_map(|kind| folders(kind)).map(|path| Fixture::read(&path)).collect()
}

const MODELS: &[&str] = &["models"];

const DRAFTS: &[&str] = &["drafts"];

/// The fixtures in a folder of them.
fn folders(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(kind);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.join("model.gguf").is_file());
    paths.sort();
    paths
}

/// The family of an architecture.
pub(crate) fn family(architecture: &str) -> &'static dyn Family {
    bantam_families::family(architecture).unwrap()
}

/// Describes a checkpoint.
pub(crate) fn describe(checkpoint: &Checkpoint) -> Result<Model, FamilyError> {
    bantam_families::describe(checkpoint)
}

/// All graphs of a model: the trunk, as its draft wants it, and those of the draft.
pub(crate) fn graphs(model: &Model) -> Vec<Graph> {
    model.draft.as_ref().map_or_else(|| vec![model.text.clone()], |draft| draft.graphs(&model.text).unwrap())
}

impl Fixture {
    fn read(folder: &Path) -> Self {
        Self::read_file(folder, "model.gguf")
    }

    /// The draft that lies in a file of its own beside the model, if there is one.
    pub(crate) fn draft_file(&self) -> Option<Fixture> {
        const FILE: &str = "draft.gguf";
        self.folder.join(FILE).is_file().then(|| Self::read_file(&self.folder, FILE))
    }

    fn read_file(folder: &Path, file: &str) -> Self {
        let file = GgufFile::open(folder.join(file)).unwrap();
        let expect = std::fs::read(folder.join("expect.json")).unwrap();
        let mut fixture = Fixture {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            folder: folder.into(),
            expect: serde_json::from_slice(&expect).unwrap(),
            checkpoint: Checkpoint { architecture: architecture(&file), ..Checkpoint::default() },
            tensors: HashMap::new(),
        };
        fixture.checkpoint.metadata = file.metadata().iter().map(|(key, v)| (key.into(), meta_value(v))).collect();
        for info in file.tensors() {
            let shape: Vec<usize> = info.shape.iter().rev().map(|&n| n as usize).collect();
            let mut values = vec![0.0; shape.iter().product()];
            dequantize(info.ty, file.tensor_bytes(info).unwrap(), &mut values).unwrap();
            fixture.put(&info.name, Tensor { shape, data: values.into_iter().map(f64::from).collect() });
            fixture.checkpoint.tensors.get_mut(&info.name).unwrap().r#type = info.ty.name().into();
        }
        fixture
    }

    /// Adds or replaces a tensor.
    pub(crate) fn put(&mut self, name: &str, tensor: Tensor) {
        let meta = TensorMeta { shape: tensor.shape.clone(), r#type: "F32".into() };
        self.checkpoint.tensors.insert(name.into(), meta);
        self.tensors.insert(name.into(), tensor);
    }

    /// Removes a tensor and returns it.
    pub(crate) fn take(&mut self, name: &str) -> Tensor {
        self.checkpoint.tensors.remove(name);
        self.tensors.remove(name).unwrap()
    }

    /// Sets a metadata key of the architecture.
    pub(crate) fn set(&mut self, key: &str, value: MetaValue) {
        self.checkpoint.metadata.insert(format!("{}.{key}", self.checkpoint.architecture), value);
    }

    /// Little-endian f32 numbers of one of its files.
    pub(crate) fn numbers(&self, file: &str) -> Vec<f32> {
        let bytes = std::fs::read(self.folder.join(file)).unwrap();
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// An array of token ids in `expect.json`.
    pub(crate) fn ids(&self, key: &str) -> Vec<u32> {
        serde_json::from_value(self.expect[key].clone()).unwrap()
    }
}

fn architecture(file: &GgufFile) -> String {
    file.metadata().require::<&str>("general.architecture").unwrap().into()
}

/// Arrays that no family reads are left out.
fn meta_value(value: &Value) -> MetaValue {
    match value {
        Value::U32(n) => MetaValue::Uint((*n).into()),
        Value::F32(x) => MetaValue::Float((*x).into()),
        Value::Bool(b) => MetaValue::Bool(*b),
        Value::String(s) => MetaValue::Text(s.to_str().unwrap().into()),
        Value::Array(Array::Bool(flags)) => MetaValue::Array(flags.iter().map(|&b| MetaValue::Bool(b)).collect()),
        Value::Array(Array::I32(sizes)) => {
            MetaValue::Array(sizes.iter().map(|&n| MetaValue::Uint(n.try_into().unwrap())).collect())
        }
        Value::Array(Array::U64(numbers)) => MetaValue::Array(numbers.iter().map(|&n| MetaValue::Uint(n)).collect()),
        Value::Array(Array::F32(numbers)) => {
            MetaValue::Array(numbers.iter().map(|&x| MetaValue::Float(x.into())).collect())
        }
        Value::Array(array) => {
            MetaValue::Omitted { r#type: array.element_type_name().into(), length: array.len() as u64 }
        }
        other => panic!("no fixture holds a {other}"),
    }
}
