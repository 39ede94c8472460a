//! The placing itself, once all choices are made.

use std::ops::Range;

use super::{
    BackendChoice, DenseRequant, Device, DevicePlan, ExpertMode, ExpertPlan, Flags, GpuLayers, HostBytes, HostPlan,
    LayerPlan, Machine, MixtureSizes, ModelSizes, Plan, Use,
    flags::Choice,
    state::{PART_FOR_POINTS, PART_FOR_SEQUENCES, counted, enter_rows, enter_slots, mebibytes},
};
use crate::memory::{Ledger, OutOfMemory};

/// What the driver takes for a process and its kernels: an estimate from public reports.
const RESERVE: u64 = 256 << 20;

/// Part of what is left to experts that is for staging them.
const PART_FOR_STAGING: u64 = 4;

/// Layers of experts that are staged at once: one is computed with, one comes.
const STAGED_LAYERS: u64 = 2;

/// Use of memory through which experts come to a device.
const STAGED: &str = "staged experts";

/// Uses of memory of a device.
const MIXERS: &str = "mixers";
const BLOCKS: &str = "feed-forward blocks";
const EXPERTS: &str = "routed experts";

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In the host.
    Host,
    /// In the device of this number.
    Device(usize),
}

/// What does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) spot: Spot,
    pub(super) what: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Memory.
    Short(Shortage),
    /// A flag asks for what this model or machine does not have.
    Conflict { flag: String, why: String },
}

fn conflict(flag: impl Into<String>, why: impl Into<String>) -> Stop {
    Stop::Conflict { flag: flag.into(), why: why.into() }
}

fn short(spot: Spot, what: &str) -> Stop {
    Stop::Short(Shortage { spot, what: what.into() })
}

#[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn short_of_host(error: OutOfMemory) -> Stop {
    short(Spot::Host, &error.what)
}

/// Places a model.
pub(super) fn place(model: &ModelSizes, machine: &Machine, flags: &Flags, choice: Choice) -> Result<Plan, Stop> {
    let place = Place { model, flags, choice, host: machine.host };
    match device(machine, flags)? {
        None => {
            needs_no_device(flags)?;
            place.on_host(false)
        }
        Some((index, device)) => {
            place.makes_sense()?;
            match machine.spreads {
                true => place.on_device(index, device),
                false => place.whole_on_device(index, device),
            }
        }
    }
}

/// The device to use, if any.
fn device<'m>(machine: &'m Machine, flags: &Flags) -> Result<Option<(usize, &'m Device)>, Stop> {
    let choices = &flags.choices;
    if choices.backend == BackendChoice::Cpu || choices.layers == GpuLayers::Count(0) {
        return Ok(None);
    }
    if let Some(index) = choices.device {
        let count = machine.devices.len();
        let flag = format!("--device {index}");
        let device = machine.devices.get(index).ok_or_else(|| {
            let there = match count {
                0 => "no device can be used here".into(),
                1 => "there is one device, number 0".into(),
                _ => format!("there are {count} devices, numbers 0 to {}", count - 1),
            };
            conflict(&flag, format!("{there}; leave it out"))
        })?;
        return match device.unusable() {
            Some(why) => Err(conflict(flag, format!("{why}; leave it out"))),
            None => Ok(Some((index, device))),
        };
    }
    let usable = machine.devices.iter().enumerate().filter(|(_, device)| device.unusable().is_none());
    let best = usable.max_by_key(|(index, device)| (device.free, std::cmp::Reverse(*index)));
    match best {
        None if choices.backend == BackendChoice::Cuda => {
            let why = machine.devices.first().and_then(Device::unusable);
            let why = why.unwrap_or_else(|| "no device can be used here".into());
            Err(conflict("--backend cuda", format!("{why}; leave it out to compute on the CPU")))
        }
        best => Ok(best),
    }
}

/// Refuses what would have no effect without a device.
fn needs_no_device(flags: &Flags) -> Result<(), Stop> {
    let choices = &flags.choices;
    let layers = match choices.layers {
        GpuLayers::All => Some("-ngl all".to_owned()),
        GpuLayers::Count(count) if count > 0 => Some(format!("-ngl {count}")),
        GpuLayers::Auto | GpuLayers::Count(_) => None,
    };
    let resident = (choices.expert_mode == ExpertMode::Resident).then(|| "--expert-mode resident".to_owned());
    let cache = (choices.gpu_cache_mib > 0).then(|| format!("--gpu-cache-mib {}", choices.gpu_cache_mib));
    let requant = (choices.dense_requant == DenseRequant::Q8).then(|| "--dense-requant q8".to_owned());
    let device = choices.device.map(|index| format!("--device {index}"));
    match layers.or(resident).or(cache).or(requant).or(device) {
        None => Ok(()),
        Some(flag) => Err(conflict(flag, "it is for a GPU, and the CPU computes everything here; leave it out")),
    }
}

