//! Compiles kernel files for the host.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

use bantam_cuda::{
    DeviceError,
    source::{HEADERS, SourceFile, Unit},
};
use sha2::{Digest, Sha256};

const HEADER: &str = include_str!("../cpp/emulation.h");
const RUNNER: &str = include_str!("../cpp/emulation.cpp");

/// Flags of the compiler. No product and sum are fused but by `fmaf`, as on the card.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O1",
    "-ftree-vrp",
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
    "-DEMULATED",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-x",
    "c++",
];

/// Fused products are one instruction where the machine has it.
const NATIVE: &[&str] = if cfg!(target_arch = "x86_64") { &["-mfma"] } else { &[] };

/// The library of a unit: compiled if none of the same sources lies there already.
pub(crate) fn library(unit: &Unit) -> Result<PathBuf, DeviceError> {
    let failed = |why: String| DeviceError::Compile { unit: unit.label(), why };
    let text = unit.text().ok_or_else(|| failed("there is no such file".into()))?;
    let source = whole(unit, text);
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut hash = Sha256::new();
    for part in [source.as_str(), HEADER, &compiler, &FLAGS.join(" "), &NATIVE.join(" ")] {
        hash.update(part);
        hash.update([0]);
    }
    let mut headers = Vec::new();
    include(text, &mut headers);
    for header in headers {
        hash.update(header.text);
    }
    let name = hash.finalize().iter().take(12).fold(String::new(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    });
    let dir = directory();
    let library = dir.join(format!("{name}.so"));
    if library.exists() {
        return Ok(library);
    }
    compile(&dir, &library, &source, &compiler).map_err(failed)?;
    Ok(library)
}

/// Adds the headers that a text includes, and those that these include.
fn include(text: &str, headers: &mut Vec<&'static SourceFile>) {
    let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.split('"').next());
    for name in names {
        if let Some(header) = HEADERS.iter().find(|header| header.name == name)
            && !headers.contains(&header)
        {
            headers.push(header);
            include(header.text, headers);
        }
    }
}

/// The kernel file, what runs it, and a function for each of its kernels.
fn whole(unit: &Unit, text: &str) -> String {
    let mut source = String::new();
    for (name, value) in &unit.defines {
        let _ = writeln!(source, "#define {name} {value}");
    }
    let _ = writeln!(source, "#line 1 \"{}\"\n{text}\n#line 1 \"emulation.cpp\"\n{RUNNER}", unit.file);
    for kernel in kernels(text) {
        let _ = writeln!(
            source,
            "extern \"C\" const char *emulated_{kernel}(uint3 g, unsigned t, size_t s, void **a, const size_t *z, size_t n) \
             {{ return emulated::start(&{kernel}, g, t, s, a, z, n); }}"
        );
    }
    source
}

/// Names behind `KERNEL` at the start of a line.
fn kernels(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.strip_prefix("KERNEL ")?;
        // Behind the launch bounds, if any.
        let rest = match rest.strip_prefix("__launch_bounds__") {
            Some(bounds) => bounds.split_once(") ").map(|(_, name)| name)?,
            None => rest,
        };
        rest.split('(').next().map(str::trim)
    })
}

fn compile(dir: &Path, library: &Path, source: &str, compiler: &str) -> Result<(), String> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let own = dir.join(format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    let failed = |e: std::io::Error| format!("{}: {e}", own.display());
    fs::create_dir_all(&own).map_err(failed)?;
    for header in HEADERS {
        fs::write(own.join(header.name), header.text).map_err(failed)?;
    }
    fs::write(own.join("emulation.h"), HEADER).map_err(failed)?;
    fs::write(own.join("unit.cpp"), source).map_err(failed)?;
    let out = own.join("unit.so");
    let run = Command::new(compiler)
        .args(FLAGS)
        .args(NATIVE)
        .arg("-I")
        .arg(&own)
        .arg(own.join("unit.cpp"))
        .arg("-o")
        .arg(&out)
        .output()
        .map_err(|e| format!("the C++ compiler `{compiler}` cannot be run: {e}; install one, or name it in CXX"))?;
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    if !run.status.success() || said.contains("warning:") {
        return Err(said);
    }
    fs::rename(&out, library).map_err(failed)?;
    fs::remove_dir_all(&own).map_err(failed)
}

/// Where compiled files lie: beside the tests that use them, so that a second run need not compile.
fn directory() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("emulated")));
    beside.unwrap_or_else(|| std::env::temp_dir().join("bantam-emulated"))
}
