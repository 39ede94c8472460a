//! A model around a program that does not come from a checkpoint.

use std::{collections::BTreeMap, sync::Arc};

use bantam_backend::Program;
use bantam_text::Tokenizer;
use serde_json::Map;

use super::{Resident, TRUNK, state::provide_state};
use crate::{
    engine::{EngineConfig, ModelInfo, SamplingDefaults},
    memory::Ledger,
    snapshot::SnapshotKey,
};

/// What is known of a model that is a program and a vocabulary: it has no chat template, and no token ends its answers.
pub(crate) fn bare_info(config: &EngineConfig, tokenizer: Tokenizer, vocab: usize) -> ModelInfo {
    ModelInfo {
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
        end_tokens: Vec::new(),
        snapshot_key: SnapshotKey::default(),
        weight_bytes: 0,
        backend: "program",
        threads: 1,
    }
}

/// The model that this program is; it must take steps of the configuration's size, with one logit row per sequence.
///
/// # Errors
/// If the state of one sequence does not fit.
pub(crate) fn around(
    config: &EngineConfig,
    tokenizer: Tokenizer,
    mut program: Box<dyn Program>,
) -> Result<Resident, String> {
    let mut ledger = Ledger::of_this_machine();
    let cache = provide_state(config, config.context, program.as_mut(), "program:0", &mut ledger)?;
    Ok(Resident {
        history: program.history(TRUNK),
        info: Arc::new(bare_info(config, tokenizer, program.vocab())),
        program,
        cache,
        max_logit_rows: config.parallel.min(config.batch),
        ledger,
        directory: None,
        restored: None,
    })
}
