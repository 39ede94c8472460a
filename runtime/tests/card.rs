//! Golden models through the whole engine on an emulated card: logits and greedy tokens of the reference, and the same bits
//! whatever way tokens come. One model for each way in which state grows; `BANTAM_TEST_FIXTURE` (a part of a name) chooses others.
//!
//! Serving from a card: what it takes of its memory, one that is too small, one that is lost, one whose memory ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use bantam_backend::Backend;
use bantam_cuda::{Buffer, CudaBackend, Device as _};
use bantam_cuda_emulated::{CARD, Emulated, under_test};
use bantam_runtime::{
    engine::{CacheSize, Engine, EngineConfig, EngineError, Event, ModelInfo, Prompt, Request},
    hardware::{Devices, Hardware},
    placement::{BackendChoice, Device},
    probe::{ProbeConfig, ProbeReport, run},
    sampling::SamplingOverrides,
};
use serde_json::Value;

/// A machine with an emulated card, a new one each time it is opened.
struct Cards {
    memory: usize,
    opened: Mutex<Vec<Weak<Emulated>>>,
}

impl Cards {
    fn of(memory: usize) -> Arc<Self> {
        Arc::new(Cards { memory, opened: Mutex::default() })
    }

    /// How often it was opened.
    fn times(&self) -> usize {
        self.opened.lock().unwrap().len()
    }

    /// The card that is open.
    fn card(&self) -> Arc<Emulated> {
        let open: Vec<_> = self.opened.lock().unwrap().iter().filter_map(Weak::upgrade).collect();
        assert_eq!(open.len(), 1, "a card that is not used any more is still open");
        Arc::clone(&open[0])
    }
}

impl Devices for Cards {
    fn list(&self) -> Result<Vec<Device>, String> {
        Ok(vec![Device { name: "emulated".into(), capability: Some((8, 0)), ..Device::described(self.memory as u64) }])
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Backend>, String> {
        assert_eq!(index, 0);
        if is_real() {
            return Ok(Arc::new(CudaBackend::on(under_test(80))));
        }
        let card = Arc::new(Emulated::with_memory(self.memory));
        self.opened.lock().unwrap().push(Arc::downgrade(&card));
        Ok(Arc::new(CudaBackend::on(card)))
    }
}

/// A model that is served from these cards.
fn serving(model: &str, cards: &Arc<Cards>, backend: BackendChoice) -> EngineConfig {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(model);
    let mut config = EngineConfig::new(folder.join("model.gguf"));
    let cards: Arc<dyn Devices> = Arc::clone(cards) as _;
    config.hardware = Hardware::Devices(cards);
    config.placement.backend = backend;
    config.threads = 1;
    config.parallel = 2;
    config.context = 256;
    config.batch = 32;
    config.cache = CacheSize::Mib(16);
    config
}

/// Whether a real card is under test, whose memory and faults are not ours to choose.
fn is_real() -> bool {
    std::env::var_os(CARD).is_some()
}

/// The likeliest tokens behind a prompt, or why there are none.
async fn answer(engine: &Engine, prompt: Vec<u32>, most: usize) -> Result<Vec<u32>, String> {
    let sampling = SamplingOverrides { temperature: Some(0.0), ..SamplingOverrides::default() };
    let request = Request {
        sampling,
        max_tokens: Some(most),
        ignore_eos: true,
        logprobs: Some(0),
        ..Request::new(Prompt::Tokens(prompt))
    };
    let mut generation = engine.submit(request).await.map_err(|refusal| refusal.to_string())?;
    let mut tokens = Vec::new();
    loop {
        match generation.next().await {
            Some(Event::Delta(delta)) => tokens.extend(delta.tokens.into_iter().map(|token| token.token)),
            Some(Event::Finished(_)) => return Ok(tokens),
            Some(Event::Failed(why)) => return Err(why.to_string()),
            Some(Event::Started { .. }) => {}
            None => return Err("it ended without a word".into()),
        }
    }
}

fn prompt(seed: u32, tokens: u32) -> Vec<u32> {
    (0..tokens).map(|i| (i * 7 + seed * 13) % 96 + 4).collect()
}

const MIB: usize = 1 << 20;

/// Per token; per token with experts; window and per token; recurrent.
const CHOSEN: &[&str] = &["qwen3-dense", "qwen3moe-a", "gemma3-dense", "qwen35-dense"];

fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
    let mut models: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    models.sort();
    models
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| u32::try_from(v.as_u64().unwrap()).unwrap()).collect()
}

