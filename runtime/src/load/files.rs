//! A model's files: one GGUF file with all in it, or a directory as Hugging Face lays it out.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bantam_family_api::{Checkpoint, FamilyError, HfCheckpoint, Import, Model, TensorMeta, TokenizerHints};
use bantam_gguf::GgufFile;
use bantam_plugins::{Described, Families};
use bantam_text::{ChatTemplate, TemplateError, Tokenizer, TokenizerError};
use serde_json::{Map, Value};

use super::{LoadError, checkpoint, safetensors::SafetensorsFiles, source::ModelSource};

/// An opened model, of which nothing but headers has been read.
#[derive(Clone, Debug)]
pub enum ModelFiles {
    /// A GGUF file with its shards.
    Gguf(Arc<GgufFile>),
    /// A directory with `config.json`, safetensors files and `tokenizer.json`.
    Directory(Arc<Directory>),
}

/// An opened directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// `config.json`.
    pub config: Map<String, Value>,
    /// All tensors.
    pub tensors: Arc<SafetensorsFiles>,
}

impl Directory {
    fn open(path: &Path) -> Result<Self, LoadError> {
        let file = path.join("config.json");
        let bytes = std::fs::read(&file).map_err(|e| LoadError::other(&file, &e))?;
        let config = serde_json::from_slice(&bytes).map_err(|e| LoadError::other(&file, &e))?;
        Ok(Directory { path: path.into(), config, tensors: Arc::new(SafetensorsFiles::open(path)?) })
    }