/// What is placed, and how.
struct Place<'a> {
    model: &'a ModelSizes,
    flags: &'a Flags,
    choice: Choice,
    host: u64,
}

/// How much of a model a device has.
#[derive(Clone, Copy)]
struct Share {
    /// Mixers, of the last layers.
    mixers: usize,
    /// Feed-forward blocks, of the last layers.
    ffns: usize,
}

/// What a device gives beside what it must.
#[derive(Default)]
struct More {
    points: u64,
    scratch: u64,
    staging: u64,
    hot: Vec<usize>,
    hot_bytes: u64,
}

impl Place<'_> {
    /// Refuses what this model does not have.
    fn makes_sense(&self) -> Result<(), Stop> {
        let choices = &self.flags.choices;
        let cache = format!("--gpu-cache-mib {}", choices.gpu_cache_mib);
        if choices.gpu_cache_mib > 0 {
            match choices.expert_mode {
                _ if self.model.mixtures.is_empty() => {
                    return Err(conflict(cache, "the model has no routed experts; leave it out"));
                }
                ExpertMode::Cpu => {
                    return Err(conflict(cache, "with --expert-mode cpu none is on the GPU; leave one of them out"));
                }
                ExpertMode::Resident => {
                    return Err(conflict(
                        cache,
                        "with --expert-mode resident all are on the GPU; leave one of them out",
                    ));
                }
                ExpertMode::Auto => {}
            }
        }
        let GpuLayers::Count(count) = choices.layers else { return Ok(()) };
        let (layers, count) = (self.model.layers.len(), count.min(self.model.layers.len()));
        if choices.expert_mode == ExpertMode::Resident && count < layers && !self.model.mixtures.is_empty() {
            let why = format!("--expert-mode resident needs all {layers} layers there; say -ngl all");
            return Err(conflict(format!("-ngl {count}"), why));
        }
        if count < layers && !self.model.cuts.contains(&(layers - count)) {
            let fewer = self.counts().into_iter().rfind(|fewer| *fewer < count).unwrap_or(0);
            let why = format!("these layers read state of others before them; say -ngl {fewer} or -ngl all");
            return Err(conflict(format!("-ngl {count}"), why));
        }
        Ok(())
    }

    /// How many layers a device may have, rising.
    fn counts(&self) -> Vec<usize> {
        let layers = self.model.layers.len();
        std::iter::once(0).chain(self.model.cuts.iter().rev().map(|cut| layers.saturating_sub(*cut))).collect()
    }

    /// The last `count` layers.
    fn last(&self, count: usize) -> Range<usize> {
        let layers = self.model.layers.len();
        layers.saturating_sub(count)..layers
    }

    fn groups(&self, layers: Range<usize>) -> Vec<bantam_backend::StateGroup> {
        self.model.groups(layers, self.choice.k_type, self.choice.v_type)
    }

    /// All by the CPU.
    fn on_host(&self, spilled: bool) -> Result<Plan, Stop> {
        let layers = self.model.layers.len();
        let host = self.fill_host(&HostWeights::all_of(self.model), 0, 0..layers)?;
        let experts = self.expert_plan(ExpertMode::Cpu, vec![0; self.model.mixtures.len()], 0);
        Ok(self.plan(None, host, Share { mixers: 0, ffns: 0 }, experts, spilled))
    }

    fn plan(
        &self,
        device: Option<DevicePlan>,
        host: HostPlan,
        share: Share,
        experts: Option<ExpertPlan>,
        spilled: bool,
    ) -> Plan {
        let layers = self.model.layers.len();
        let layer = |i: usize| LayerPlan {
            mixer_on_device: self.last(share.mixers).contains(&i),
            ffn_on_device: self.last(share.ffns).contains(&i),
        };
        Plan {
            architecture: self.model.architecture.clone(),
            k_type: self.choice.k_type,
            v_type: self.choice.v_type,
            requantized: device.is_some() && self.choice.requantized && self.model.shrinks_by_requantizing(),
            state: self.flags.state,
            device,
            host,
            layers: (0..layers).map(layer).collect(),
            experts,
            spilled,
            advice: Vec::new(),
        }
    }

    fn expert_plan(&self, mode: ExpertMode, hot: Vec<usize>, hot_bytes: u64) -> Option<ExpertPlan> {
        let (bytes, experts) = (self.all_experts(), self.model.experts());
        (!self.model.mixtures.is_empty()).then_some(ExpertPlan { mode, experts, bytes, hot, hot_bytes })
    }

    /// What the host holds: weights, the state of these layers, kept prefixes of all, and what is staged, as far as there is
    /// room.
    fn fill_host(&self, weights: &HostWeights, staging: u64, layers: Range<usize>) -> Result<HostPlan, Stop> {
        let (owner, state) = ("", &self.flags.state);
        let mut room = Ledger::with_total(self.host);
        for (what, bytes) in weights.entries(self.flags.repack, self.host) {
            room.enter(owner, what, bytes, "").map_err(short_of_host)?;
        }
        let mut points = 0;
        if let Some(slot) = self.model.slot(layers.clone()) {
            (_, points) = enter_slots(state, slot, owner, &mut room).map_err(short_of_host)?;
        }
        let whole = state.rows(&self.groups(0..self.model.layers.len()), state.context);
        enter_rows(state, &self.groups(layers), Some(whole), points, owner, &mut room).map_err(short_of_host)?;
        room.enter(owner, STAGED, staging.min(room.free()), "").map_err(short_of_host)?;
        Ok(HostPlan { available: self.host, uses: uses_of(&room) })
    }

    /// What a device has to hold whatever it computes.
    fn base(&self) -> [(&'static str, u64); 5] {
        let (state, model) = (&self.flags.state, self.model);
        let experts = self.all_experts();
        [
            ("driver and kernels, estimated", RESERVE),
            ("buffers of prompts", model.workspace.bytes(state.batch, state.logit_rows)),
            ("buffers of decoding", model.workspace.bytes(state.parallel.min(state.batch), state.logit_rows)),
            ("output head", model.head.on_device(self.choice.requantized)),
            ("expert cache", mebibytes(self.flags.choices.gpu_cache_mib).min(experts)),
        ]
    }

    /// What a share of the layers takes on a device, by its use.
    fn parts(&self, share: Share) -> [(&'static str, u64); 5] {
        let (state, q8) = (&self.flags.state, self.choice.requantized);
        let layers = &self.model.layers;
        let groups = self.groups(self.last(share.mixers));
        let slot = self.model.slot(self.last(share.mixers)).unwrap_or(0);
        let of = |range: Range<usize>, bytes: &dyn Fn(&super::LayerSizes) -> u64| {
            layers.get(range).unwrap_or_default().iter().map(bytes).fold(0, u64::saturating_add)
        };
        [
            ("state of one sequence", state.rows(&groups, state.context)),
            ("state of the other sequences", state.fixed_scratch(&groups)),
            ("recurrent state of the sequences", state.slots(slot)),
            (MIXERS, of(self.last(share.mixers), &|layer| layer.mixer.on_device(q8))),
            (BLOCKS, of(self.last(share.ffns), &|layer| layer.ffn.on_device(q8))),
        ]
    }

    fn needed(&self, share: Share) -> u64 {
        let parts = self.base().into_iter().chain(self.parts(share));
        parts.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }

    /// The largest share that fits, where it is left to us.
    fn largest(&self, free: u64) -> Share {
        let layers = self.model.layers.len();
        let fits = |share: &Share| self.needed(*share) <= free;
        let mixers = self.counts().into_iter().rev().map(|mixers| Share { mixers, ffns: 0 }).find(&fits);
        match mixers {
            Some(Share { mixers, .. }) if mixers == layers => {
                let with = |ffns| Share { mixers, ffns };
                // The sizes rise with the blocks.
                let (mut fit, mut too_many) = (0, layers + 1);
                while too_many - fit > 1 {
                    let middle = fit.midpoint(too_many);
                    if fits(&with(middle)) { fit = middle } else { too_many = middle }
                }
                with(fit)
            }
            share => share.unwrap_or(Share { mixers: 0, ffns: 0 }),
        }
    }

    /// All on a device, or nothing.
    fn whole_on_device(&self, index: usize, device: &Device) -> Result<Plan, Stop> {
        self.stays_whole()?;
        let (layers, choices) = (self.model.layers.len(), &self.flags.choices);
        let mut room = Ledger::with_total(device.free);
        if let Err(error) = self.fill_device(&mut room) {
            let resident = choices.expert_mode == ExpertMode::Resident && !self.model.mixtures.is_empty();
            let asked = choices.layers != GpuLayers::Auto || choices.backend == BackendChoice::Cuda || resident;
            return if asked { Err(short(Spot::Device(index), &error.what)) } else { self.on_host(true) };
        }
        let tables = HostWeights::tables_of(self.model);
        let mut host = Ledger::with_total(self.host);
        for (what, bytes) in tables.entries(self.flags.repack, self.host) {
            host.enter("", what, bytes, "").map_err(short_of_host)?;
        }
        let device = DevicePlan {
            index,
            name: device.name.clone(),
            total: device.total,
            free: device.free,
            uses: uses_of(&room),
        };
        let host = HostPlan { available: self.host, uses: uses_of(&host) };
        let hot = self.model.mixtures.iter().map(|m| m.experts).collect();
        let experts = self.expert_plan(ExpertMode::Resident, hot, self.all_experts());
        Ok(self.plan(Some(device), host, Share { mixers: layers, ffns: layers }, experts, false))
    }

    /// Refuses what would split a model, or change it.
    fn stays_whole(&self) -> Result<(), Stop> {
        const WHOLE: &str = "in this version a model is on the GPU as it is and as a whole, or on the CPU";
        let (choices, layers) = (&self.flags.choices, self.model.layers.len());
        let q8 = choices.dense_requant == DenseRequant::Q8 && self.model.shrinks_by_requantizing();
        let by_cpu = choices.expert_mode == ExpertMode::Cpu && !self.model.mixtures.is_empty();
        match choices.layers {
            GpuLayers::Count(count) if count < layers => {
                Err(conflict(format!("-ngl {count}"), format!("{WHOLE}; say -ngl 0 or -ngl all")))
            }
            _ if by_cpu => Err(conflict("--expert-mode cpu", format!("{WHOLE}; leave it out, or say --backend cpu"))),
            _ if choices.gpu_cache_mib > 0 => {
                let flag = format!("--gpu-cache-mib {}", choices.gpu_cache_mib);
                Err(conflict(flag, format!("{WHOLE}; leave it out")))
            }
            _ if q8 => Err(conflict("--dense-requant q8", format!("{WHOLE}; leave it out"))),
            _ => Ok(()),
        }
    }

    /// Enters all that a model takes into the memory of a device; what stands later shrinks first.
    fn fill_device(&self, room: &mut Ledger) -> Result<(), OutOfMemory> {
        let (owner, state, layers) = ("", &self.flags.state, self.model.layers.len());
        let all = Share { mixers: layers, ffns: layers };
        let weights = self.parts(all).into_iter().filter(|(what, _)| [MIXERS, BLOCKS].contains(what));
        let experts = (EXPERTS, self.all_experts());
        for (what, bytes) in self.base().into_iter().chain(weights).chain([experts]).filter(|(_, bytes)| *bytes > 0) {
            room.enter(owner, what, bytes, "")?;
        }
        let mut points = 0;
        if let Some(slot) = self.model.slot(0..layers) {
            (_, points) = enter_slots(state, slot, owner, room)?;
        }
        enter_rows(state, &self.groups(0..layers), None, points, owner, room).map(drop)
    }

    /// Bytes of all routed experts on a device; saturates.
    fn all_experts(&self) -> u64 {
        self.model.mixtures.iter().fold(0, |sum, m| sum.saturating_add(m.on_device()))
    }

    fn on_device(&self, index: usize, device: &Device) -> Result<Plan, Stop> {
        let (layers, choices, spot) = (self.model.layers.len(), &self.flags.choices, Spot::Device(index));
        let resident = choices.expert_mode == ExpertMode::Resident && !self.model.mixtures.is_empty();
        let asked = match choices.layers {
            GpuLayers::Auto if resident => Some(layers),
            GpuLayers::Auto => None,
            GpuLayers::All => Some(layers),
            GpuLayers::Count(count) => Some(count.min(layers)),
        };
        let share = match asked {
            Some(count) => Share { mixers: count, ffns: count },
            None => self.largest(device.free),
        };
        let needed = self.needed(share);
        if asked.is_none() && (needed > device.free || (share.mixers == 0 && layers > 0)) {
            // What was asked for is refused, what was left to us falls to the CPU.
            let fixed = choices.backend == BackendChoice::Cuda || choices.gpu_cache_mib > 0;
            return if fixed { Err(short(spot, "one layer")) } else { self.on_host(true) };
        }
        if needed > device.free {
            return Err(short(spot, "the layers that are to be there"));
        }
        let all = share.mixers == layers && share.ffns == layers;
        let mut more = match all || asked.is_some() {
            true => self.more(share, device.free - needed).ok_or_else(|| short(spot, "all routed experts"))?,
            false => More { hot: vec![0; self.model.mixtures.len()], ..More::default() },
        };
        let on_device = |m: &MixtureSizes| self.last(share.mixers).contains(&m.layer);
        let full = |(m, hot): (&MixtureSizes, &usize)| !on_device(m) || m.experts == *hot;
        let mixtures = &self.model.mixtures;
        let static_experts = choices.expert_mode != ExpertMode::Cpu && mixtures.iter().zip(&more.hot).all(full);
        let by_cpu = mixtures.iter().filter(|m| !(static_experts && on_device(m)));
        let (mixers, ffns) = (layers - share.mixers, layers - share.ffns);
        let dense = self.model.layers.iter().enumerate().map(|(i, layer)| {
            let mixer = if i < mixers { layer.mixer.host } else { HostBytes::default() };
            let ffn = if i < ffns { layer.ffn.host } else { HostBytes::default() };
            mixer + ffn
        });
        let weights = HostWeights {
            dense: dense.sum(),
            experts: by_cpu.map(|m| m.host).sum(),
            tables: self.model.tables,
            computed_tables: self.model.computed_tables,
        };
        let host = self.fill_host(&weights, more.staging, 0..mixers)?;
        // Both sides of the transfer are of one size.
        more.staging = host.uses.iter().find(|used| used.what == STAGED).map_or(0, |used| used.bytes);
        let mode = match choices.expert_mode {
            ExpertMode::Cpu => ExpertMode::Cpu,
            _ if static_experts && all => ExpertMode::Resident,
            _ => ExpertMode::Auto,
        };
        let plan = DevicePlan {
            index,
            name: device.name.clone(),
            total: device.total,
            free: device.free,
            uses: self.device_uses(share, &more),
        };
        let experts = self.expert_plan(mode, more.hot, more.hot_bytes);
        Ok(self.plan(Some(plan), host, share, experts, asked.is_none() && !all))
    }

    /// What a device has room for beside what it must hold; none if not for what it was asked for.
    fn more(&self, share: Share, mut left: u64) -> Option<More> {
        let (state, choices, range) = (&self.flags.state, &self.flags.choices, self.last(share.mixers));
        let mixtures = &self.model.mixtures;
        let there: Vec<bool> = mixtures.iter().map(|m| range.contains(&m.layer)).collect();
        let of_device = || mixtures.iter().zip(&there).filter(|(_, there)| **there).map(|(m, _)| m);
        let all = of_device().fold(0, |sum: u64, m| sum.saturating_add(m.on_device()));
        let hot_set = choices.expert_mode == ExpertMode::Auto && all > 0;
        if choices.expert_mode == ExpertMode::Resident {
            left = left.checked_sub(all)?;
        }
        let points =
            self.model.slot(range.clone()).map_or(0, |slot| state.useful_points(slot).min(left / PART_FOR_POINTS));
        left -= points;
        let one = state.rows(&self.groups(range), state.context);
        let most = state.scratch_context.map_or(one.saturating_mul(state.others()), |_| 0);
        let fixed = mebibytes(choices.gpu_cache_mib);
        let everything = !hot_set || if fixed > 0 { fixed >= all } else { left >= all };
        if everything {
            let cached = if hot_set && fixed == 0 { all } else { 0 };
            let scratch = most.min(left - cached);
            let on_device = choices.expert_mode != ExpertMode::Cpu;
            let count = |(m, there): (&MixtureSizes, &bool)| if *there && on_device { m.experts } else { 0 };
            let hot = mixtures.iter().zip(&there).map(count).collect();
            return Some(More { points, scratch, staging: 0, hot, hot_bytes: if on_device { all } else { 0 } });
        }
        let scratch = most.min(left / PART_FOR_SEQUENCES);
        left -= scratch;
        let layer = of_device().map(MixtureSizes::on_device).max().unwrap_or(0);
        let staging = layer.saturating_mul(STAGED_LAYERS).min(left / PART_FOR_STAGING);
        let budget = if fixed > 0 { fixed.min(all) } else { left - staging };
        let (hot, hot_bytes) = fill(mixtures, &there, budget);
        Some(More { points, scratch, staging, hot, hot_bytes })
    }

    fn device_uses(&self, share: Share, more: &More) -> Vec<Use> {
        let [reserve, prompts, decoding, head, cache] = self.base();
        let [one, (others, fixed_scratch), slots, mixers, ffns] = self.parts(share);
        let order = [
            reserve,
            one,
            (others, fixed_scratch.saturating_add(more.scratch)),
            slots,
            ("recurrent state of shared points", more.points),
            prompts,
            decoding,
            head,
            mixers,
            ffns,
            (STAGED, more.staging),
            // A cache of fixed size is there as a whole.
            (EXPERTS, more.hot_bytes.max(cache.1)),
        ];
        let uses = order.into_iter().filter(|(_, bytes)| *bytes > 0);
        uses.map(|(what, bytes)| Use { what: what.into(), bytes }).collect()
    }
}

/// What was entered, but for what takes nothing.
fn uses_of(room: &Ledger) -> Vec<Use> {
    let entries = room.status().entries.into_iter().filter(|entry| entry.bytes > 0);
    entries.map(|entry| Use { what: entry.what, bytes: entry.bytes }).collect()
}

/// Weights that the host holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostWeights {
    /// Dense ones.
    pub(crate) dense: HostBytes,
    /// Routed experts.
    pub(crate) experts: HostBytes,
    /// Bytes of tables that stay in their files.
    pub(crate) tables: u64,
    /// Bytes of those that do not.
    pub(crate) computed_tables: u64,
}

