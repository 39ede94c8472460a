//! Random machines, models and flags.

use bantam_backend::{Follows, KvType, RowForm};

use bantam_graph::StateKind;
use proptest::{prelude::*, strategy::ValueTree as _};

use super::super::{
    BackendChoice, CacheType, DenseBytes, DenseRequant, Device, ExpertMode, Flags, GpuLayers, HostBytes, LayerSizes,
    Machine, MixtureSizes, ModelSizes, PlacementChoices, Plan, Refusal, StateFlags, Use, WorkspaceSizes, plan,
};
use crate::engine::CacheSize;

const MIB: u64 = 1 << 20;

fn host() -> impl Strategy<Value = HostBytes> {
    (0..200 * MIB, 0..8 * MIB, 0..200 * MIB).prop_map(|(repacked, computed, mapped)| HostBytes {
        repacked: repacked + computed,
        computed,
        mapped,
    })
}

fn dense() -> impl Strategy<Value = DenseBytes> {
    (0..200 * MIB, 50..=100_u64, host()).prop_map(|(device, percent, host)| DenseBytes {
        device,
        device_q8: device / 100 * percent,
        host,
    })
}

fn row() -> impl Strategy<Value = RowForm> {
    let kind = prop_oneof![
        4 => Just(StateKind::PerToken),
        1 => (1..5000_usize).prop_map(|len| StateKind::Window { len }),
        1 => (1..64_usize).prop_map(|stride| StateKind::Strided { stride }),
    ];
    let follows = prop_oneof![Just(Follows::Keys), Just(Follows::Values), Just(Follows::Neither)];
    (kind, 1..8_usize, 1..256_usize, follows, any::<bool>()).prop_map(|(kind, heads, dim, follows, coded)| RowForm {
        state: 0,
        kind,
        heads,
        dim,
        follows,
        coded,
    })
}

fn layer() -> impl Strategy<Value = LayerSizes> {
    (dense(), dense(), prop::collection::vec(row(), 0..3), prop_oneof![Just(0), 0..4 * MIB])
        .prop_map(|(mixer, ffn, rows, slot)| LayerSizes { mixer, ffn, rows, slot })
}

fn mixtures(layers: usize) -> impl Strategy<Value = Vec<MixtureSizes>> {
    let one = (0..layers.max(1), 1..64_usize, 0..8 * MIB, host())
        .prop_map(|(layer, experts, expert, host)| MixtureSizes { layer, experts, used: 1, expert, host });
    let most = if layers == 0 { 1 } else { 8 };
    prop_oneof![Just(Vec::new()), prop::collection::vec(one, 0..most)].prop_map(|mut mixtures| {
        mixtures.sort_by_key(|mixture| mixture.layer);
        mixtures
    })
}

fn model() -> impl Strategy<Value = ModelSizes> {
    let layers = prop::collection::vec(layer(), 0..10);
    layers.prop_flat_map(|layers| {
        let count = layers.len();
        let parts = (dense(), 0..500 * MIB, 0..8 * MIB, mixtures(count), prop::collection::vec(any::<bool>(), count));
        let workspace = prop::collection::vec((0..MIB, 0..MIB), 0..3);
        (parts, workspace).prop_map(move |((head, tables, computed_tables, mixtures, is_cut), points)| {
            let cuts = (0..count).filter(|layer| *layer == 0 || is_cut[*layer]).collect();
            ModelSizes {
                architecture: "random".into(),
                head,
                tables,
                computed_tables,
                layers: layers.clone(),
                mixtures: if count == 0 { Vec::new() } else { mixtures },
                cuts,
                workspace: WorkspaceSizes { points },
            }
        })
    })
}

fn cache_type() -> impl Strategy<Value = CacheType> {
    let types: Vec<CacheType> = KvType::ALL.iter().map(|ty| CacheType::Fixed(*ty)).collect();
    prop_oneof![Just(CacheType::Auto), prop::sample::select(types)]
}

