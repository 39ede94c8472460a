//! Settings that make a model fit, found by trying them.

use std::fmt;

use bantam_backend::KvType;

use super::{CacheType, DenseRequant, ExpertMode, Flags, GpuLayers, Machine, ModelSizes, Plan, best};
use crate::{engine::CacheSize, words::size};

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Memory.
    #[error(
        "{place}: {what}: no room; {} are needed in all, and there are {}; {}",
        size(*needed), size(*available), advice(setting.as_ref())
    )]
    Short {
        /// Where: `device 0`, `the host`.
        place: String,
        /// What does not fit.
        what: String,
        /// Bytes with which there would be a plan, as far as this place is concerned.
        needed: u64,
        /// Bytes there.
        available: u64,
        /// A setting with which it fits; none where no single one is enough.
        setting: Option<Setting>,
    },
    /// A flag asks for what this model or machine does not have.
    #[error("{flag}: {why}")]
    Conflict {
        /// The flag as it was written.
        flag: String,
        /// What is wrong with it, and what to do.
        why: String,
    },
}

fn advice(setting: Option<&Setting>) -> String {
    match setting {
        Some(setting) => format!("{setting} makes it fit"),
        None => "no single setting makes it fit: take a smaller quantization, or free memory".into(),
    }
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Format of keys and values.
    CacheTypes(KvType),
    /// Longest sequence.
    Context(usize),
    /// Sequences at once.
    Parallel(usize),
    /// Tokens of each other sequence.
    ScratchContext(usize),
    /// MiB for kept prefixes.
    Cache(usize),
    /// As many layers on the device as fit.
    LayersThatFit,
    /// As many experts on the device as fit.
    ExpertsThatFit,
    /// MiB for hot experts; 0: what is left.
    GpuCache(usize),
    /// Dense weights in 8 bits.
    DenseQ8,
    /// Weights stay in the mapped files.
    NoRepack,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::CacheTypes(ty) => write!(f, "--cache-type-k {0} --cache-type-v {0}", ty.name()),
            Setting::Context(tokens) => write!(f, "--context {tokens}"),
            Setting::Parallel(sequences) => write!(f, "--parallel {sequences}"),
            Setting::ScratchContext(tokens) => write!(f, "--scratch-context {tokens}"),
            Setting::Cache(mib) => write!(f, "--cache {mib}"),
            Setting::LayersThatFit => f.write_str("-ngl auto"),
            Setting::ExpertsThatFit => f.write_str("--expert-mode auto"),
            Setting::GpuCache(mib) => write!(f, "--gpu-cache-mib {mib}"),
            Setting::DenseQ8 => f.write_str("--dense-requant q8"),
            Setting::NoRepack => f.write_str("--repack off"),
        }
    }
}

impl Setting {
    /// The flags with this setting.
    pub fn apply(self, flags: &Flags) -> Flags {
        let mut flags = *flags;
        match self {
            Setting::CacheTypes(ty) => (flags.k_type, flags.v_type) = (CacheType::Fixed(ty), CacheType::Fixed(ty)),
            Setting::Context(tokens) => flags.state.context = tokens,
            Setting::Parallel(sequences) => flags.state.parallel = sequences,
            Setting::ScratchContext(tokens) => flags.state.scratch_context = Some(tokens),
            Setting::Cache(mib) => flags.state.cache = CacheSize::Mib(mib),
            Setting::LayersThatFit => flags.choices.layers = GpuLayers::Auto,
            Setting::ExpertsThatFit => flags.choices.expert_mode = ExpertMode::Auto,
            Setting::GpuCache(mib) => flags.choices.gpu_cache_mib = mib,
            Setting::DenseQ8 => flags.choices.dense_requant = DenseRequant::Q8,
            Setting::NoRepack => flags.repack = false,
        }
        flags
    }
}

/// Steps in which a length of sequences is looked for.
const TOKENS: usize = 1024;

/// The greatest multiple of `step` below `from` that fits.
fn greatest(from: usize, step: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut fit, mut too_many) = (0, from.div_ceil(step));
    while too_many > fit + 1 {
        let middle = fit.midpoint(too_many);
        if fits(middle * step) { fit = middle } else { too_many = middle }
    }
    (fit > 0).then_some(fit * step)
}

/// Finer formats of keys and values first.
const SMALLER_TYPES: [KvType; 2] = [KvType::Q8_0, KvType::Turbo4];

/// The first setting with which there is a plan: what costs the user least goes first.
pub(super) fn against_refusal(model: &ModelSizes, machine: &Machine, flags: &Flags) -> Option<Setting> {
    let fits = |setting: Setting| best(model, machine, &setting.apply(flags)).is_ok();
    let (state, choices) = (&flags.state, &flags.choices);
    let mut settings = Vec::new();
    if let CacheSize::Mib(mib) = state.cache {
        settings.extend(greatest(mib, 1, |mib| fits(Setting::Cache(mib))).map(Setting::Cache));
    }
    if choices.gpu_cache_mib > 0 {
        let smaller = greatest(choices.gpu_cache_mib, 1, |mib| fits(Setting::GpuCache(mib)));
        settings.push(Setting::GpuCache(smaller.unwrap_or(0)));
    }
    if let Some(scratch) = state.scratch_context {
        let smaller = greatest(scratch.min(state.context), TOKENS, |tokens| fits(Setting::ScratchContext(tokens)));
        settings.extend(smaller.map(Setting::ScratchContext));
    }
    if choices.expert_mode == ExpertMode::Resident {
        settings.push(Setting::ExpertsThatFit);
    }
    if choices.layers != GpuLayers::Auto {
        settings.push(Setting::LayersThatFit);
    }
    if choices.dense_requant == DenseRequant::Off {
        settings.push(Setting::DenseQ8);
    }
    settings.extend(SMALLER_TYPES.map(Setting::CacheTypes));
    settings.extend(greatest(state.context, TOKENS, |tokens| fits(Setting::Context(tokens))).map(Setting::Context));
    settings.extend((state.parallel > 1).then_some(Setting::Parallel(1)));
    settings.extend(flags.repack.then_some(Setting::NoRepack));
    settings.into_iter().find(|setting| fits(*setting))
}

/// Settings of which each alone keeps on the device what this plan leaves to the CPU.
pub(super) fn against_spills(model: &ModelSizes, machine: &Machine, flags: &Flags, plan: &Plan) -> Vec<Setting> {
    if !plan.spilled {
        return Vec::new();
    }
    let fits = |setting: Setting| best(model, machine, &setting.apply(flags)).is_ok_and(|plan| !plan.spilled);
    let requant = (flags.choices.dense_requant == DenseRequant::Off).then_some(Setting::DenseQ8);
    let types = SMALLER_TYPES.map(Setting::CacheTypes).into_iter().find(|setting| fits(*setting));
    let context = greatest(flags.state.context, TOKENS, |tokens| fits(Setting::Context(tokens))).map(Setting::Context);
    let settings = [types, requant.filter(|setting| fits(*setting)), context];
    settings.into_iter().flatten().collect()
}
