//! `bantam plan`: where a model's weights, state and experts would go, and what would be free.

use std::fmt::Write as _;

use bantam_backend::KvType;
use bantam_runtime::{
    engine::EngineConfig,
    load,
    placement::{self, Device, ExpertMode, Flags, LayerPlan, Machine, ModelSizes, Plan, Use},
    words::{printable, size},
};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    args::{CacheTypeArgs, ComputeArgs, ModelArg, StateArgs},
    error::CliError,
    families::FamilyArgs,
    output,
    placement::PlacementArgs,
    text::{bytes, total},
};

/// Show where a model's weights, state and experts would go, and what would be free
///
/// Nothing but the headers of its files is read. The machine is this one, or the one that --vram and --ram describe. Takes the
/// flags of serve; exits with 1 if the model does not fit as they say.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    model: ModelArg,

    #[command(flatten)]
    families: FamilyArgs,

    /// Plan for a GPU with so much free memory, such as 12GiB; may be repeated, once for each GPU
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    vram: Vec<u64>,

    /// Plan for a host with so much free memory, such as 64GiB; by default this machine's
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    ram: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    state: StateArgs,

    #[command(flatten)]
    cache_types: CacheTypeArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    #[command(flatten)]
    placement: PlacementArgs,
}

impl PlanArgs {
    fn machine(&self) -> Result<Machine, CliError> {
        let described = !self.vram.is_empty();
        let devices = match described {
            true => self.vram.iter().copied().map(Device::described).collect(),
            false => self.compute.hardware().devices().map_err(CliError::Failed)?,
        };
        let machine = Machine { spreads: described, ..Machine::of_this_process(devices) };
        Ok(Machine { host: self.ram.unwrap_or(machine.host), ..machine })
    }

    fn config(&self) -> Result<EngineConfig, CliError> {
        let mut config = EngineConfig::new(self.model.model.locate()?);
        config.families = self.families.resolve()?;
        self.state.apply(&mut config);
        config.repack = self.compute.repack();
        (config.k_type, config.v_type) = self.cache_types.resolve(KvType::F16);
        config.placement = self.placement.resolve(self.compute.wanted_backend());
        Ok(config)
    }
}

/// Runs the command.
pub(crate) fn run(args: &PlanArgs) -> Result<(), CliError> {
    let config = args.config()?;
    let loaded = load::open(&config.model, &config.families).map_err(CliError::failed)?;
    let model = &loaded.model;
    let sizes = ModelSizes::of(&model.text, &|weight| loaded.source.form(weight), &model.architecture, 0);
    let sizes = sizes.map_err(|e| CliError::Failed(format!("{}: {e}", config.model.display())))?;
    let flags = Flags::of(&config, config.context.min(model.context_length));
    let machine = args.machine()?;
    let plan = placement::plan(&sizes, &machine, &flags).map_err(CliError::failed)?;
    let name = config.model.display().to_string();
    let note = (machine.spreads && plan.device.is_some()).then_some(DESCRIBED);
    if args.json { output::json(&as_json(&name, &plan, note)) } else { output::text(&table(&name, &plan, note)) }
}

/// What a plan for a described GPU is worth today.
const DESCRIBED: &str = "serve --backend cuda has a model on the GPU as a whole, or not at all, in this version";

/// Columns of what memory is for.
const WHAT: usize = 42;

fn table(name: &str, plan: &Plan, note: Option<&str>) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    line("model", &printable(&format!("{name} ({}, {} layers)", plan.architecture, plan.layers.len())));
    line("state", &state(plan));
    if let Some(device) = &plan.device {
        let title = format!("{}, {} of {} free", device.name, size(device.free), size(device.total));
        line(&format!("device {}", device.index), &printable(&title));
        uses(&mut line, &device.uses, device.free.saturating_sub(device.used()));
    }
    line("host", &format!("{} free", total(plan.host.available)));
    let left = plan.host.available.saturating_sub(plan.host.used());
    uses(&mut line, &plan.host.uses, if plan.host.available == u64::MAX { u64::MAX } else { left });
    line("computed by", &computed_by(plan));
    if let Some(experts) = experts(plan) {
        line("experts", &experts);
    }
    if plan.requantized {
        line("dense", "weights in 16-bit floats are brought to the device in 8 bits");
    }
    if let Some(spilled) = spilled(plan) {
        line("spilled", &spilled);
    }
    if let Some(note) = note {
        line("note", note);
    }
    text
}

fn state(plan: &Plan) -> String {
    format!(
        "{} sequences, each of up to {} tokens; keys in {}, values in {}",
        plan.state.parallel,
        plan.state.context,
        plan.k_type.name(),
        plan.v_type.name()
    )
}

fn uses(line: &mut impl FnMut(&str, &str), uses: &[Use], left: u64) {
    let mut row = |what: &str, bytes: &str| line("", &format!("{what:<WHAT$}{bytes:>12}"));
    uses.iter().for_each(|used| row(&used.what, &size(used.bytes)));
    if left < u64::MAX {
        row("left", &size(left));
    }
}

