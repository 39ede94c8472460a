//! What the user may say of where a model goes.

use bantam_backend::KvType;

use super::{ModelSizes, StateFlags};
use crate::engine::EngineConfig;

/// Where to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// On a device if there is one that can be used, else on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On a device, or not at all.
    Cuda,
}

/// How many layers a device computes (`-ngl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLayers {
    /// As many as fit.
    #[default]
    Auto,
    /// All of them.
    All,
    /// The last so many.
    Count(usize),
}

/// Whether dense weights in 16-bit floats are brought to a device in 8 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenseRequant {
    /// If they do not fit otherwise.
    #[default]
    Auto,
    /// Yes.
    Q8,
    /// No.
    Off,
}

/// Where routed experts are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpertMode {
    /// Those that are used most on the device, as far as there is room, the others on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the device, all of them.
    Resident,
}

/// Number format of cached keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// f16; turbo4 for a mixture of experts above 32 Ki tokens that would not fit.
    Auto,
    /// This.
    Fixed(KvType),
}

impl From<KvType> for CacheType {
    fn from(ty: KvType) -> Self {
        CacheType::Fixed(ty)
    }
}

impl CacheType {
    /// The type where nothing else speaks for another.
    pub fn preferred(self) -> KvType {
        match self {
            CacheType::Auto => KvType::F16,
            CacheType::Fixed(ty) => ty,
        }
    }
}

/// Choices that matter where a model is spread over devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementChoices {
    /// `--backend`.
    pub backend: BackendChoice,
    /// `-ngl`.
    pub layers: GpuLayers,
    /// `--device`; none: the one with most free memory.
    pub device: Option<usize>,
    /// `--dense-requant`.
    pub dense_requant: DenseRequant,
    /// `--expert-mode`.
    pub expert_mode: ExpertMode,
    /// `--gpu-cache-mib`: MiB of a device for hot experts; 0: what is left.
    pub gpu_cache_mib: usize,
}

/// All that a plan follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Where things go.
    pub choices: PlacementChoices,
    /// `--cache-type-k`.
    pub k_type: CacheType,
    /// `--cache-type-v`.
    pub v_type: CacheType,
    /// `--repack`.
    pub repack: bool,
    /// How much state there is.
    pub state: StateFlags,
}

/// Contexts up to this are cached in f16 whatever it takes.
const LONG_CONTEXT: usize = 32768;

/// What was left to us, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) k_type: KvType,
    pub(super) v_type: KvType,
    pub(super) requantized: bool,
}

impl Flags {
    /// Those of a configuration, for sequences of at most `context` tokens.
    pub fn of(config: &EngineConfig, context: usize) -> Self {
        Flags {
            choices: config.placement,
            k_type: config.k_type,
            v_type: config.v_type,
            repack: config.repack,
            state: StateFlags::of(config, context),
        }
    }

    /// Decisions that the flags allow, the best first; each takes less than those before it.
    pub(super) fn choices(&self, model: &ModelSizes) -> Vec<Choice> {
        let short_of_memory = !model.mixtures.is_empty() && self.state.context > LONG_CONTEXT;
        let types = |ty: CacheType, short: bool| match ty {
            CacheType::Auto if short => KvType::Turbo4,
            ty => ty.preferred(),
        };
        let is_auto = [self.k_type, self.v_type].contains(&CacheType::Auto);
        let shorts = if short_of_memory && is_auto { &[false, true][..] } else { &[false] };
        let requants = match self.choices.dense_requant {
            DenseRequant::Auto if model.shrinks_by_requantizing() => &[false, true][..],
            DenseRequant::Q8 => &[true],
            DenseRequant::Auto | DenseRequant::Off => &[false],
        };
        let choice = |short: bool, requantized: bool| Choice {
            k_type: types(self.k_type, short),
            v_type: types(self.v_type, short),
            requantized,
        };
        shorts.iter().flat_map(|short| requants.iter().map(move |q8| choice(*short, *q8))).collect()
    }
}