fn check(folder: &Path, expect: &Value, report: &ProbeReport) {
    let name = folder.display();
    let wanted = std::fs::read(folder.join("logits.f32")).unwrap();
    let wanted = wanted.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
    assert_eq!(wanted.len(), report.logits.len(), "{name}");
    let worst = wanted.zip(&report.logits).fold(0.0, |worst: f32, (a, b)| worst.max((a - b).abs()));
    let bound = 2e-3 * expect["logits_std"].as_f64().unwrap().max(1.0) as f32;
    assert!(worst <= bound, "{name}: logits differ by {worst}, allowed {bound}");
    assert_eq!(report.greedy, ids(&expect["greedy"]), "{name}");
    for (check, result) in &report.checks {
        assert_eq!(result.max_diff, 0.0, "{name}: {check}");
        assert!(result.evidence.values().all(|n| *n > 0), "{name}: {check} shows nothing: {result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emulated_card_agrees_with_the_reference_and_itself() {
    let asked = std::env::var("BANTAM_TEST_FIXTURE").ok();
    let is_chosen = |folder: &PathBuf| {
        let name = folder.file_name().unwrap().to_string_lossy();
        asked.as_ref().map_or_else(|| CHOSEN.contains(&name.as_ref()), |asked| name.contains(asked.as_str()))
    };
    let models: Vec<PathBuf> = models().into_iter().filter(is_chosen).collect();
    assert!(!models.is_empty() && (asked.is_some() || models.len() == CHOSEN.len()));
    for folder in models {
        let expect: Value = serde_json::from_slice(&std::fs::read(folder.join("expect.json")).unwrap()).unwrap();
        let config = ProbeConfig {
            greedy: ids(&expect["greedy"]).len(),
            hardware: Hardware::Devices(Cards::of(1 << 30)),
            checks: vec!["all".into()],
            ..ProbeConfig::new(folder.join("model.gguf"), ids(&expect["prompt"]))
        };
        check(&folder, &expect, &run(config).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_serves_what_the_cpu_does_and_its_memory_is_accounted_for() {
    for model in ["qwen3-dense", "qwen35-dense"] {
        let cards = Cards::of(1024 * MIB);
        let mut alone = serving(model, &cards, BackendChoice::Cpu);
        alone.hardware = Hardware::Cpu;
        let by_cpu = Engine::start(alone).unwrap();
        let by_card = Engine::start(serving(model, &cards, BackendChoice::Cuda)).unwrap();
        by_cpu.ready().await.unwrap();
        let info = by_card.ready().await.unwrap();
        assert_eq!(info.backend, "cuda");
        let taken = (!is_real()).then(|| cards.card().taken());
        // Two that begin alike, at once, and one that goes on from what they left.
        let prompts = [prompt(1, 70), [prompt(1, 70), prompt(2, 9)].concat(), [prompt(1, 70), prompt(2, 20)].concat()];
        let expected = answers(&by_cpu, &prompts).await;
        assert_eq!(answers(&by_card, &prompts).await, expected, "{model}");
        assert!(by_card.status().await.reused_tokens > 0);

        let memory = by_card.memory().await;
        let device = memory.device.expect("the card is accounted for");
        let held: u64 = device.entries.iter().map(|entry| entry.bytes).sum();
        assert!(device.free == 1024 << 20 && held <= device.free, "{device:?}");
        for what in ["mixers", "output head", "state of one sequence", "kept prefixes"] {
            assert!(device.entries.iter().any(|entry| entry.what == what && entry.bytes > 0), "{what}: {device:?}");
        }
        let weights: u64 = memory.entries.iter().map(|entry| entry.bytes).sum();
        assert!(weights < info.weight_bytes, "the host holds tables only: {:?}", memory.entries);
        // State takes memory as it is written.
        if let Some(taken) = taken {
            let after = cards.card().taken();
            assert!(taken < after && after as u64 <= held, "{taken}, then {after} of {held}");
        }
        let plan = info.plan.as_ref().and_then(|plan| plan.device.clone()).expect("there is a plan");
        // What was planned was done; slots of recurrent state may take less.
        let planned = |what: &str| plan.uses.iter().find(|used| used.what == what).map(|used| used.bytes);
        let is_slots = |what: &str| what.contains("recurrent") || what == "kept prefixes";
        for entry in device.entries.iter().filter(|entry| !is_slots(&entry.what)) {
            assert_eq!(planned(&entry.what), Some(entry.bytes), "{entry:?} of {plan:?}");
        }
        assert!(held <= plan.used(), "{device:?} of {plan:?}");
    }
}

async fn answers(engine: &Engine, prompts: &[Vec<u32>; 3]) -> [Vec<u32>; 3] {
    let [first, second, third] = prompts.clone();
    let (first, second) = tokio::join!(answer(engine, first, 12), answer(engine, second, 12));
    [first.unwrap(), second.unwrap(), answer(engine, third, 12).await.unwrap()]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_is_too_small_is_left_to_itself_or_refused_with_numbers() {
    if is_real() {
        return;
    }
    let cards = Cards::of(200 * MIB);
    let engine = Engine::start(serving("qwen3-dense", &cards, BackendChoice::Auto)).unwrap();
    let info = engine.ready().await.unwrap();
    assert_eq!((info.backend, cards.times()), ("cpu", 0));
    assert!(info.plan.as_ref().is_some_and(|plan| plan.spilled && plan.device.is_none()));
    assert!(engine.memory().await.device.is_none());
    let engine = Engine::start(serving("qwen3-dense", &cards, BackendChoice::Cuda)).unwrap();
    let EngineError::Load(why) = engine.ready().await.unwrap_err() else { panic!("it is a refusal to load") };
    for part in ["device 0", "there are 200.0 MiB"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

/// How the model is there behind a loss: on another card, or on none.
async fn reloaded(engine: &Engine, loss: usize, cards: &Cards) -> Result<Arc<ModelInfo>, EngineError> {
    let begin = Instant::now();
    loop {
        match engine.ready().await {
            Ok(info) if info.backend == "cuda" && cards.times() == loss => {
                assert!(begin.elapsed() < Duration::from_secs(60), "it is not loaded again");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            decided => return decided,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_is_lost_is_opened_again_and_given_up_when_it_stays_lost() {
    if is_real() {
        return;
    }
    for (backend, ends_on) in [(BackendChoice::Auto, Some("cpu")), (BackendChoice::Cuda, None)] {
        let cards = Cards::of(1024 * MIB);
        let engine = Engine::start(serving("qwen3-dense", &cards, backend)).unwrap();
        engine.ready().await.unwrap();
        let expected = answer(&engine, prompt(3, 20), 8).await.unwrap();
        for loss in 1..=3 {
            cards.card().fail_after(20);
            let failed = tokio::join!(answer(&engine, prompt(4, 40), 50), answer(&engine, prompt(5, 40), 50));
            for why in [failed.0.unwrap_err(), failed.1.unwrap_err()] {
                assert!(why.contains("the device failed: it was told to"), "{why}");
            }
            let again = reloaded(&engine, loss, &cards).await;
            if loss < 3 {
                assert_eq!((again.unwrap().backend, cards.times()), ("cuda", loss + 1));
                assert_eq!(answer(&engine, prompt(3, 20), 8).await.unwrap(), expected);
                continue;
            }
            assert_eq!(again.as_ref().ok().map(|info| info.backend), ends_on);
            match again {
                Ok(_) => assert_eq!(answer(&engine, prompt(3, 20), 8).await.unwrap(), expected),
                Err(EngineError::Load(why)) => assert!(why.contains("3 times") && why.contains("told to"), "{why}"),
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_finds_no_memory_on_the_card_fails_alone() {
    if is_real() {
        return;
    }
    let cards = Cards::of(1024 * MIB);
    let mut config = serving("qwen3-dense", &cards, BackendChoice::Cuda);
    config.cache = CacheSize::Off;
    let engine = Engine::start(config).unwrap();
    engine.ready().await.unwrap();
    answer(&engine, prompt(8, 100), 4).await.unwrap();
    let expected = answer(&engine, prompt(6, 20), 4).await.unwrap();
    // Somebody else takes all that is left of the card.
    let card = cards.card();
    let left = usize::try_from(card.memory().unwrap().free).unwrap();
    let device: Arc<dyn bantam_cuda::Device> = Arc::clone(&card) as _;
    let other = Buffer::new(&device, left, "somebody else").unwrap();
    let why = answer(&engine, prompt(7, 200), 4).await.unwrap_err();
    assert!(why.starts_with("KV cache: the system gives no"), "{why}");
    assert_eq!(answer(&engine, prompt(6, 20), 4).await.unwrap(), expected, "the pages that are there are used");
    drop(other);
    assert_eq!(answer(&engine, prompt(7, 200), 4).await.unwrap().len(), 4);
    assert_eq!(cards.times(), 1);
}