fn choices() -> impl Strategy<Value = PlacementChoices> {
    let backend =
        prop_oneof![4 => Just(BackendChoice::Auto), 1 => Just(BackendChoice::Cpu), 1 => Just(BackendChoice::Cuda)];
    let layers = prop_oneof![4 => Just(GpuLayers::Auto), 1 => Just(GpuLayers::All), 2 => (0..12_usize).prop_map(GpuLayers::Count)];
    let requant = prop::sample::select(vec![DenseRequant::Auto, DenseRequant::Q8, DenseRequant::Off]);
    let experts = prop_oneof![
        4 => Just(ExpertMode::Auto),
        1 => Just(ExpertMode::Cpu),
        1 => Just(ExpertMode::Resident),
    ];
    let gpu_cache = prop_oneof![4 => Just(0), 1 => 1..2000_usize];
    (backend, layers, prop_oneof![4 => Just(None), 1 => (0..3_usize).prop_map(Some)], requant, experts, gpu_cache)
        .prop_map(|(backend, layers, device, dense_requant, expert_mode, gpu_cache_mib)| PlacementChoices {
            backend,
            layers,
            device,
            dense_requant,
            expert_mode,
            gpu_cache_mib,
        })
}

fn state() -> impl Strategy<Value = StateFlags> {
    let scratch = prop_oneof![2 => Just(None), 1 => (1..50_000_usize).prop_map(Some)];
    let cache = prop_oneof![2 => Just(CacheSize::Auto), 1 => Just(CacheSize::Off), 1 => (1..2000_usize).prop_map(CacheSize::Mib)];
    (1..6_usize, 1..50_000_usize, scratch, cache, 1..600_usize).prop_map(
        |(parallel, context, scratch_context, cache, batch)| StateFlags {
            parallel,
            context,
            scratch_context,
            cache,
            batch,
            logit_rows: parallel.min(batch),
        },
    )
}

fn flags() -> impl Strategy<Value = Flags> {
    (choices(), cache_type(), cache_type(), any::<bool>(), state())
        .prop_map(|(choices, k_type, v_type, repack, state)| Flags { choices, k_type, v_type, repack, state })
}

fn machine() -> impl Strategy<Value = Machine> {
    let device = (0..6000 * MIB, prop_oneof![9 => Just(None), 1 => Just(Some((6, 0))), 1 => Just(Some((9, 0)))]);
    let device = device.prop_map(|(free, capability)| Device { capability, ..Device::described(free) });
    let host = prop_oneof![4 => 0..12_000 * MIB, 1 => Just(u64::MAX)];
    (prop::collection::vec(device, 0..3), host, prop::bool::weighted(0.75))
        .prop_map(|(devices, host, spreads)| Machine { devices, host, spreads })
}

/// A case in which nothing is left to chance but what is planned.
fn case() -> impl Strategy<Value = (ModelSizes, Machine, Flags)> {
    (model(), machine(), flags())
}

/// A case that mostly has a plan on a device.
fn on_a_device() -> impl Strategy<Value = (ModelSizes, Machine, Flags)> {
    case().prop_map(|(model, mut machine, mut flags)| {
        flags.choices.device = None;
        machine.host = u64::MAX;
        if machine.devices.is_empty() {
            machine.devices.push(Device::described(3000 * MIB));
        }
        (model, machine, flags)
    })
}

fn bytes(uses: &[Use], what: &str) -> u64 {
    uses.iter().filter(|used| used.what == what).map(|used| used.bytes).sum()
}

/// Bytes of a use on the device and on the host together.
fn everywhere(plan: &Plan, what: &str) -> u64 {
    plan.device.as_ref().map_or(0, |device| bytes(&device.uses, what)) + bytes(&plan.host.uses, what)
}

fn on_device(plan: &Plan) -> u64 {
    plan.device.as_ref().map_or(0, super::super::DevicePlan::used)
}

/// Parts that a device computes: mixers, feed-forward blocks, experts.
fn parts(plan: &Plan) -> [usize; 3] {
    let hot = plan.experts.as_ref().map_or(0, super::super::ExpertPlan::on_device);
    [plan.mixers_on_device(), plan.ffns_on_device(), hot]
}

