//! Every kernel file compiles without a warning for every kind of card that the NVRTC at `BANTAM_NVRTC` knows, and what each
//! kernel takes is shown. Without that variable only an NVRTC that the system's loader finds is used, if there is one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use bantam_cuda::{
    DeviceError,
    card::{Arch, Compiler, KernelCost},
    source::{Unit, units},
};

/// Kinds of cards; `BANTAM_NVRTC_ARCHS` narrows them (`75,90`).
const ARCHS: &[u32] = &[61, 70, 75, 80, 86, 89, 90, 100, 120];

/// Compiles a unit, and shows what its kernels take.
fn compile(compiler: &Compiler, unit: &Unit, arch: u32) {
    let found = compiler.compile(unit).unwrap_or_else(|e| panic!("sm_{arch}: {e}"));
    assert!(!found.log.contains("warning"), "sm_{arch}, {}: {}", unit.label(), found.log);
    assert!(!found.image.is_empty());
    let costs = found.costs().into_iter().map(|KernelCost { name, registers, spilled }| {
        let spilled = if spilled > 0 { format!(", {spilled} bytes spilled") } else { String::new() };
        format!("{name} {registers} registers{spilled}")
    });
    let costs: Vec<String> = costs.collect();
    println!("    {}, {} bytes: {}", unit.label(), found.image.len(), costs.join("; "));
}

#[test]
fn kernel_files_compile_without_warnings() {
    let library = std::env::var_os("BANTAM_NVRTC").map(PathBuf::from);
    let asked = std::env::var("BANTAM_NVRTC_ARCHS").ok();
    let archs: Vec<u32> = match &asked {
        Some(list) => list.split(',').map(|n| n.trim().parse().expect("numbers such as 75,90")).collect(),
        None => ARCHS.to_vec(),
    };
    let mut compiled = 0;
    for arch in archs {
        let compiler = match Compiler::new(Arch::from_number(arch), library.as_deref(), None) {
            Ok(compiler) => compiler,
            Err(DeviceError::Absent { why, .. }) if asked.is_none() => {
                println!("sm_{arch}: not compiled: {why}");
                continue;
            }
            Err(e) => panic!("sm_{arch}: {e}"),
        };
        let (major, minor) = compiler.version();
        println!("sm_{arch} by NVRTC {major}.{minor}");
        let (units, next) = (units(arch), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                        compile(&compiler, unit, arch);
                    }
                });
            }
        });
        compiled += units.len();
    }
    assert!(library.is_none() || compiled > 0, "the NVRTC at BANTAM_NVRTC compiled nothing");
}
