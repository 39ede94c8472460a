//! Bringing a model into memory: describe, check that it fits, compile, and collect what serving needs to know.

mod around;
mod device;
mod graphs;
mod state;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bantam_backend::{CompileOptions, Program};
use bantam_grammar::Vocabulary;
use bantam_graph::Weight;
use bantam_text::{Capabilities, ChatTemplate, OutputFormat, Tokenizer};

use crate::{
    actors::kv::KvArguments,
    cache::StateCache,
    engine::{DeviceStatus, EngineConfig, ModelInfo, SamplingDefaults, of_generation_config, of_metadata, or},
    load::{self, LoadedModel, ModelFiles},
    memory::Ledger,
    placement::{self, Flags, HostWeights, Machine, ModelSizes, Plan},
    sampling::SamplingOverrides,
    snapshot::{self, CacheDirectory, SnapshotKey, key_of},
};
#[cfg(test)]
pub(crate) use around::bare_info;
pub(crate) use around::{acting, around};
use state::provide_state;

/// A model in memory.
pub(crate) struct Resident {
    pub(crate) program: Box<dyn Program>,
    pub(crate) info: Arc<ModelInfo>,
    pub(crate) cache: KvArguments,
    /// Tokens before its rows that a sequence's step names.
    pub(crate) history: usize,
    pub(crate) max_logit_rows: usize,
    pub(crate) ledger: Ledger,
    /// The device that it lies on, and what of its memory it has; none: it lies in the host's.
    pub(crate) device: Option<DeviceStatus>,
    /// Where the cache is saved.
    pub(crate) directory: Option<Arc<CacheDirectory>>,
    /// The cache of an earlier process, its pages and slots written.
    pub(crate) restored: Option<StateCache>,
}

