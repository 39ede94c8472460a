//! Ops of plugins on an emulated card: by the CUDA source that they bring, and by their function on the host where it does not
//! compile or there is none.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "support/plugins.rs"]
mod plugins;
mod support;

use std::{
    fs, io,
    path::Path,
    process::Command,
    sync::{Arc, Mutex, Once},
};

use bantam_backend::Backend;
use bantam_cuda::CudaBackend;
use bantam_cuda_emulated::Emulated;
use bantam_plugins::{
    Families, FamiliesConfig, Plugins, PluginsConfig,
    worker::{Limits, WorkerProgram},
};
use bantam_runtime::{
    hardware::{Devices, Hardware},
    placement::Device,
    probe::{ProbeConfig, ProbeReport, run},
};
use plugins::{Source, WELL, custom, double_told, doubled, folder, table};
use serde_json::json;
use support::model;

/// The log of this process.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Warnings about what lies in a directory.
fn warnings(directory: &Path) -> Vec<String> {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    log.lines().filter(|line| line.contains(directory.to_str().unwrap())).map(str::to_owned).collect()
}

/// Bytes of memory of the card.
const MEMORY: usize = 1 << 30;

/// An emulated card.
struct Card;

impl Devices for Card {
    fn list(&self) -> Result<Vec<Device>, String> {
        Ok(vec![Device { name: "emulated".into(), capability: Some((8, 0)), ..Device::described(MEMORY as u64) }])
    }

    fn open(&self, _: usize) -> Result<Arc<dyn Backend>, String> {
        Ok(Arc::new(CudaBackend::on(Arc::new(Emulated::with_memory(MEMORY)))))
    }
}

/// Runs a model by the plugins in a directory, whose ops are allowed: on an emulated card, or on the processor.
fn probed(file: &str, directory: &Path, on_card: bool) -> Result<ProbeReport, String> {
    static START: Once = Once::new();
    START.call_once(|| tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false).init());
    let worker =
        WorkerProgram { program: env!("CARGO_BIN_EXE_bantam").into(), arguments: vec!["plugin-worker".into()] };
    let plugins = PluginsConfig { directories: vec![directory.into()], worker, limits: Limits::default() };
    let families = FamiliesConfig { choice: None, allow_ops: true };
    let mut config = ProbeConfig {
        families: Families::with_plugins(Arc::new(Plugins::new(plugins)), families),
        greedy: 2,
        checks: vec!["all".into()],
        ..ProbeConfig::new(file.into(), vec![5, 6, 7, 8, 9])
    };
    if on_card {
        config.hardware = Hardware::Devices(Arc::new(Card));
    }
    let report = tokio::runtime::Runtime::new().unwrap().block_on(run(config)).map_err(|e| e.to_string())?;
    assert!(report.checks.iter().all(|(_, check)| check.max_diff == 0.0), "{:?}", report.checks);
    Ok(report)
}

fn worst(a: &ProbeReport, b: &ProbeReport) -> f32 {
    assert_eq!(a.logits.len(), b.logits.len());
    a.logits.iter().zip(&b.logits).fold(0.0, |worst, (a, b)| worst.max((a - b).abs()))
}

/// Source that doubles.
const DOUBLES: &str = "__device__ void bantam_op(const BantamOpRows &call, unsigned long long row) {
    for (unsigned i = threadIdx.x; i < call.width; i += blockDim.x) {
        call.out[row * call.width + i] = 2.0f * call.x[0][row * call.widths[0] + i];
    }
}";

/// A plugin with the op `double`, which has this source and returns this on the host.
fn with_source(source: &str, code: i32) -> tempfile::TempDir {
    let (_, width) = table();
    let folder = folder();
    let functions = double_told(&json!({"bantam_plugin": 0, "width": width, "cuda": source}), code);
    let answer = doubled(&custom(width));
    Source { before_all: &functions, answer: &answer, ..WELL }.compile(folder.path(), "double");
    folder
}

#[test]
fn an_op_with_cuda_source_never_leaves_the_card() {
    // On the host it fails, so it was not called there.
    let folder = with_source(DOUBLES, 4);
    let file = model("llama-dense");
    let there = probed(&file, folder.path(), true).unwrap();
    assert!(probed(&file, folder.path(), false).is_err());
    let well = with_source(DOUBLES, 0);
    let here = probed(&file, well.path(), false).unwrap();
    assert!(worst(&there, &here) < 1e-4, "{}", worst(&there, &here));
    assert_eq!(there.greedy, here.greedy);
    assert!(!warnings(folder.path()).iter().any(|line| line.contains("CUDA")), "{:?}", warnings(folder.path()));
}

#[test]
fn broken_cuda_source_is_one_line_of_the_log_and_the_host_computes() {
    let file = model("llama-dense");
    let well = with_source(DOUBLES, 0);
    let expected = probed(&file, well.path(), true).unwrap();
    for source in ["no CUDA at all", "", "__device__ void bantam_op(int x) {}", "#include \"nothing.h\"", "#error stop"]
    {
        let folder = with_source(source, 0);
        let found = probed(&file, folder.path(), true).unwrap();
        assert!(worst(&found, &expected) < 1e-4, "{source}");
        let told = warnings(folder.path());
        let told: Vec<_> = told.iter().filter(|line| line.contains("CUDA source of op `double`")).collect();
        assert!(told.len() == 1 && told[0].contains("/double."), "{source}: {told:#?}");
    }
}

/// Builds the example and puts it into a directory of its own.
fn own_op() -> tempfile::TempDir {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--profile", "ci", "-p", "bantam-own-op"]);
    assert!(cargo.arg("--target-dir").arg(&target).status().unwrap().success());
    let name = format!("{}bantam_own_op{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let folder = folder();
    fs::copy(target.join("ci").join(&name), folder.path().join(&name)).unwrap();
    folder
}

#[test]
fn the_example_computes_the_same_on_the_card_and_on_the_host() {
    let folder = own_op();
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("own.gguf");
    support::renamed("llama-own-op", &file);
    let file = file.to_str().unwrap();
    let (there, here) = (probed(file, folder.path(), true).unwrap(), probed(file, folder.path(), false).unwrap());
    assert_eq!(there.greedy, here.greedy);
    assert!(worst(&there, &here) < 1e-3, "{}", worst(&there, &here));
    assert!(!warnings(folder.path()).iter().any(|line| line.contains("CUDA")), "{:?}", warnings(folder.path()));
}
