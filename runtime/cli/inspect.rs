//! `bantam inspect`: what is in a model's files, and what becomes of it.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use bantam_gguf::{Array, GgmlType, GgufFile, TensorInfo, Value};
use bantam_plugins::Described;
use bantam_runtime::{
    load::{Directory, ModelFiles, TensorEntry},
    words::brief,
};
use clap::Args;
use serde_json::{Map, Number, json};

use crate::{args::ModelArg, error::CliError, families::FamilyArgs, output};

/// Arrays longer than this are shown as type and length: they are vocabularies.
const LONG_ARRAY: usize = 1024;

/// Show a model's metadata, configuration and tensors as JSON
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    model: ModelArg,

    #[command(flatten)]
    families: FamilyArgs,

    /// The tensor that --dump writes
    #[arg(long, value_name = "NAME", requires = "dump")]
    tensor: Option<String>,

    /// Write the values of --tensor to FILE, dequantized, as raw little-endian f32
    #[arg(long, value_name = "FILE", requires = "tensor")]
    dump: Option<PathBuf>,

    /// Add `graph`: the model as the ops that will be run (and `draft`, if it has one); a failure if there is none
    #[arg(long)]
    graph: bool,

    /// Show arrays of more than 1024 elements whole, not as type and length
    #[arg(long)]
    full: bool,
}

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<(), CliError> {
    let files = ModelFiles::open(&args.model.model.locate()?).map_err(CliError::failed)?;
    if let (Some(name), Some(to)) = (&args.tensor, &args.dump) {
        dump_tensor(&files, name, to)?;
    }
    let mut report = Map::new();
    let metadata = match &files {
        ModelFiles::Gguf(file) => metadata(file, args.full),
        ModelFiles::Directory(directory) => directory.config.clone().into(),
    };
    report.insert("metadata".into(), metadata);
    let mut no_graph = None;
    match files.describe(&args.families.resolve()?) {
        Ok((Described { model, .. }, _)) => {
            report.insert("config".into(), model.config.into());
            if args.graph {
                report.insert("graph".into(), bantam_graph::json::to_value(&model.text).map_err(CliError::failed)?);
            }
            if let Some(draft) = model.draft.filter(|_| args.graph) {
                report.insert("draft".into(), serde_json::to_value(&draft).map_err(CliError::failed)?);
            }
        }
        Err(why) => {
            report.insert("config".into(), serde_json::Value::Null);
            report.insert("config_error".into(), brief(&why.to_string()).into());
            if args.graph {
                report.insert("graph".into(), serde_json::Value::Null);
                no_graph = Some(CliError::Failed(format!("--graph: there is none: {why}")));
            }
        }
    }
    let tensors = match &files {
        ModelFiles::Gguf(file) => file.tensors().iter().map(describe).collect(),
        ModelFiles::Directory(directory) => directory.tensors.iter().map(|(name, t)| describe_entry(name, t)).collect(),
    };
    report.insert("tensors".into(), tensors);
    output::json(&report)?;
    no_graph.map_or(Ok(()), Err)
}

/// Extents as the container has them: the fastest axis first.
fn describe(tensor: &TensorInfo) -> serde_json::Value {
    json!({ "name": tensor.name, "type": tensor.ty.name(), "shape": tensor.shape, "bytes": tensor.bytes })
}

/// Extents as the container has them: the slowest axis first.
fn describe_entry(name: &str, tensor: &TensorEntry) -> serde_json::Value {
    json!({ "name": name, "type": tensor.dtype.to_string(), "shape": tensor.shape, "bytes": tensor.bytes() })
}

fn metadata(file: &GgufFile, full: bool) -> serde_json::Value {
    let longest = if full { usize::MAX } else { LONG_ARRAY };
    let entries = file.metadata().iter().map(|(key, value)| (key.to_owned(), value_json(value, longest)));
    serde_json::Value::Object(entries.collect())
}