/// Runs of layers that are computed in the same place, as `0-3`.
fn runs(layers: &[LayerPlan]) -> Vec<(LayerPlan, String)> {
    let mut runs: Vec<(LayerPlan, usize, usize)> = Vec::new();
    for (i, layer) in layers.iter().enumerate() {
        match runs.last_mut() {
            Some((before, _, last)) if before == layer => *last = i,
            _ => runs.push((*layer, i, i)),
        }
    }
    let told = |(layer, first, last): (LayerPlan, usize, usize)| match first == last {
        true => (layer, format!("layer {first}")),
        false => (layer, format!("layers {first}-{last}")),
    };
    runs.into_iter().map(told).collect()
}

fn computed_by(plan: &Plan) -> String {
    let Some(device) = &plan.device else { return "the CPU".into() };
    let place = |layer: LayerPlan| match (layer.mixer_on_device, layer.ffn_on_device) {
        (true, true) => format!("device {}", device.index),
        (true, false) => format!("device {} but for the feed-forward blocks, which the CPU computes", device.index),
        (false, _) => "the CPU".into(),
    };
    let runs: Vec<String> =
        runs(&plan.layers).into_iter().map(|(layer, run)| format!("{run}: {}", place(layer))).collect();
    runs.join("; ")
}

fn experts(plan: &Plan) -> Option<String> {
    let experts = plan.experts.as_ref()?;
    let (all, there) = (experts.experts, experts.on_device());
    Some(match experts.mode {
        ExpertMode::Cpu => format!("{all}, {}, computed by the CPU", size(experts.bytes)),
        ExpertMode::Resident => format!("{all}, {}, all on the device", size(experts.bytes)),
        ExpertMode::Auto => format!(
            "{there} of {all} on the device at a time ({} of {}), the others computed by the CPU",
            size(experts.hot_bytes),
            size(experts.bytes)
        ),
    })
}

/// What did not fit on the device, and what brings it back.
fn spilled(plan: &Plan) -> Option<String> {
    if !plan.spilled {
        return None;
    }
    let (layers, mixers, ffns) = (plan.layers.len(), plan.mixers_on_device(), plan.ffns_on_device());
    let what = match (mixers, ffns) {
        (0, _) => "nothing fits on the device, the CPU computes all".to_owned(),
        (mixers, _) if mixers < layers => format!("{} of {layers} layers do not fit on the device", layers - mixers),
        _ => format!("{} of {layers} feed-forward blocks do not fit on the device", layers - ffns),
    };
    let settings: Vec<String> = plan.advice.iter().map(ToString::to_string).collect();
    Some(match settings.is_empty() {
        true => format!("{what}; no single setting makes them fit: take a smaller quantization"),
        false => format!("{what}; it fits with {}", settings.join(", or with ")),
    })
}

fn as_json(name: &str, plan: &Plan, note: Option<&str>) -> Value {
    let uses = |uses: &[Use]| -> Vec<Value> {
        uses.iter().map(|used| json!({ "what": used.what, "bytes": used.bytes })).collect()
    };
    let place = |on_device: bool| if on_device { "device" } else { "host" };
    let layers = plan
        .layers
        .iter()
        .map(|layer| json!({ "mixer": place(layer.mixer_on_device), "feed_forward": place(layer.ffn_on_device) }));
    let device = plan.device.as_ref().map(|device| {
        json!({
            "index": device.index,
            "name": device.name,
            "total_bytes": device.total,
            "free_bytes": device.free,
            "used_bytes": device.used(),
            "left_bytes": device.free.saturating_sub(device.used()),
            "uses": uses(&device.uses),
        })
    });
    let known = (plan.host.available < u64::MAX).then_some(plan.host.available);
    let experts = plan.experts.as_ref().map(|experts| {
        let mode = match experts.mode {
            ExpertMode::Auto => "auto",
            ExpertMode::Cpu => "cpu",
            ExpertMode::Resident => "resident",
        };
        json!({
            "mode": mode,
            "experts": experts.experts,
            "bytes": experts.bytes,
            "on_device": experts.on_device(),
            "on_device_bytes": experts.hot_bytes,
            "on_device_by_mixture": experts.hot,
        })
    });
    json!({
        "model": name,
        "architecture": plan.architecture,
        "context": plan.state.context,
        "parallel": plan.state.parallel,
        "cache_type_k": plan.k_type.name(),
        "cache_type_v": plan.v_type.name(),
        "dense_requantized": plan.requantized,
        "device": device,
        "host": {
            "available_bytes": known,
            "used_bytes": plan.host.used(),
            "left_bytes": known.map(|bytes| bytes.saturating_sub(plan.host.used())),
            "uses": uses(&plan.host.uses),
        },
        "layers": layers.collect::<Vec<_>>(),
        "experts": experts,
        "spilled": plan.spilled,
        "settings_that_fit": plan.advice.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "note": note,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_one_place_are_told_together() {
        let layer = |mixer_on_device, ffn_on_device| LayerPlan { mixer_on_device, ffn_on_device };
        let layers = [layer(false, false), layer(true, false), layer(true, false), layer(true, true)];
        let told: Vec<String> = runs(&layers).into_iter().map(|(_, run)| run).collect();
        assert_eq!(told, ["layer 0", "layers 1-2", "layer 3"]);
    }
}
