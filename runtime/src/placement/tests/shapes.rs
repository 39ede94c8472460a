//! Plans for models as people run them, described by their families from metadata and tensor lists alone.

use std::collections::BTreeMap;

use bantam_backend::{KvType, WeightError};
use bantam_family_api::{AxisOrder, Checkpoint, MetaValue, TensorMeta};
use bantam_gguf::GgmlType;
use bantam_graph::Weight;
use bantam_plugins::Families;

use super::{
    super::{
        BackendChoice, CacheType, Device, ExpertMode, Flags, GpuLayers, Machine, ModelSizes, PlacementChoices, Refusal,
        Setting, Use, plan,
    },
    GIB, choosing, flags,
};
use crate::{
    load::{WeightForm, form},
    placement::sizes::MixtureSizes,
};

/// A model's extents.
struct Shape {
    architecture: &'static str,
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    ffn: usize,
    /// Experts, those that are used, and entries between their matrices.
    experts: Option<[usize; 3]>,
    /// Of dense matrices that are Q4_K otherwise.
    dense: GgmlType,
}

const HEAD: usize = 128;
const VOCAB: usize = 151_936;

/// Qwen3-8B.
const DENSE_8B: Shape = Shape {
    architecture: "qwen3",
    layers: 36,
    hidden: 4096,
    heads: 32,
    kv_heads: 8,
    ffn: 12288,
    experts: None,
    dense: GgmlType::Q4_K,
};

/// Qwen3-30B-A3B.
const MIXTURE_30B: Shape = Shape {
    architecture: "qwen3moe",
    layers: 48,
    hidden: 2048,
    heads: 32,
    kv_heads: 4,
    ffn: 6144,
    experts: Some([128, 8, 768]),
    dense: GgmlType::Q4_K,
};

impl Shape {
    /// Tensors by name, as llama.cpp's Q4_K_M has them.
    fn tensors(&self) -> BTreeMap<String, (GgmlType, Vec<usize>)> {
        let (q4, q6, f32) = (self.dense, GgmlType::Q6_K, GgmlType::F32);
        let (q, kv) = (self.heads * HEAD, self.kv_heads * HEAD);
        let mut tensors = vec![
            ("token_embd.weight".to_owned(), q4, vec![VOCAB, self.hidden]),
            ("output_norm.weight".to_owned(), f32, vec![self.hidden]),
            ("output.weight".to_owned(), if q4 == GgmlType::Q4_K { q6 } else { q4 }, vec![VOCAB, self.hidden]),
        ];
        for i in 0..self.layers {
            let more = i < self.layers / 8 || i >= 7 * self.layers / 8 || (i - self.layers / 8) % 3 == 2;
            let large = if more && q4 == GgmlType::Q4_K { q6 } else { q4 };
            let mut add = |name: &str, ty, shape: &[usize]| {
                tensors.push((format!("blk.{i}.{name}.weight"), ty, shape.to_vec()));
            };
            add("attn_norm", f32, &[self.hidden]);
            add("ffn_norm", f32, &[self.hidden]);
            add("attn_q", q4, &[q, self.hidden]);
            add("attn_k", q4, &[kv, self.hidden]);
            add("attn_v", large, &[kv, self.hidden]);
            add("attn_output", q4, &[self.hidden, q]);
            add("attn_q_norm", f32, &[HEAD]);
            add("attn_k_norm", f32, &[HEAD]);
            match self.experts {
                None => {
                    add("ffn_gate", q4, &[self.ffn, self.hidden]);
                    add("ffn_up", q4, &[self.ffn, self.hidden]);
                    add("ffn_down", large, &[self.hidden, self.ffn]);
                }
                Some([experts, _, ffn]) => {
                    add("ffn_gate_inp", f32, &[experts, self.hidden]);
                    add("ffn_gate_exps", q4, &[experts, ffn, self.hidden]);
                    add("ffn_up_exps", q4, &[experts, ffn, self.hidden]);
                    add("ffn_down_exps", large, &[experts, self.hidden, ffn]);
                }
            }
        }
        tensors.into_iter().map(|(name, ty, shape)| (name, (ty, shape))).collect()
    }