    /// The text of one of its files; `None` if it is not there.
    fn text(&self, name: &str) -> Result<Option<String>, LoadError> {
        let file = self.path.join(name);
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(LoadError::other(&file, &e)),
        }
    }

    fn tokenizer(&self) -> Result<Tokenizer, LoadError> {
        const FILE: &str = "tokenizer.json";
        const CONFIG: &str = "tokenizer_config.json";
        let file = self.path.join(FILE);
        let tokenizer = self.text(FILE)?.ok_or_else(|| LoadError::other(&file, &"no such file"))?;
        let config = self.text(CONFIG)?;
        let tokenizer = Tokenizer::from_hf_json(tokenizer.as_bytes(), config.as_deref().map(str::as_bytes));
        tokenizer.map_err(|error| match error {
            TokenizerError::Value { key, reason } if key == CONFIG => LoadError::other(&self.path.join(key), &reason),
            error => LoadError::other(&file, &error),
        })
    }

    fn template(&self) -> Result<Option<ChatTemplate>, LoadError> {
        let (jinja, config) = (self.text("chat_template.jinja")?, self.text("tokenizer_config.json")?);
        let template = ChatTemplate::from_hf(jinja.as_deref(), config.as_deref().map(str::as_bytes));
        template.map_err(|e| LoadError::other(&self.path, &e))
    }

    /// What the family reads, and how it is made of the files' tensors.
    fn import(&self, families: &Families) -> Result<Import, FamilyError> {
        let tensors = self.tensors.iter().map(|(name, entry)| {
            (name.to_owned(), TensorMeta { shape: entry.shape.clone(), r#type: entry.dtype.to_string() })
        });
        families.import(&HfCheckpoint { config: self.config.clone(), tensors: tensors.collect() })
    }

    /// Refuses number formats that cannot be read, of those tensors that are.
    fn check_formats(&self, import: &Import, model: &Model) -> Result<(), FamilyError> {
        let graphs = std::iter::once(&model.text).chain(model.draft.iter().map(|draft| &draft.graph));
        let read = graphs.flat_map(|graph| &graph.weights).flat_map(|weight| weight.expr.tensors());
        let tensors = read.filter_map(|name| import.tensors.get(name)).flat_map(|expr| expr.tensors());
        for name in tensors {
            let Some(entry) = self.tensors.tensor(name).filter(|entry| entry.ty().is_none()) else { continue };
            let (expected, found) = ("F32, F16 or BF16".into(), entry.dtype.to_string());
            return Err(FamilyError::Tensor { tensor: name.into(), expected, found });
        }
        Ok(())
    }
}

impl ModelFiles {
    /// Opens a GGUF model by its only or first file, or a directory.
    ///
    /// # Errors
    /// A file that cannot be read, is missing or is damaged.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        if path.is_dir() {
            return Ok(ModelFiles::Directory(Arc::new(Directory::open(path)?)));
        }
        Ok(ModelFiles::Gguf(Arc::new(GgufFile::open(path)?)))
    }

    /// The only or first file, or the directory.
    pub fn path(&self) -> &Path {
        match self {
            ModelFiles::Gguf(file) => file.path(),
            ModelFiles::Directory(directory) => &directory.path,
        }
    }

    /// The files that hold its tensors, each once.
    pub fn tensor_files(&self) -> BTreeSet<PathBuf> {
        match self {
            ModelFiles::Gguf(file) => file.paths().map(Path::to_owned).collect(),
            ModelFiles::Directory(directory) => {
                directory.tensors.iter().map(|(_, tensor)| tensor.file().to_owned()).collect()
            }
        }
    }

    /// What the family of its architecture says of it, and where its weights are.
    ///
    /// # Errors
    /// An unknown architecture, or a key or tensor that does not fit.
    pub fn describe(&self, families: &Families) -> Result<(Described, ModelSource), LoadError> {
        let named = |source| self.refused(source);
        match self {
            ModelFiles::Gguf(file) => {
                let model = families.describe(&checkpoint(file)?).map_err(named)?;
                Ok((model, ModelSource::of_gguf(Arc::clone(file))))
            }
            ModelFiles::Directory(directory) => {
                let import = directory.import(families).map_err(named)?;
                let described = families.describe(&import.checkpoint).map_err(|e| import.in_terms_of_the_files(e));
                let model = described.map_err(named)?;
                directory.check_formats(&import, &model.model).map_err(named)?;
                Ok((model, ModelSource::imported(Arc::clone(&directory.tensors), import.tensors)))
            }
        }
    }

    /// Metadata and tensor list in the terms of its family.
    ///
    /// # Errors
    /// A key or tensor that does not fit.
    pub(super) fn checkpoint(&self, families: &Families) -> Result<Checkpoint, LoadError> {
        match self {
            ModelFiles::Gguf(file) => Ok(checkpoint(file)?),
            ModelFiles::Directory(directory) => {
                let import = directory.import(families);
                import.map(|import| import.checkpoint).map_err(|source| self.refused(source))
            }
        }
    }

    fn refused(&self, source: FamilyError) -> LoadError {
        LoadError::Family { file: self.path().into(), source }
    }

    /// Bytes of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        match self {
            ModelFiles::Gguf(file) => file.tensors().iter().fold(0, |sum, t| sum.saturating_add(t.bytes as u64)),
            ModelFiles::Directory(directory) => {
                directory.tensors.iter().fold(0, |sum, (_, entry)| sum.saturating_add(entry.bytes() as u64))
            }
        }
    }

    /// The name that the files give the model, if any.
    pub fn title(&self) -> Option<String> {
        match self {
            ModelFiles::Gguf(file) => file.metadata().get::<&str>("general.name").ok().flatten().map(Into::into),
            ModelFiles::Directory(_) => None,
        }
    }

    /// The model's tokenizer, as far as its files tell.
    ///
    /// # Errors
    /// If there is none, or it cannot be built.
    pub fn tokenizer(&self) -> Result<Tokenizer, LoadError> {
        self.tokenizer_with(None)
    }

    /// The model's tokenizer, with what its family knows where the files do not tell.
    ///
    /// # Errors
    /// If there is none, or it cannot be built.
    pub fn tokenizer_with(&self, hints: Option<&TokenizerHints>) -> Result<Tokenizer, LoadError> {
        match self {
            ModelFiles::Gguf(file) => {
                let none = TokenizerHints::default();
                Tokenizer::from_gguf_with(file.metadata(), hints.unwrap_or(&none)).map_err(|error| match error {
                    // It names the file itself.
                    TokenizerError::Metadata(error) => LoadError::Gguf(error),
                    error => LoadError::other(file.path(), &error),
                })
            }
            ModelFiles::Directory(directory) => directory.tokenizer(),
        }
    }

    /// The model's chat template, if it has one.
    ///
    /// # Errors
    /// A template that is not valid Jinja.
    pub fn template(&self) -> Result<Option<ChatTemplate>, LoadError> {
        match self {
            ModelFiles::Gguf(file) => ChatTemplate::from_gguf(file.metadata()).map_err(|error| match error {
                TemplateError::Metadata(error) => LoadError::Gguf(error),
                error => LoadError::other(file.path(), &error),
            }),
            ModelFiles::Directory(directory) => directory.template(),
        }
    }

    /// The text of the (main) chat template, if there is one.
    ///
    /// # Errors
    /// A key of another type, a file that cannot be read.
    pub fn template_source(&self) -> Result<Option<String>, LoadError> {
        match self {
            ModelFiles::Gguf(file) => Ok(file.metadata().get::<&str>("tokenizer.chat_template")?.map(Into::into)),
            ModelFiles::Directory(directory) => {
                let jinja = directory.text("chat_template.jinja")?;
                let config = directory.text("tokenizer_config.json")?;
                let config: Value = config.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
                Ok(jinja.or_else(|| config.get("chat_template")?.as_str().map(Into::into)))
            }
        }
    }
}