impl HostWeights {
    /// All of a model's.
    pub(crate) fn all_of(model: &ModelSizes) -> Self {
        HostWeights {
            dense: model.dense_on_host(),
            experts: model.experts_on_host(),
            tables: model.tables,
            computed_tables: model.computed_tables,
        }
    }

    /// Those of a model that is on a device: the tables of which single rows are read.
    pub(crate) fn tables_of(model: &ModelSizes) -> Self {
        HostWeights { tables: model.tables, computed_tables: model.computed_tables, ..HostWeights::default() }
    }

    /// What they count where so much memory is free.
    pub(crate) fn entries(&self, repack: bool, free: u64) -> [(&'static str, u64); 3] {
        let ((dense, mapped_dense), (experts, mapped_experts)) = (self.dense.held(repack), self.experts.held(repack));
        let dense = dense.saturating_add(self.computed_tables);
        let mapped = mapped_dense.saturating_add(mapped_experts).saturating_add(self.tables);
        let left = free.saturating_sub(dense).saturating_sub(experts);
        [("dense weights", dense), ("routed experts", experts), ("weights in mapped files", counted(mapped, left))]
    }
}

/// Experts of the mixtures that are `there`, one of each in turn, as long as they fit. Returns how many of each, and their
/// bytes.
fn fill(mixtures: &[MixtureSizes], there: &[bool], budget: u64) -> (Vec<usize>, u64) {
    let (mut hot, mut left, mut level) = (vec![0; mixtures.len()], budget, 0);
    loop {
        let active: Vec<usize> = (0..mixtures.len()).filter(|i| there[*i] && mixtures[*i].experts > level).collect();
        let Some(next) = active.iter().map(|i| mixtures[*i].experts).min() else { break };
        let round = active.iter().fold(0, |sum: u64, i| sum.saturating_add(mixtures[*i].expert));
        let fitting = left.checked_div(round).unwrap_or(u64::MAX);
        let rounds = (next - level).min(usize::try_from(fitting).unwrap_or(usize::MAX));
        level += rounds;
        left -= round.saturating_mul(rounds as u64);
        active.iter().for_each(|i| hot[*i] = level);
        if level < next {
            for i in active {
                match left.checked_sub(mixtures[i].expert) {
                    Some(rest) => (left, hot[i]) = (rest, level + 1),
                    None => break,
                }
            }
            break;
        }
    }
    (hot, budget - left)
}
