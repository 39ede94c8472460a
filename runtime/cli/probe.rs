//! `bantam probe`: what a model computes for exactly these tokens, and whether it computes the same however they come.

mod new_process;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use bantam_backend::KvType;
use bantam_runtime::probe::{self, DraftChoice, ProbeConfig};
use clap::Args;

use crate::{
    args::{CacheTypeArgs, ComputeArgs, ModelArg, count},
    error::CliError,
    families::FamilyArgs,
    files, os, output,
};

/// Run exactly these tokens through a model; write logits, check that all ways of computing them agree
///
/// Prints a JSON object: n_tokens, vocab, greedy, counters, checks and, if a draft was run, draft. The cache is in f32 unless
/// the flags say otherwise.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    #[command(flatten)]
    model: ModelArg,

    #[command(flatten)]
    families: FamilyArgs,

    /// Token ids: a list with commas, or @FILE with a JSON array
    #[arg(long, value_name = "IDS")]
    tokens: String,

    /// Write the logits of each token to FILE as raw little-endian f32, [tokens, vocabulary]
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,

    /// Continue by N tokens, the likeliest each time (of equal ones the lowest id), end tokens taken as ordinary ones
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count(0, 1 << 20))]
    greedy: usize,

    /// Feed the tokens N at a time
    #[arg(long, value_name = "N", value_parser = count(1, 1 << 14))]
    chunk: Option<usize>,

    /// Write the intermediate values whose names match PATTERN (* stands for anything) to the folder DIR
    #[arg(long, num_args = 2, value_names = ["PATTERN", "DIR"])]
    dump: Option<Vec<String>>,

    /// Run the draft in FILE behind the model, not the one that the model carries
    #[arg(long, value_name = "FILE")]
    draft: Option<PathBuf>,

    /// Write the logits of the draft to FILE as raw little-endian f32, [rows, vocabulary]; the model sees all tokens but the
    /// last before
    #[arg(long, value_name = "FILE")]
    draft_logits: Option<PathBuf>,

    /// Check an equality on these tokens, or all; may be repeated
    #[arg(long = "check", value_name = "all|NAME")]
    checks: Vec<String>,

    /// Write the state after the tokens to FILE
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Go on from the state in FILE, which --save wrote; logits are those of the tokens behind it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["checks", "save"])]
    restore: Option<PathBuf>,

    #[command(flatten)]
    cache_types: CacheTypeArgs,

    #[command(flatten)]
    compute: ComputeArgs,
}

impl ProbeArgs {
    fn resolve(&self) -> Result<ProbeConfig, CliError> {
        let tokens = tokens(&self.tokens)?;
        let (k_type, v_type) = self.cache_types.fixed(KvType::F32)?;
        let dump = match self.dump.as_deref() {
            Some([pattern, folder]) => Some((pattern.clone(), folder.into())),
            _ => None,
        };
        Ok(ProbeConfig {
            greedy: self.greedy,
            chunk: self.chunk,
            threads: self.compute.threads(),
            hardware: self.compute.hardware(),
            k_type,
            v_type,
            repack: self.compute.repack(),
            dump,
            draft: self
                .draft
                .clone()
                .map(DraftChoice::File)
                .or(self.draft_logits.is_some().then_some(DraftChoice::BuiltIn)),
            checks: self.checks.clone(),
            save: self.save.clone(),
            restore: self.restore.clone(),
            new_process: Some(new_process::compute),
            families: self.families.resolve()?,
            ..ProbeConfig::new(self.model.model.locate()?, tokens)
        })
    }
}

/// Reads `1,2,3` or `@FILE`.
fn tokens(text: &str) -> Result<Vec<u32>, CliError> {
    if let Some(file) = text.strip_prefix('@').filter(|file| !file.is_empty()) {
        return files::json(Path::new(file), "a JSON array of token ids");
    }
    let ids: Result<Vec<u32>, _> = text.split(',').map(|id| id.trim().parse()).collect();
    ids.map_err(|_| CliError::Usage(format!("--tokens {text}: expected ids with commas between, or @FILE")))
}

/// Runs the command.
pub(crate) fn run(args: &ProbeArgs) -> Result<(), CliError> {
    let config = args.resolve()?;
    let runtime = os::runtime()?;
    let report = runtime.block_on(probe::run(config)).map_err(|error| match error.is_usage() {
        true => CliError::Usage(error.to_string()),
        false => CliError::failed(error),
    });
    runtime.shutdown_background();
    let report = report?;
    if let Some(path) = &args.logits {
        write_f32(path, &report.logits)?;
    }
    if let Some((path, draft)) = args.draft_logits.as_ref().zip(report.draft.as_ref()) {
        write_f32(path, &draft.logits)?;
    }
    output::json(&report)
}

fn write_f32(path: &Path, values: &[f32]) -> Result<(), CliError> {
    let write = || {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes()))?;
        file.flush()
    };
    write().map_err(|e| CliError::file(path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_a_list_or_a_file() {
        assert_eq!(tokens("1, 2,3").unwrap(), [1, 2, 3]);
        for bad in ["", "1,", "x", "-1", "4294967296"] {
            assert!(matches!(tokens(bad), Err(CliError::Usage(_))), "{bad}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ids.json");
        std::fs::write(&file, "[4, 5]").unwrap();
        assert_eq!(tokens(&format!("@{}", file.display())).unwrap(), [4, 5]);
        let missing = tokens("@none.json").unwrap_err();
        assert!(missing.to_string().contains("none.json"), "{missing}");
    }
}