fn value_json(value: &Value, longest: usize) -> serde_json::Value {
    match value {
        Value::U8(n) => json!(n),
        Value::I8(n) => json!(n),
        Value::U16(n) => json!(n),
        Value::I16(n) => json!(n),
        Value::U32(n) => json!(n),
        Value::I32(n) => json!(n),
        Value::U64(n) => json!(n),
        Value::I64(n) => json!(n),
        Value::F32(x) => float(x),
        Value::F64(x) => float(x),
        Value::Bool(b) => json!(b),
        Value::String(s) => json!(String::from_utf8_lossy(s.as_bytes())),
        Value::Array(array) if array.len() > longest => {
            json!({ "type": array.element_type_name(), "length": array.len() })
        }
        Value::Array(array) => array_json(array),
    }
}

fn array_json(array: &Array) -> serde_json::Value {
    match array {
        Array::U8(v) => json!(v),
        Array::I8(v) => json!(v),
        Array::U16(v) => json!(v),
        Array::I16(v) => json!(v),
        Array::U32(v) => json!(v),
        Array::I32(v) => json!(v),
        Array::U64(v) => json!(v),
        Array::I64(v) => json!(v),
        Array::F32(v) => v.iter().map(float).collect(),
        Array::F64(v) => v.iter().map(float).collect(),
        Array::Bool(v) => json!(v),
        Array::String(v) => v.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect(),
    }
}

/// A float by its shortest spelling (0.1 for the f32 nearest to it); text for what JSON has no number for.
fn float(x: &impl ToString) -> serde_json::Value {
    let spelling = x.to_string();
    match spelling.parse().ok().and_then(Number::from_f64) {
        Some(number) => number.into(),
        None => spelling.into(),
    }
}

fn dump_tensor(files: &ModelFiles, name: &str, to: &Path) -> Result<(), CliError> {
    let missing = || {
        let shown = files.path().display();
        CliError::Usage(format!(
            "--tensor {name}: no such tensor in {shown}; run inspect without --tensor for the names"
        ))
    };
    match files {
        ModelFiles::Gguf(file) => {
            let tensor = file.tensor(name).ok_or_else(missing)?;
            let row_len = usize::try_from(tensor.row_len()).map_err(CliError::failed)?;
            dump(name, tensor.ty, row_len, file.tensor_bytes(tensor).map_err(CliError::failed)?, to)
        }
        ModelFiles::Directory(directory) => dump_entry(directory, name, to).ok_or_else(missing)?,
    }
}

fn dump_entry(directory: &Directory, name: &str, to: &Path) -> Option<Result<(), CliError>> {
    let data = directory.tensors.tensor(name)?.data(name);
    Some(data.map_err(CliError::Failed).and_then(|data| {
        let row_len = data.shape.last().copied().unwrap_or(1);
        dump(name, data.ty, row_len, &data.bytes, to)
    }))
}

/// Writes a tensor's values, a row at a time: memory stays small.
fn dump(name: &str, ty: GgmlType, row_len: usize, bytes: &[u8], to: &Path) -> Result<(), CliError> {
    let failed = |e: io::Error| CliError::file(to, &e);
    let mut out = BufWriter::new(File::create(to).map_err(failed)?);
    let row_bytes = ty.row_bytes(row_len).filter(|&bytes| bytes > 0).unwrap_or(1);
    let mut values = vec![0f32; row_len];
    for row in bytes.chunks_exact(row_bytes) {
        bantam_gguf::dequantize(ty, row, &mut values).map_err(|e| CliError::Failed(format!("tensor {name}: {e}")))?;
        for value in &values {
            out.write_all(&value.to_le_bytes()).map_err(failed)?;
        }
    }
    out.flush().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_shortly_and_never_lost() {
        assert_eq!(value_json(&Value::F32(1e-5), 8), json!(1e-5));
        assert_eq!(value_json(&Value::F32(0.1), 8), json!(0.1));
        assert_eq!(value_json(&Value::F64(f64::NAN), 8), json!("NaN"));
    }

    #[test]
    fn only_long_arrays_are_shortened() {
        let array = Value::from(vec![1u32, 2, 3]);
        assert_eq!(value_json(&array, 3), json!([1, 2, 3]));
        assert_eq!(value_json(&array, 2), json!({ "type": "u32", "length": 3 }));
    }
}