/// Whether the same formats were chosen.
fn same_formats(a: &Plan, b: &Plan) -> bool {
    (a.k_type, a.v_type, a.requantized) == (b.k_type, b.v_type, b.requantized)
}

fn with_context(flags: &Flags, context: usize) -> Flags {
    Flags { state: StateFlags { context, ..flags.state }, ..*flags }
}

/// What kind of outcome a case has.
fn kind(outcome: &Result<Plan, Refusal>) -> &'static str {
    match outcome {
        Err(Refusal::Conflict { .. }) => "a conflict",
        Err(Refusal::Short { setting: None, .. }) => "short, and nothing helps",
        Err(Refusal::Short { place, .. }) if place == "the host" => "short of the host",
        Err(Refusal::Short { .. }) => "short of a device",
        Ok(plan) if plan.device.is_none() && plan.spilled => "nothing on the device",
        Ok(plan) if plan.device.is_none() => "no device",
        Ok(plan) if plan.spilled && plan.mixers_on_device() < plan.layers.len() => "some layers",
        Ok(plan) if plan.spilled => "some blocks",
        Ok(plan) => match plan.experts.as_ref().map(|experts| experts.mode) {
            Some(ExpertMode::Auto) => "a hot set",
            Some(ExpertMode::Resident) => "all experts",
            Some(ExpertMode::Cpu) => "no expert",
            None => "all of a dense model",
        },
    }
}

