//! A model around a program that does not come from a checkpoint.

use std::{collections::BTreeMap, sync::Arc};

use bantam_backend::Program;
use bantam_family_api::ChatFormat;
use bantam_text::{OutputFormat, Tokenizer};
use serde_json::Map;

use super::{Computes, Resident, TRUNK, describe, state::provide_state};
use crate::{
    engine::{EngineConfig, ModelInfo, SamplingDefaults},
    load,
    memory::Ledger,
    snapshot::SnapshotKey,
};

/// What is known of a model that is a program and a vocabulary: it has no chat template, and no token ends its answers.
pub(crate) fn bare_info(config: &EngineConfig, tokenizer: Tokenizer, vocab: usize) -> ModelInfo {
    ModelInfo {
        output: OutputFormat::new(&ChatFormat::default(), None, false),
        marks: Arc::default(),
        vocabulary: Err("no token ends its answers".into()),
        name: config.model_name.clone(),
        architecture: "program".into(),
        title: None,
        path: config.model.display().to_string(),
        created: 0,
        context: config.context,
        model_context: config.context,
        vocab,
        parallel: config.parallel,
        max_tokens: config.max_tokens,
        rules: config.rules,
        parse_special: config.parse_special,
        reasoning_effort: config.reasoning_effort.clone(),
        thinking_budget: config.thinking_budget,
        config: Map::new(),
        sampling: SamplingDefaults { flags: config.sampling.clone(), ..SamplingDefaults::default() },
        special_tokens: BTreeMap::new(),
        tokenizer,
        template: None,
        template_error: None,
        template_capabilities: None,
        template_source: None,
        graphs: Err("it does not come from a checkpoint".into()),
        end_tokens: Vec::new(),
        snapshot_key: SnapshotKey::default(),
        plan: None,
        weight_bytes: 0,
        backend: "program",
        threads: 1,
    }
}

/// The checkpoint of the configuration with this program in place of its weights.
///
/// # Errors
/// What is wrong with the file, or the state of one sequence does not fit.
pub(crate) fn acting(config: &EngineConfig, program: Box<dyn Program>) -> Result<Resident, String> {
    let loaded = load::open(&config.model, &config.families).map_err(|e| e.to_string())?;
    let computes = Computes { backend: "program", threads: 1, plan: None };
    let info = describe(config, &loaded, config.context, SnapshotKey::default(), program.as_ref(), computes)?;
    with_info(config, info, program)
}

/// The model that this program is; it must take steps of the configuration's size, with one logit row per sequence.
///
/// # Errors
/// If the state of one sequence does not fit.
pub(crate) fn around(
    config: &EngineConfig,
    tokenizer: Tokenizer,
    program: Box<dyn Program>,
) -> Result<Resident, String> {
    let info = bare_info(config, tokenizer, program.vocab());
    with_info(config, info, program)
}

fn with_info(config: &EngineConfig, info: ModelInfo, mut program: Box<dyn Program>) -> Result<Resident, String> {
    let mut ledger = Ledger::of_this_machine();
    let cache = provide_state(config, info.context, program.as_mut(), "program:0", &mut ledger)?;
    Ok(Resident {
        history: program.history(TRUNK),
        info: Arc::new(info),
        program,
        cache,
        max_logit_rows: config.parallel.min(config.batch),
        ledger,
        device: None,
        directory: None,
        restored: None,
    })
}
