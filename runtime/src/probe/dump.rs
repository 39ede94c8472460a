//! Writing intermediate values, to be compared with a reference's or another run's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use bantam_backend::{CompileOptions, NO_SLOT, Program, RecurrentStep, SequenceStep, Step};
use serde_json::json;

use super::{ProbeConfig, ProbeError};
use crate::load;

/// Names shown where none matches.
const EXAMPLES: usize = 8;

/// Runs the sequence once and writes each value whose name matches to `DIRECTORY/NAME.f32`, raw little-endian f32, rows
/// one after another; `DIRECTORY/index.json` has the width of each.
pub(super) fn dump(config: &ProbeConfig, pattern: &str, directory: &Path) -> Result<(), ProbeError> {
    std::fs::create_dir_all(directory).map_err(|e| file_error(directory, &e))?;
    let loaded = load::open(&config.model, &config.families).map_err(|e| ProbeError::Failed(e.to_string()))?;
    let chunk = config.chunk.unwrap_or(config.tokens.len()).clamp(1, config.tokens.len());
    let options = CompileOptions {
        max_rows: chunk,
        max_logit_rows: chunk,
        max_tentative: 0,
        k_type: config.k_type,
        v_type: config.v_type,
        repack: config.repack,
        ops: loaded.ops.clone(),
    };
    let (backend, _) = config.hardware.first_backend(config.threads).map_err(ProbeError::Failed)?;
    let mut program = backend
        .compile(&loaded.model.text, &loaded.source, &options, &mut |_, _| {})
        .map_err(|e| ProbeError::Failed(e.to_string()))?;
    let mut files = Files {
        directory: directory.into(),
        pattern: pattern.into(),
        open: BTreeMap::new(),
        others: BTreeSet::new(),
        error: None,
    };
    trace(program.as_mut(), &config.tokens, chunk, &mut |name, width, rows| files.write(name, width, rows))
        .map_err(|e| ProbeError::Failed(e.to_string()))?;
    files.finish()
}

/// Runs a sequence from its start, `chunk` tokens a step, with the logits of all rows.
fn trace(
    program: &mut dyn Program,
    tokens: &[u32],
    chunk: usize,
    trace: &mut dyn FnMut(&str, usize, &[f32]),
) -> Result<(), bantam_backend::StepError> {
    let recurrent = program.recurrent(0).is_some();
    if recurrent {
        program.reserve_slots(0, 1)?;
    }
    let history = program.history(0);
    let mut tables = Vec::new();
    for group in 0..program.groups().len() {
        let pages = program.groups()[group].pages(tokens.len());
        program.reserve_pages(group, pages)?;
        tables.push((0..u32::try_from(pages).unwrap_or(u32::MAX)).collect::<Vec<u32>>());
    }
    for (i, part) in tokens.chunks(chunk).enumerate() {
        let start = i * chunk;
        let from = if start == 0 { NO_SLOT } else { 0 };
        let step = Step {
            tokens: part.to_vec(),
            sequences: vec![SequenceStep {
                rows: part.len(),
                start,
                tables: tables.clone(),
                history: tokens[start.saturating_sub(history)..start].to_vec(),
                recurrent: recurrent.then_some(RecurrentStep { from, to: 0, accepted: 0, tentative: 0 }),
            }],
            logit_rows: (0..u32::try_from(part.len()).unwrap_or(u32::MAX)).collect(),
            ..Step::default()
        };
        program.run_traced(&step, trace)?;
    }
    Ok(())
}

struct Files {
    directory: PathBuf,
    pattern: String,
    open: BTreeMap<String, (File, usize)>,
    /// Names that do not match.
    others: BTreeSet<String>,
    error: Option<ProbeError>,
}

impl Files {
    fn write(&mut self, name: &str, width: usize, rows: &[f32]) {
        if !matches(&self.pattern, name) {
            if !self.others.contains(name) {
                self.others.insert(name.into());
            }
        } else if self.error.is_none() {
            self.error = self.append(name, width, rows).err();
        }
    }

    fn append(&mut self, name: &str, width: usize, rows: &[f32]) -> Result<(), ProbeError> {
        // Names come from a model's family or plugin and become file names.
        let safe: String =
            name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
        let path = self.directory.join(format!("{safe}.f32"));
        if !self.open.contains_key(name) {
            let file = File::create(&path).map_err(|e| file_error(&path, &e))?;
            self.open.insert(name.into(), (file, width));
        }
        let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
        match self.open.get_mut(name) {
            Some((file, _)) => file.write_all(&bytes).map_err(|e| file_error(&path, &e)),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<(), ProbeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.open.is_empty() {
            let (pattern, count) = (self.pattern, self.others.len());
            let step = count.div_ceil(EXAMPLES).max(1);
            let examples = self.others.into_iter().step_by(step).collect::<Vec<_>>().join(", ");
            return Err(ProbeError::NothingToDump { pattern, count, examples });
        }
        let index: serde_json::Map<_, _> =
            self.open.iter().map(|(name, (_, width))| (name.clone(), json!({ "width": width }))).collect();
        let path = self.directory.join("index.json");
        let text = serde_json::Value::Object(index).to_string();
        std::fs::write(&path, text).map_err(|e| file_error(&path, &e))
    }
}

fn file_error(path: &Path, error: &std::io::Error) -> ProbeError {
    ProbeError::File { path: path.into(), why: error.to_string() }
}

/// Whether a name matches a pattern in which `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    loop {
        if matches(rest, name) {
            return true;
        }
        let mut chars = name.chars();
        if chars.next().is_none() {
            return false;
        }
        name = chars.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("*", "attn_norm.3", true),
            ("attn_*", "attn_norm.3", true),
            ("*.3", "attn_norm.3", true),
            ("attn*3", "attn_norm.3", true),
            ("attn*4", "attn_norm.3", false),
            ("attn_norm.3", "attn_norm.3", true),
            ("attn_norm.3", "attn_norm.33", false),
            ("*norm*", "norm", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