/// Loads the model of a configuration.
///
/// # Errors
/// What is wrong with the file, or that it does not fit into memory, in words for the user.
pub(crate) fn load(
    config: &EngineConfig,
    mut ledger: Ledger,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Resident, String> {
    let loaded = load::open(&config.model, &config.families).map_err(|e| e.to_string())?;
    let owner = format!("{}:0", loaded.model.architecture);
    let context = match config.beyond_model_context {
        true => config.context,
        false => config.context.min(loaded.model.context_length),
    };
    let flags = Flags::of(config, context);
    let max_logit_rows = flags.state.logit_rows;
    let sizes = sizes_of(&loaded, config)?;
    let machine = Machine { host: ledger.free(), ..Machine::of_this_process(config.hardware.devices()?) };
    let plan = placement::plan(&sizes, &machine, &flags).map_err(|e| e.to_string())?;
    let index = plan.device.as_ref().map(|device| device.index);
    enter_weights(config, &sizes, index.is_some(), &owner, &mut ledger)?;
    let (backend, threads) = config.hardware.backend(index, config.threads)?;
    let options = CompileOptions {
        max_rows: config.batch,
        max_logit_rows,
        max_tentative: config.max_tentative,
        k_type: plan.k_type,
        v_type: plan.v_type,
        repack: config.repack,
        ops: loaded.ops.clone(),
    };
    let mut program = backend
        .compile(&loaded.model.text, &loaded.source, &options, progress)
        .map_err(|e| format!("{}: {e}", config.model.display()))?;
    let mut place = match &plan.device {
        Some(planned) => device::ledger(planned, backend.as_ref(), &owner)?,
        None => ledger.clone(),
    };
    let cache = provide_state(config, context, program.as_mut(), &owner, &mut place)?;
    let device = match &plan.device {
        Some(planned) => Some(device::status(planned, &place)),
        None => {
            ledger = place;
            None
        }
    };
    let key = key_of(&load::fingerprint(&loaded), &loaded.model.text, backend.name(), &options, program.as_ref());
    let key = key.map_err(|e| e.to_string())?;
    let computes = Computes { backend: backend.name(), threads, plan: Some(Arc::new(plan)) };
    let info = describe(config, &loaded, context, key, program.as_ref(), computes)?;
    let history = program.history(TRUNK);
    let directory = config.cache_dir.as_deref().map(|path| Arc::new(CacheDirectory::open(path, key)));
    let restored = directory.as_ref().and_then(|directory| restore(directory, &cache, program.as_mut()));
    Ok(Resident { program, info: Arc::new(info), cache, history, max_logit_rows, ledger, device, directory, restored })
}

/// The cache that an earlier process has saved. A file that is of no use is told of and left where it is.
pub(crate) fn restore(
    directory: &CacheDirectory,
    cache: &KvArguments,
    program: &mut dyn Program,
) -> Option<StateCache> {
    let mut cache = cache.cache().ok()?;
    match snapshot::restore(directory, &mut cache, program) {
        Ok(()) => Some(cache),
        Err(why) => {
            let file = directory.file();
            tracing::warn!("--cache-dir: {}: {why}; it is skipped, and the cache is empty", file.display());
            None
        }
    }
}

/// What the model's text graph takes.
fn sizes_of(loaded: &LoadedModel, config: &EngineConfig) -> Result<ModelSizes, String> {
    let architecture = &loaded.model.architecture;
    let forms = |weight: &Weight| loaded.source.form(weight);
    let sizes = ModelSizes::of(&loaded.model.text, &forms, architecture, config.max_tentative);
    sizes.map_err(|e| format!("{}: {e}", config.model.display()))
}

/// Enters the weights that the host holds.
fn enter_weights(
    config: &EngineConfig,
    sizes: &ModelSizes,
    on_device: bool,
    owner: &str,
    ledger: &mut Ledger,
) -> Result<(), String> {
    let held = if on_device { HostWeights::tables_of(sizes) } else { HostWeights::all_of(sizes) };
    let entries = held.entries(config.repack, ledger.free());
    let bytes = entries.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
    let hint = "take a smaller quantization, free memory, or set --repack off, which is slower";
    ledger.enter(owner, "weights", bytes, hint).map_err(|e| e.to_string())
}

/// What runs the steps, and where.
struct Computes {
    backend: &'static str,
    threads: usize,
    plan: Option<Arc<Plan>>,
}

/// The graph that reads prompts and writes answers.
const TRUNK: usize = 0;

fn describe(
    config: &EngineConfig,
    loaded: &LoadedModel,
    context: usize,
    snapshot_key: SnapshotKey,
    program: &dyn Program,
    computes: Computes,
) -> Result<ModelInfo, String> {
    let tokenizer = loaded.files.tokenizer_with(loaded.model.tokenizer.as_ref()).map_err(|e| e.to_string())?;
    let template_source = loaded.files.template_source().map_err(|e| e.to_string())?;
    let special_tokens = tokenizer.special_tokens();
    // A model whose template cannot be used still answers prompts that need none.
    let (template, template_error) = match usable_template(&loaded.files, &special_tokens) {
        Ok(usable) => (usable, None),
        Err(why) => (None, Some(why)),
    };
    let (template, template_capabilities) = template.unzip();
    if let Some(why) = &template_error {
        tracing::warn!("{why}; chat is refused");
    }
    let generation = of_generation_config(&config.model)?;
    let recommended_ends = generation.end_tokens_below(program.vocab(), &config.model);
    let sampling = match &loaded.files {
        ModelFiles::Gguf(file) => or(generation.sampling, &of_metadata(file.metadata(), &config.model)?),
        ModelFiles::Directory(_) => generation.sampling,
    };
    let recommended = SamplingOverrides { suppress: Some(tokenizer.suppressed().to_vec()), ..sampling };
    let sampling = SamplingDefaults { flags: config.sampling.clone(), model: recommended };
    sampling.origins().map_err(|e| e.to_string())?;
    let biases = config.sampling.logit_bias.iter().flatten();
    if let Some((token, _)) = biases.into_iter().find(|(token, _)| *token as usize >= program.vocab()) {
        let vocab = program.vocab();
        return Err(format!("--logit-bias: there is no token {token}, expected ids below {vocab}"));
    }
    let mut end_tokens = tokenizer.end_ids();
    end_tokens.extend(recommended_ends);
    end_tokens.extend(loaded.model.chat.stop_tokens.iter().filter_map(|spelling| tokenizer.token_to_id(spelling)));
    end_tokens.sort_unstable();
    end_tokens.dedup();
    let knows_tools = template_capabilities.as_ref().is_some_and(|template: &Capabilities| template.tools);
    let output = OutputFormat::new(&loaded.model.chat, template_source.as_deref(), knows_tools);
    Ok(ModelInfo {
        marks: marks(&tokenizer, &output),
        vocabulary: Vocabulary::new(&tokenizer, &end_tokens).map_err(|e| e.to_string()),
        output,
        name: config.model_name.clone(),
        architecture: loaded.model.architecture.clone(),
        title: loaded.files.title(),
        path: config.model.display().to_string(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        context,
        model_context: loaded.model.context_length,
        vocab: program.vocab(),
        parallel: config.parallel,
        max_tokens: config.max_tokens,
        rules: config.rules,
        parse_special: config.parse_special,
        reasoning_effort: config.reasoning_effort.clone(),
        thinking_budget: config.thinking_budget,
        config: loaded.model.config.clone(),
        sampling,
        special_tokens,
        tokenizer,
        template,
        template_error,
        template_capabilities,
        template_source,
        graphs: graphs::graphs(loaded),
        end_tokens,
        snapshot_key,
        weight_bytes: program.weight_bytes(),
        backend: computes.backend,
        threads: computes.threads,
        plan: computes.plan,
    })
}

/// The control tokens that are part of marks.
fn marks(tokenizer: &Tokenizer, output: &OutputFormat) -> Arc<[u32]> {
    let is_mark = |id: &u32| tokenizer.id_to_token(*id).is_some_and(|spelling| output.is_mark(&spelling));
    let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    ids.filter(|id| tokenizer.is_control(*id)).filter(is_mark).collect()
}

/// The chat template and what it understands.
fn usable_template(
    files: &ModelFiles,
    special_tokens: &BTreeMap<String, String>,
) -> Result<Option<(ChatTemplate, Capabilities)>, String> {
    let Some(template) = files.template().map_err(|e| e.to_string())? else { return Ok(None) };
    let capabilities = template.capabilities(special_tokens).map_err(|e| format!("{}: {e}", files.path().display()))?;
    Ok(Some((template, capabilities)))
}