    fn sizes(&self) -> ModelSizes {
        let (tensors, ar) = (self.tensors(), self.architecture);
        let number = |n: usize| MetaValue::Uint(n as u64);
        let mut metadata = BTreeMap::from([
            ("block_count", number(self.layers)),
            ("context_length", number(40960)),
            ("embedding_length", number(self.hidden)),
            ("feed_forward_length", number(self.ffn)),
            ("attention.head_count", number(self.heads)),
            ("attention.head_count_kv", number(self.kv_heads)),
            ("attention.key_length", number(HEAD)),
            ("attention.value_length", number(HEAD)),
            ("attention.layer_norm_rms_epsilon", MetaValue::Float(1e-6)),
            ("rope.freq_base", MetaValue::Float(1e6)),
        ]);
        if let Some([experts, used, ffn]) = self.experts {
            metadata.insert("expert_count", number(experts));
            metadata.insert("expert_used_count", number(used));
            metadata.insert("expert_feed_forward_length", number(ffn));
        }
        let checkpoint = Checkpoint {
            architecture: ar.into(),
            metadata: metadata.into_iter().map(|(key, value)| (format!("{ar}.{key}"), value)).collect(),
            tensors: tensors
                .iter()
                .map(|(name, (ty, shape))| {
                    (name.clone(), TensorMeta { shape: shape.clone(), r#type: ty.name().into() })
                })
                .collect(),
            axes: AxisOrder::FastestFirst,
        };
        let model = Families::default().describe(&checkpoint).unwrap().model;
        let tensor = |name: &str| match tensors.get(name) {
            Some((ty, shape)) => Ok(WeightForm { ty: *ty, shape: shape.clone(), computed: false }),
            None => Err(format!("no tensor {name}")),
        };
        let forms = |weight: &Weight| {
            form(&weight.expr, &tensor).map_err(|why| WeightError { weight: weight.name.clone(), why })
        };
        ModelSizes::of(&model.text, &forms, ar, 0).unwrap()
    }

    /// Bytes of the tensors whose names are `wanted`.
    fn bytes(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let of = |(ty, shape): &(GgmlType, Vec<usize>)| {
            WeightForm { ty: *ty, shape: shape.clone(), computed: false }.bytes()
        };
        self.tensors().iter().filter(|(name, _)| wanted(name)).map(|(_, tensor)| of(tensor)).sum()
    }

    /// Bytes of keys and values of a token.
    fn token(&self, ty: KvType) -> u64 {
        (self.layers * self.kv_heads * 2 * ty.head_bytes(HEAD)) as u64
    }
}

/// A machine with one device.
fn machine(device: u64, host: u64) -> Machine {
    Machine { devices: vec![Device::described(device)], host, spreads: true }
}

fn bytes(uses: &[Use], what: &str) -> u64 {
    uses.iter().filter(|used| used.what == what).map(|used| used.bytes).sum()
}

#[test]
fn sizes_are_those_of_the_tensors() {
    for shape in [DENSE_8B, MIXTURE_30B] {
        let sizes = shape.sizes();
        assert_eq!((sizes.layers.len(), sizes.cuts.len()), (shape.layers, shape.layers));
        let dense =
            sizes.layers.iter().map(|layer| layer.mixer.device + layer.ffn.device).sum::<u64>() + sizes.head.device;
        let is_expert = |name: &str| name.contains("_exps");
        assert_eq!(dense, shape.bytes(|name| !is_expert(name) && name != "token_embd.weight"));
        assert_eq!(sizes.mixtures.iter().map(MixtureSizes::on_device).sum::<u64>(), shape.bytes(is_expert));
        assert_eq!(sizes.tables, shape.bytes(|name| name == "token_embd.weight"));
        let ffn = sizes.layers.iter().map(|layer| layer.ffn.device).sum::<u64>();
        assert_eq!(ffn, shape.bytes(|name| name.contains(".ffn_") && !is_expert(name)));
        // A sequence of 32 Ki tokens, and a page that it may begin.
        let groups = sizes.groups(0..shape.layers, KvType::F16, KvType::F16);
        assert_eq!(flags(32768).state.rows(&groups, 32768), shape.token(KvType::F16) * (32768 + 32));
        assert_eq!((sizes.mixtures.len(), sizes.experts()), shape.experts.map_or((0, 0), |[n, ..]| (48, 48 * n)));
    }
}

#[test]
fn a_dense_model_of_8b_fits_in_12_gib() {
    let model = DENSE_8B.sizes();
    let plan = plan(&model, &machine(12 * GIB, 32 * GIB), &flags(32768)).unwrap();
    assert!(!plan.spilled && plan.advice.is_empty() && plan.experts.is_none());
    assert_eq!((plan.mixers_on_device(), plan.ffns_on_device()), (36, 36));
    let device = plan.device.as_ref().unwrap();
    assert_eq!(bytes(&device.uses, "state of one sequence"), DENSE_8B.token(KvType::F16) * (32768 + 32));
    // The table of embeddings stays in its file.
    assert_eq!(bytes(&plan.host.uses, "weights in mapped files"), DENSE_8B.bytes(|name| name == "token_embd.weight"));
    assert_eq!(bytes(&plan.host.uses, "dense weights"), 0);
    assert!(device.used() > 11 * GIB, "what is left is for the state of other sequences: {device:?}");
}

#[test]
fn a_dense_model_that_does_not_fit_leaves_blocks_to_the_cpu_and_says_what_helps() {
    let model = DENSE_8B.sizes();
    let small = machine(8 * GIB, 32 * GIB);
    let spilled = plan(&model, &small, &flags(32768)).unwrap();
    let (mixers, ffns) = (spilled.mixers_on_device(), spilled.ffns_on_device());
    assert!(spilled.spilled && mixers == 36 && 0 < ffns && ffns < 36, "{mixers}, {ffns}");
    assert!(spilled.layers[..36 - ffns].iter().all(|layer| layer.mixer_on_device && !layer.ffn_on_device));
    assert!(bytes(&spilled.host.uses, "dense weights") > 0);
    assert_eq!(spilled.advice.first(), Some(&Setting::CacheTypes(KvType::Q8_0)));
    let Some(Setting::Context(context)) = spilled.advice.get(1) else { panic!("{:?}", spilled.advice) };
    assert!((8192..32768).contains(context), "{context}");
    for setting in &spilled.advice {
        assert!(!plan(&model, &small, &setting.apply(&flags(32768))).unwrap().spilled, "{setting}");
    }
    // Where not even all attention fits, whole layers go, with their state.
    let tiny = plan(&model, &machine(4 * GIB, 32 * GIB), &flags(32768)).unwrap();
    assert!(tiny.spilled && (1..36).contains(&tiny.mixers_on_device()) && tiny.ffns_on_device() == 0);
    assert!(bytes(&tiny.host.uses, "state of one sequence") > 0);
    let none = plan(&model, &machine(GIB / 2, 32 * GIB), &flags(32768)).unwrap();
    assert!(none.spilled && none.device.is_none());
}

#[test]
fn a_mixture_of_30b_in_12_gib_has_its_dense_part_and_a_hot_set_there() {
    let model = MIXTURE_30B.sizes();
    let plan = plan(&model, &machine(12 * GIB, 64 * GIB), &flags(32768)).unwrap();
    assert!(!plan.spilled && plan.advice.is_empty());
    assert_eq!((plan.mixers_on_device(), plan.ffns_on_device()), (48, 48));
    assert_eq!((plan.k_type, plan.v_type), (KvType::F16, KvType::F16));
    let (device, experts) = (plan.device.as_ref().unwrap(), plan.experts.as_ref().unwrap());
    assert_eq!((experts.mode, experts.experts), (ExpertMode::Auto, 6144));
    assert!((600..3000).contains(&experts.on_device()), "{}", experts.on_device());
    let (least, most) = (experts.hot.iter().min().unwrap(), experts.hot.iter().max().unwrap());
    assert!(most - least <= 1, "the layers have equal shares: {:?}", experts.hot);
    // Less than an expert is left.
    assert!(device.free - device.used() < 4 << 20, "{device:?}");
    assert!(bytes(&device.uses, "staged experts") > 0);
    assert_eq!(bytes(&plan.host.uses, "staged experts"), bytes(&device.uses, "staged experts"));
    assert_eq!(bytes(&plan.host.uses, "routed experts"), model.experts_on_host().repacked);
}

#[test]
fn resident_experts_are_refused_in_12_gib_and_fit_in_what_the_refusal_asks_for() {
    let model = MIXTURE_30B.sizes();
    let resident = PlacementChoices { expert_mode: ExpertMode::Resident, ..PlacementChoices::default() };
    let flags = choosing(32768, resident);
    let refused = plan(&model, &machine(12 * GIB, 64 * GIB), &flags).unwrap_err();
    let Refusal::Short { place, what, needed, available, setting } = &refused else { panic!("{refused}") };
    assert_eq!((place.as_str(), *available, *setting), ("device 0", 12 * GIB, Some(Setting::ExpertsThatFit)));
    assert!(what.contains("experts"), "{what}");
    let experts = MIXTURE_30B.bytes(|name| name.contains("_exps"));
    assert!(*needed > experts + 3 * GIB && *needed < 24 * GIB, "{needed}");
    let text = refused.to_string();
    assert!(text.contains("12.00 GiB") && text.contains("--expert-mode auto"), "{text}");
    let fits = plan(&model, &machine(*needed, 64 * GIB), &flags).unwrap();
    assert_eq!(fits.experts.as_ref().map(|e| (e.mode, e.on_device())), Some((ExpertMode::Resident, 6144)));
    assert_eq!(bytes(&fits.host.uses, "routed experts"), 0, "the host need not have them too");
    // Left to us, the same memory is used in the same way.
    let auto = plan(&model, &machine(*needed, 64 * GIB), &super::flags(32768)).unwrap();
    assert_eq!(auto.experts, fits.experts);
}

#[test]
fn long_contexts_of_mixtures_are_coded_where_the_type_is_left_to_us() {
    let auto = |context| Flags { k_type: CacheType::Auto, v_type: CacheType::Auto, ..flags(context) };
    let types = |shape: &Shape, device, context| {
        let plan = plan(&shape.sizes(), &machine(device, 64 * GIB), &auto(context)).unwrap();
        (plan.k_type, plan.v_type)
    };
    let [f16, turbo4] = [(KvType::F16, KvType::F16), (KvType::Turbo4, KvType::Turbo4)];
    assert_eq!(types(&MIXTURE_30B, 4 * GIB, 32768), f16, "it is not long");
    assert_eq!(types(&MIXTURE_30B, 4 * GIB, 40960), turbo4);
    assert_eq!(types(&MIXTURE_30B, 12 * GIB, 40960), f16, "it fits");
    assert_eq!(types(&DENSE_8B, 8 * GIB, 40960), f16, "it is no mixture");
}

#[test]
fn dense_weights_in_16_bits_are_requantized_where_they_do_not_fit_otherwise() {
    let model = Shape { dense: GgmlType::BF16, ..DENSE_8B }.sizes();
    let with = |device| plan(&model, &machine(device, 64 * GIB), &flags(8192)).unwrap();
    let (large, small) = (with(24 * GIB), with(12 * GIB));
    assert!(!large.requantized && !large.spilled);
    assert!(small.requantized && !small.spilled, "{small:?}");
    let mixers = |plan: &super::super::Plan| bytes(&plan.device.as_ref().unwrap().uses, "mixers");
    // 34 bytes stand for 32 numbers, instead of 64; norms stay.
    let ratio = mixers(&small) as f64 / mixers(&large) as f64;
    assert!((ratio - 34.0 / 64.0).abs() < 1e-3, "{ratio}");
}

#[test]
fn layers_that_are_asked_for_are_there_or_refused() {
    let model = MIXTURE_30B.sizes();
    let layers = |layers| choosing(32768, PlacementChoices { layers, ..PlacementChoices::default() });
    let ten = plan(&model, &machine(4 * GIB, 64 * GIB), &layers(GpuLayers::Count(10))).unwrap();
    assert_eq!((ten.mixers_on_device(), ten.ffns_on_device(), ten.spilled), (10, 10, false));
    let hot = &ten.experts.as_ref().unwrap().hot;
    assert!(hot[..38].iter().all(|n| *n == 0) && hot[38..].iter().all(|n| *n > 0), "{hot:?}");
    let refused = plan(&model, &machine(3 * GIB, 64 * GIB), &layers(GpuLayers::All)).unwrap_err();
    assert!(matches!(refused, Refusal::Short { setting: Some(Setting::LayersThatFit), .. }), "{refused}");
    let none = plan(&model, &Machine::host_alone(Some(64 * GIB)), &layers(GpuLayers::Count(3))).unwrap_err();
    assert!(none.to_string().starts_with("-ngl 3: "), "{none}");
}

#[test]
fn a_machine_that_does_not_spread_has_all_on_the_device_or_nothing() {
    let whole = |device, host| Machine { spreads: false, ..machine(device, host) };
    for (shape, fits, too_small) in [(DENSE_8B, 12 * GIB, 8 * GIB), (MIXTURE_30B, 24 * GIB, 12 * GIB)] {
        let model = shape.sizes();
        let there = plan(&model, &whole(fits, 4 * GIB), &flags(32768)).unwrap();
        assert_eq!((there.mixers_on_device(), there.ffns_on_device()), (shape.layers, shape.layers));
        assert_eq!(there.experts.iter().flat_map(|experts| &experts.hot).sum::<usize>(), model.experts());
        let (device, host) = (there.device.as_ref().unwrap(), &there.host);
        assert!(bytes(&device.uses, "kept prefixes") > 0 && bytes(&host.uses, "kept prefixes") == 0, "{there:?}");
        let tables = shape.bytes(|name| name == "token_embd.weight");
        assert_eq!((host.used(), bytes(&host.uses, "weights in mapped files")), (tables, tables));
        let spilled = plan(&model, &whole(too_small, 64 * GIB), &flags(32768)).unwrap();
        assert!(spilled.spilled && spilled.device.is_none());
        let cuda = PlacementChoices { backend: BackendChoice::Cuda, ..PlacementChoices::default() };
        let refused = plan(&model, &whole(too_small, 64 * GIB), &choosing(32768, cuda)).unwrap_err();
        assert!(matches!(&refused, Refusal::Short { place, .. } if place == "device 0"), "{refused}");
    }
    let halves = [
        PlacementChoices { layers: GpuLayers::Count(3), ..PlacementChoices::default() },
        PlacementChoices { expert_mode: ExpertMode::Cpu, ..PlacementChoices::default() },
        PlacementChoices { gpu_cache_mib: 64, ..PlacementChoices::default() },
    ];
    for choices in halves {
        let refused = plan(&MIXTURE_30B.sizes(), &whole(24 * GIB, 64 * GIB), &choosing(32768, choices)).unwrap_err();
        assert!(matches!(&refused, Refusal::Conflict { why, .. } if why.contains("as a whole")), "{refused}");
    }
}