#[test]
fn the_cases_are_of_every_kind() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..3000 {
        let (model, machine, flags) = case().new_tree(&mut runner).unwrap().current();
        *counts.entry(kind(&plan(&model, &machine, &flags))).or_insert(0) += 1;
    }
    assert!(counts.len() == 12 && counts.values().all(|count| *count >= 5), "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_budget_is_exceeded((model, machine, flags) in case()) {
        if let Ok(plan) = plan(&model, &machine, &flags) {
            prop_assert!(plan.host.used() <= machine.host, "{:?}", plan.host);
            if let Some(device) = &plan.device {
                prop_assert!(device.used() <= machine.devices[device.index].free, "{device:?}");
                prop_assert!(machine.devices[device.index].capability.is_none_or(|capability| capability >= (6, 1)));
            }
        }
    }

    #[test]
    fn every_weight_lies_where_it_is_computed((model, machine, flags) in case()) {
        let Ok(plan) = plan(&model, &machine, &flags) else { return Ok(()) };
        let [mut mixers, mut ffns, mut by_cpu] = [0, 0, 0];
        for (layer, place) in model.layers.iter().zip(&plan.layers) {
            mixers += if place.mixer_on_device { layer.mixer.on_device(plan.requantized) } else { 0 };
            ffns += if place.ffn_on_device { layer.ffn.on_device(plan.requantized) } else { 0 };
            by_cpu += if place.mixer_on_device { 0 } else { layer.mixer.host.held(flags.repack).0 };
            by_cpu += if place.ffn_on_device { 0 } else { layer.ffn.host.held(flags.repack).0 };
        }
        by_cpu += if plan.device.is_some() { 0 } else { model.head.host.held(flags.repack).0 };
        prop_assert_eq!(bytes(&plan.host.uses, "dense weights"), by_cpu + model.computed_tables);
        let hot: u64 = plan.experts.iter().flat_map(|e| e.hot.iter().zip(&model.mixtures)).map(|(n, m)| *n as u64 * m.expert).sum();
        if let Some(device) = &plan.device {
            prop_assert_eq!(bytes(&device.uses, "mixers"), mixers);
            prop_assert_eq!(bytes(&device.uses, "feed-forward blocks"), ffns);
            prop_assert_eq!(bytes(&device.uses, "output head"), model.head.on_device(plan.requantized));
            prop_assert!(bytes(&device.uses, "routed experts") >= hot);
        }
        // Experts that are always on the device need not be on the host, and those of which some are must.
        if let Some(experts) = &plan.experts {
            prop_assert_eq!(experts.hot_bytes, hot);
            let on_device = |m: &MixtureSizes| plan.layers[m.layer].mixer_on_device;
            let mut there = model.mixtures.iter().zip(&experts.hot).filter(|(m, _)| on_device(m));
            let always = plan.device.is_some() && flags.choices.expert_mode != ExpertMode::Cpu && there.all(|(m, n)| m.experts == *n);
            let by_cpu = model.mixtures.iter().filter(|m| !(always && on_device(m)));
            let held: u64 = by_cpu.map(|m| m.host.held(flags.repack).0).sum();
            prop_assert_eq!(bytes(&plan.host.uses, "routed experts"), held);
            prop_assert!(model.mixtures.iter().zip(&experts.hot).all(|(m, n)| *n == 0 || on_device(m)));
        }
    }

    #[test]
    fn state_is_there_in_full((model, machine, flags) in case()) {
        let Ok(plan) = plan(&model, &machine, &flags) else { return Ok(()) };
        let groups = model.groups(0..model.layers.len(), plan.k_type, plan.v_type);
        prop_assert_eq!(everywhere(&plan, "state of one sequence"), flags.state.rows(&groups, flags.state.context));
        let slots: u64 = model.layers.iter().map(|layer| flags.state.slots(layer.slot)).sum();
        prop_assert_eq!(everywhere(&plan, "recurrent state of the sequences"), slots);
        if flags.state.scratch_context.is_some() {
            let fixed = flags.state.fixed_scratch(&groups);
            prop_assert_eq!(everywhere(&plan, "state of the other sequences"), fixed);
        }
        if let CacheType::Fixed(ty) = flags.k_type {
            prop_assert_eq!(plan.k_type, ty);
        }
        if let CacheType::Fixed(ty) = flags.v_type {
            prop_assert_eq!(plan.v_type, ty);
        }
    }

    #[test]
    fn what_the_user_fixed_holds((model, machine, flags) in case()) {
        let Ok(plan) = plan(&model, &machine, &flags) else { return Ok(()) };
        let (choices, layers) = (&flags.choices, model.layers.len());
        let [mixers, ffns, hot] = parts(&plan);
        match choices.layers {
            GpuLayers::All => prop_assert_eq!([mixers, ffns], [layers; 2]),
            GpuLayers::Count(0) => prop_assert!(plan.device.is_none()),
            GpuLayers::Count(count) => prop_assert_eq!([mixers, ffns], [count.min(layers); 2]),
            GpuLayers::Auto => {}
        }
        match choices.backend {
            BackendChoice::Cpu => prop_assert!(plan.device.is_none()),
            BackendChoice::Cuda => prop_assert!(plan.device.is_some() || choices.layers == GpuLayers::Count(0)),
            BackendChoice::Auto => {}
        }
        match choices.expert_mode {
            ExpertMode::Cpu => prop_assert_eq!(hot, 0),
            ExpertMode::Resident => prop_assert_eq!(hot, model.experts()),
            ExpertMode::Auto => {}
        }
        if let (Some(index), Some(device)) = (choices.device, &plan.device) {
            prop_assert_eq!(device.index, index);
        }
        match choices.dense_requant {
            DenseRequant::Off => prop_assert!(!plan.requantized),
            DenseRequant::Q8 => prop_assert!(plan.device.is_none() || plan.requantized == model.shrinks_by_requantizing()),
            DenseRequant::Auto => {}
        }
        if choices.gpu_cache_mib > 0 {
            let all: u64 = model.mixtures.iter().map(MixtureSizes::on_device).sum();
            let size = (choices.gpu_cache_mib as u64 * MIB).min(all);
            let device = plan.device.as_ref().map_or(0, |device| bytes(&device.uses, "routed experts"));
            prop_assert_eq!(device, size);
        }
    }

    #[test]
    fn more_memory_of_a_device_never_places_less((model, machine, flags) in on_a_device(), more in 0..4000 * MIB, which in 0..3_usize) {
        let mut larger = machine.clone();
        let which = which % larger.devices.len();
        larger.devices[which].free += more;
        larger.devices[which].total += more;
        let Ok(before) = plan(&model, &machine, &flags) else { return Ok(()) };
        let after = plan(&model, &larger, &flags);
        prop_assert!(after.is_ok(), "{after:?} where there was {before:?}");
        let Ok(after) = after else { return Ok(()) };
        prop_assert!(on_device(&before) <= on_device(&after), "{before:?} became {after:?}");
        let (few, many) = (parts(&before), parts(&after));
        prop_assert!(few[0] <= many[0] && few[1] <= many[1], "{few:?} became {many:?}");
        // Finer formats that fit now take the place of experts.
        prop_assert!(few[2] <= many[2] || !same_formats(&before, &after), "{few:?} became {many:?}");
    }

    #[test]
    fn a_longer_context_never_places_more((model, machine, mut flags) in on_a_device(), more in 1..100_000_usize) {
        (flags.k_type, flags.v_type) = (flags.k_type.preferred().into(), flags.v_type.preferred().into());
        let longer = with_context(&flags, flags.state.context + more);
        let Ok(after) = plan(&model, &machine, &longer) else { return Ok(()) };
        let before = plan(&model, &machine, &flags);
        prop_assert!(before.is_ok(), "{before:?} where a longer one has {after:?}");
        let Ok(before) = before else { return Ok(()) };
        let (many, few) = (parts(&before), parts(&after));
        prop_assert!(few[0] <= many[0] && few[1] <= many[1], "{many:?} became {few:?}");
        prop_assert!(few[2] <= many[2] || !same_formats(&before, &after), "{many:?} became {few:?}");
    }

    #[test]
    fn what_a_refusal_asks_for_is_enough_and_no_more_than_that((model, machine, flags) in case()) {
        let mut machine = machine;
        for _ in 0..4 {
            let Err(Refusal::Short { place, needed, available, setting, .. }) = plan(&model, &machine, &flags) else {
                return Ok(());
            };
            prop_assert!(needed > available);
            if let Some(setting) = setting {
                let with = plan(&model, &machine, &setting.apply(&flags));
                prop_assert!(with.is_ok(), "{setting} was to help: {with:?}");
            }
            let room = |machine: &mut Machine, bytes: u64| match place.strip_prefix("device ") {
                Some(index) => {
                    let device = &mut machine.devices[index.parse::<usize>().unwrap()];
                    prop_assert_eq!(device.free, available);
                    device.free = bytes;
                    Ok(())
                }
                None => {
                    prop_assert_eq!(machine.host, available);
                    machine.host = bytes;
                    Ok(())
                }
            };
            let mut less = machine.clone();
            room(&mut less, needed - 1)?;
            let refused = plan(&model, &less, &flags);
            prop_assert!(
                matches!(&refused, Err(Refusal::Short { place: same, .. }) if *same == place),
                "a byte less than {needed} is enough: {refused:?}"
            );
            room(&mut machine, needed)?;
            if let Err(Refusal::Short { place: again, .. }) = plan(&model, &machine, &flags) {
                prop_assert!(again != place, "{needed} bytes of {place} are not enough");
            }
        }
        prop_assert!(false, "there is no end of refusals");
    }

    #[test]
    fn what_a_plan_advises_keeps_everything_on_the_device((model, machine, flags) in on_a_device()) {
        let Ok(plan) = plan(&model, &machine, &flags) else { return Ok(()) };
        prop_assert!(plan.spilled || plan.advice.is_empty());
        for setting in &plan.advice {
            let with = super::super::plan(&model, &machine, &setting.apply(&flags));
            prop_assert!(with.as_ref().is_ok_and(|plan| !plan.spilled), "{setting}: {with:?}");
        }
    }

    #[test]
    fn the_same_is_planned_again((model, machine, flags) in case()) {
        prop_assert_eq!(plan(&model, &machine, &flags), plan(&model, &machine, &flags));
    }
}
