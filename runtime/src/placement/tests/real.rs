//! What is planned for the models of the fixtures against what loading them takes.

use std::path::{Path, PathBuf};

use bantam_backend::{Backend as _, CompileOptions, KvType, WeightSource as _};
use bantam_cpu::CpuBackend;
use bantam_graph::{Op, Weight};

use super::super::{Flags, Machine, ModelSizes, plan};
use crate::{
    engine::{CacheSize, EngineConfig},
    load::{self, LoadedModel},
    memory::Ledger,
    resident,
};

/// Files of all golden models.
fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path().join("model.gguf")).filter(|file| file.exists()).collect();
    files.sort();
    assert!(files.len() > 20, "{files:?}");
    files
}

fn sizes(loaded: &LoadedModel) -> ModelSizes {
    let forms = |weight: &Weight| loaded.source.form(weight);
    ModelSizes::of(&loaded.model.text, &forms, &loaded.model.architecture, 0).unwrap()
}

#[test]
fn a_weights_form_is_that_of_its_value() {
    for file in models() {
        let loaded = load::open(&file, &Default::default()).unwrap();
        let draft = loaded.model.draft.iter().flat_map(|draft| &draft.graph.weights);
        for weight in loaded.model.text.weights.iter().chain(draft) {
            let (form, value) = (loaded.source.form(weight).unwrap(), loaded.source.load(weight).unwrap());
            let name = format!("{}: {}", file.display(), weight.name);
            assert_eq!((form.ty, &form.shape), (value.ty, &value.shape), "{name}");
            assert_eq!((form.bytes(), form.computed), (value.bytes.len() as u64, value.bytes.is_owned()), "{name}");
        }
    }
}

#[test]
fn sizes_are_those_of_the_program() {
    let backend = CpuBackend::new(1).unwrap();
    for (i, file) in models().into_iter().enumerate() {
        let loaded = load::open(&file, &Default::default()).unwrap();
        let (k_type, v_type) = (KvType::ALL[i % KvType::ALL.len()], KvType::ALL[(i + 1) % KvType::ALL.len()]);
        let options = CompileOptions {
            max_rows: 8,
            max_logit_rows: 8,
            max_tentative: 0,
            k_type,
            v_type,
            repack: true,
            ops: None,
        };
        let graph = &loaded.model.text;
        let program = backend.compile(graph, &loaded.source, &options, &mut |_, _| {}).unwrap();
        let (sizes, name) = (sizes(&loaded), file.display());
        let layers = sizes.layers.len();
        let pages = |groups: &[bantam_backend::StateGroup]| {
            let mut pages: Vec<_> =
                groups.iter().map(|g| (format!("{:?}", g.kind), g.page_tokens, g.page_bytes)).collect();
            pages.sort();
            pages
        };
        assert_eq!(pages(&sizes.groups(0..layers, k_type, v_type)), pages(program.groups()), "{name}");
        let slot = program.recurrent(0).map(|group| group.slot_bytes as u64);
        assert_eq!(sizes.slot(0..layers), slot, "{name}");
        assert_eq!(sizes.mixtures.iter().map(|m| m.experts).collect::<Vec<_>>(), program.mixtures(), "{name}");
        let planned = (sizes.dense_on_host() + sizes.experts_on_host()).repacked + sizes.computed_tables;
        let held = program.weight_bytes();
        // Factors of convolutions are held a second time, in another order.
        assert!(planned <= held + sizes.computed_tables && held <= planned + planned / 20, "{name}: {planned}, {held}");
        assert!(sizes.workspace.bytes(8, 8) > 0 && sizes.cuts.first() == Some(&0), "{name}");
        let layers_with_state = sizes.layers.iter().filter(|layer| !layer.rows.is_empty() || layer.slot > 0);
        assert!(layers_with_state.count() > 0, "{name}");
    }
}

#[test]
fn layers_that_read_the_state_of_others_are_not_parted_from_them() {
    for file in models() {
        let loaded = load::open(&file, &Default::default()).unwrap();
        let graph = &loaded.model.text;
        let writer = |state: &str| graph.nodes.iter().find(|node| node.op.written_states().contains(&state));
        let shares = graph.nodes.iter().any(|node| match &node.op {
            Op::Attention(attention) => attention.k.is_none() && writer(&attention.k_state).is_some(),
            _ => false,
        });
        let sizes = sizes(&loaded);
        // Layers of compressed keys have writers of their own.
        if !shares {
            assert_eq!(sizes.cuts.len(), sizes.layers.len(), "{}", file.display());
        }
    }
}

#[test]
fn what_is_planned_for_the_cpu_is_what_is_entered_into_the_ledger() {
    for file in models().into_iter().step_by(3) {
        for (repack, cache) in [(true, CacheSize::Auto), (false, CacheSize::Mib(1)), (true, CacheSize::Off)] {
            let config = EngineConfig { repack, cache, threads: 1, ..EngineConfig::new(&file) };
            let room = 1 << 30;
            let resident = resident::load(&config, Ledger::with_total(room), &mut |_, _| {}).unwrap();
            let taken = resident.ledger.status().entries;
            let planned = &resident.info.plan.as_ref().unwrap().host;
            let weights = ["dense weights", "routed experts", "weights in mapped files"];
            let (of_weights, others): (Vec<_>, Vec<_>) =
                planned.uses.iter().partition(|used| weights.contains(&used.what.as_str()));
            let sum: u64 = of_weights.iter().map(|used| used.bytes).sum();
            assert_eq!((taken[0].what.as_str(), taken[0].bytes), ("weights", sum), "{}", file.display());
            let taken: Vec<_> = taken[1..].iter().filter(|e| e.bytes > 0).map(|e| (e.what.clone(), e.bytes)).collect();
            let planned: Vec<_> = others.iter().map(|used| (used.what.clone(), used.bytes)).collect();
            assert_eq!(planned, taken, "{}", file.display());
            // The same is found without loading anything.
            let loaded = load::open(&file, &Default::default()).unwrap();
            let flags = Flags::of(&config, config.context.min(loaded.model.context_length));
            let again = plan(&sizes(&loaded), &Machine::host_alone(Some(room)), &flags).unwrap();
            assert_eq!(Some(&again), resident.info.plan.as_deref());
        }
    }
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_it_is_read() {
    let file = models().remove(0);
    let config = EngineConfig { threads: 1, ..EngineConfig::new(&file) };
    let mut read = 0;
    let refused = resident::load(&config, Ledger::with_total(1 << 10), &mut |_, _| read += 1);
    let why = refused.err().unwrap();
    assert!(why.contains("the host") && why.contains("1.0 KiB"), "{why}");
    assert_eq!(read, 0);
}
