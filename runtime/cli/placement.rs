//! The arguments that say where a model goes, and a plan in a few lines.

use bantam_runtime::{
    placement::{BackendChoice, DenseRequant, ExpertMode, GpuLayers, PlacementChoices, Plan},
    words::size,
};
use clap::{Args, ValueEnum};

use crate::{
    args::{MOST_MIB, count},
    text::total,
};

/// Choices that matter where a model is spread over a GPU and the processor.
#[derive(Debug, Args)]
#[command(next_help_heading = "Placement")]
pub(crate) struct PlacementArgs {
    /// Layers that the GPU computes, also -ngl N: the last N, all, or auto for as many as fit
    #[arg(long, alias = "gpu-layers", value_name = "N|auto|all", default_value = "auto", value_parser = gpu_layers)]
    n_gpu_layers: GpuLayers,

    /// The GPU to compute on; by default the one with most free memory
    #[arg(long, value_name = "N", value_parser = count(0, 1024))]
    device: Option<usize>,

    /// GPU memory for the routed experts that are used most, in MiB; 0: what is left
    #[arg(long, value_name = "MIB", default_value_t = 0, value_parser = count(0, MOST_MIB as u64))]
    gpu_cache_mib: usize,

    /// Where routed experts are computed
    #[arg(long, alias = "moe-device", value_name = "MODE", value_enum, default_value_t = Experts::Auto)]
    expert_mode: Experts,

    /// Whether dense weights in 16-bit floats are brought to the GPU in 8 bits
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Requant::Auto)]
    dense_requant: Requant,
}

/// Where routed experts are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Experts {
    /// Those that are used most on the GPU, as far as there is room, the others on the processor
    #[value(alias = "hybrid")]
    Auto,
    /// On the processor
    Cpu,
    /// On the GPU; refused unless all fit
    #[value(alias = "gpu")]
    Resident,
}

/// Whether dense weights are requantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Requant {
    /// If they do not fit otherwise
    Auto,
    /// Yes
    Q8,
    /// No
    Off,
}

fn gpu_layers(text: &str) -> Result<GpuLayers, String> {
    match text {
        "auto" => Ok(GpuLayers::Auto),
        "all" => Ok(GpuLayers::All),
        count => count.parse().map(GpuLayers::Count).map_err(|_| "expected a number of layers, auto or all".into()),
    }
}

impl PlacementArgs {
    /// The choices, with that of a backend.
    pub(crate) fn resolve(&self, backend: BackendChoice) -> PlacementChoices {
        PlacementChoices {
            backend,
            layers: self.n_gpu_layers,
            device: self.device,
            dense_requant: match self.dense_requant {
                Requant::Auto => DenseRequant::Auto,
                Requant::Q8 => DenseRequant::Q8,
                Requant::Off => DenseRequant::Off,
            },
            expert_mode: match self.expert_mode {
                Experts::Auto => ExpertMode::Auto,
                Experts::Cpu => ExpertMode::Cpu,
                Experts::Resident => ExpertMode::Resident,
            },
            gpu_cache_mib: self.gpu_cache_mib,
        }
    }
}

/// A plan in a few lines.
pub(crate) fn summary(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(device) = &plan.device {
        let layers = plan.layers.len();
        let (mixers, ffns) = (plan.mixers_on_device(), plan.ffns_on_device());
        let experts = plan.experts.as_ref().map(|e| format!(", {} of {} experts", e.on_device(), e.experts));
        lines.push(format!(
            "device {}: {mixers} of {layers} layers, {ffns} of their feed-forward blocks{}; {} of {} free",
            device.index,
            experts.unwrap_or_default(),
            size(device.free.saturating_sub(device.used())),
            size(device.free),
        ));
    }
    let place = if plan.device.is_some() { "host" } else { "CPU" };
    let uses: Vec<String> = plan.host.uses.iter().map(|used| format!("{} {}", used.what, size(used.bytes))).collect();
    lines.push(format!(
        "{place}: {}; {} of {} planned, for {} sequences of up to {} tokens, keys in {} and values in {}",
        uses.join(", "),
        size(plan.host.used()),
        total(plan.host.available),
        plan.state.parallel,
        plan.state.context,
        plan.k_type.name(),
        plan.v_type.name(),
    ));
    lines
}
