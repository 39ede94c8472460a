//! The kernel files, and what is compiled of them: a file with the values of its macros.

use std::sync::Arc;

use crate::{attention, linear, pool, recurrent};

/// A kernel file as it is built into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name in `cu`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(SourceFile { name: $name, text: include_str!(concat!("../cu/", $name)) }),*]
    };
}

/// What kernel files include.
pub const HEADERS: &[SourceFile] = files![
    "attention.cuh",
    "codebooks.cuh",
    "common.cuh",
    "formats.cuh",
    "linear.cuh",
    "mma.cuh",
    "mma_f16.cuh",
    "state.cuh",
];

/// The kernel files: one for each family of kernels.
pub const FILES: &[SourceFile] = files![
    "activations.cu",
    "assign.cu",
    "attention.cu",
    "attention_mma.cu",
    "elementwise.cu",
    "embed.cu",
    "float_few.cu",
    "float_many.cu",
    "float_tensor.cu",
    "linear_few.cu",
    "linear_many.cu",
    "merge.cu",
    "mixture.cu",
    "pool.cu",
    "recurrent.cu",
    "rows.cu",
    "store.cu",
    "streams.cu",
    "top_keys.cu",
    "weights.cu",
];

/// What is compiled as one: a kernel file, for certain values of its macros (a number format, say).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// Name of the file.
    pub file: &'static str,
    /// Names and values of macros.
    pub defines: Vec<(&'static str, String)>,
    /// The text, if it is not that of one of the [`FILES`].
    pub own: Option<Arc<str>>,
}

impl Unit {
    /// A file without macros.
    pub fn plain(file: &'static str) -> Self {
        Unit { file, defines: Vec::new(), own: None }
    }

    /// A file with one macro.
    pub fn with(file: &'static str, name: &'static str, value: impl Into<String>) -> Self {
        Unit { defines: vec![(name, value.into())], ..Unit::plain(file) }
    }

    /// A text from elsewhere, under this name.
    pub fn of_text(file: &'static str, text: Arc<str>) -> Self {
        Unit { own: Some(text), ..Unit::plain(file) }
    }

    /// The file's text; `None` if there is no such file.
    pub fn text(&self) -> Option<&str> {
        let named = || FILES.iter().find(|file| file.name == self.file).map(|file| file.text);
        self.own.as_deref().or_else(named)
    }

    /// Name for people and for files: `linear.cu`, `linear.cu FORMAT=Q4_K`.
    pub fn label(&self) -> String {
        let defines = self.defines.iter().map(|(name, value)| format!(" {name}={value}"));
        std::iter::once(self.file.to_owned()).chain(defines).collect()
    }
}

/// Compute capability, times ten, from which on attention uses tensor cores.
pub const TENSOR_CORES: u32 = 80;

/// Everything that may be compiled for cards of this compute capability, times ten: each file in every form.
pub fn units(arch: u32) -> Vec<Unit> {
    // These need to be told what they are compiled for.
    const IN_FORMS: &[&str] = &["attention", "embed", "float_", "linear_"];
    let in_forms = |file: &str| IN_FORMS.iter().any(|start| file.starts_with(start));
    let plain = FILES.iter().map(|file| file.name).filter(|file| !in_forms(file)).map(Unit::plain);
    let with_tensor_cores = (arch >= TENSOR_CORES).then(attention::mma_units).into_iter().flatten();
    plain
        .chain(attention::units())
        .chain(with_tensor_cores)
        .chain(recurrent::units())
        .chain(pool::units())
        .chain(linear::units(arch))
        .collect()
}
