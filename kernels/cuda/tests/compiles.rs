//! Every kernel file compiles without a warning for every kind of card that the NVRTC at `BANTAM_NVRTC` knows, and what each
//! kernel takes is shown. Without that variable only an NVRTC that the system's loader finds is used, if there is one.

use std::path::PathBuf;

use bantam_cuda::{
    DeviceError,
    card::{Arch, Compiler, KernelCost},
    source::units,
};

/// Kinds of cards; `BANTAM_NVRTC_ARCHS` narrows them (`75,90`).
const ARCHS: &[u32] = &[61, 70, 75, 80, 86, 89, 90, 100, 120];

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
        for unit in units(arch) {
            let found = compiler.compile(&unit).unwrap_or_else(|e| panic!("sm_{arch}: {e}"));
            assert!(!found.log.contains("warning"), "sm_{arch}, {}: {}", unit.label(), found.log);
            assert!(!found.image.is_empty());
            println!("sm_{arch} by NVRTC {major}.{minor}: {}, {} bytes", unit.label(), found.image.len());
            for KernelCost { name, registers, spilled } in found.costs() {
                println!("    {name}: {registers} registers, {spilled} bytes spilled");
            }
            compiled += 1;
        }
    }
    assert!(library.is_none() || compiled > 0, "the NVRTC at BANTAM_NVRTC compiled nothing");
}
