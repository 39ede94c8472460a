//! Kernel files to machine code, by NVRTC; what was compiled once is kept on disk.
//!
//! NVRTC needs no card: so the same code that compiles for the card at hand compiles for all kinds of cards in tests.

use std::{
    ffi::{CStr, CString, c_char},
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use cudarc::nvrtc::{result, sys};
use sha2::{Digest, Sha256};

use crate::{
    DeviceError,
    source::{HEADERS, Unit},
};

/// Kinds of cards that are supported: the first that multiplies bytes, and all after it.
pub const LOWEST: Arch = Arch { major: 6, minor: 1 };

/// Options for all files: a product and a sum are one operation only where the source says so, lines of the source are
/// known to profilers, and the log says what each kernel takes.
const OPTIONS: &[&str] = &[
    "--std=c++17",
    "--fmad=false",
    "--generate-line-info",
    "--extra-device-vectorization",
    "--ptxas-options=--verbose",
];

/// The kind of a card: its compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl Arch {
    /// As NVRTC counts: 90 for 9.0.
    pub fn number(self) -> u32 {
        self.major * 10 + self.minor
    }

    /// What NVRTC counts as `number`.
    pub fn from_number(number: u32) -> Self {
        Arch { major: number / 10, minor: number % 10 }
    }
}

/// What came out for a unit.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Machine code, or PTX where NVRTC does not know the card.
    pub image: Vec<u8>,
    /// What the compiler said: warnings, and what each kernel takes.
    pub log: String,
}

/// Compiles for one kind of card.
#[derive(Debug)]
pub struct Compiler {
    arch: Arch,
    /// NVRTC's version.
    version: (i32, i32),
    /// The option that names the target, and whether it gives machine code.
    target: String,
    machine_code: bool,
    cache: Option<PathBuf>,
}

/// NVRTC, loaded by path, so that its name is known when it is asked for by name. It stays loaded.
static LIBRARY: OnceLock<Option<libloading::Library>> = OnceLock::new();

/// What a kernel takes of a card, for each thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCost {
    /// The kernel.
    pub name: String,
    /// Registers.
    pub registers: u32,
    /// Bytes of registers that are kept in memory for want of room.
    pub spilled: u32,
}

impl Compiled {
    /// What the log says of each kernel; nothing if the code was kept from before, or is PTX.
    pub fn costs(&self) -> Vec<KernelCost> {
        let mut costs: Vec<KernelCost> = Vec::new();
        let number_before = |line: &str, what: &str| {
            let number = line.split(what).next()?.split_whitespace().next_back()?;
            number.parse::<u32>().ok()
        };
        for line in self.log.lines() {
            if let Some((_, rest)) = line.split_once("Compiling entry function '") {
                let name = rest.split('\'').next().unwrap_or_default().to_owned();
                costs.push(KernelCost { name, ..KernelCost::default() });
            }
            let Some(cost) = costs.last_mut() else { continue };
            if line.contains(" registers") {
                cost.registers = number_before(line, " registers").unwrap_or(0);
            }
            if line.contains(" bytes spill stores") {
                cost.spilled = number_before(line, " bytes spill stores").unwrap_or(0);
            }
        }
        costs
    }
}

impl Compiler {
    /// With the NVRTC at `library`, or the one that the system's loader finds. Compiled files are kept in `cache`.
    ///
    /// # Errors
    /// If there is none, or none for such a card.
    #[allow(unsafe_code, reason = "loads NVRTC and asks it for its version")]
    pub fn new(arch: Arch, library: Option<&Path>, cache: Option<PathBuf>) -> Result<Self, DeviceError> {
        let absent = |why: String| DeviceError::Absent { what: "NVRTC, which compiles CUDA kernels".into(), why };
        if let Some(path) = library {
            // SAFETY: NVIDIA's library has no initialisers that could harm.
            let loaded = LIBRARY.get_or_init(|| unsafe { libloading::Library::new(path) }.ok());
            if loaded.is_none() {
                return Err(absent(format!("{} cannot be loaded", path.display())));
            }
        }
        // SAFETY: looks for the library and loads it.
        if !unsafe { sys::is_culib_present() } {
            return Err(absent(
                "not found; install it with `pip install nvidia-cuda-nvrtc`, or the CUDA toolkit".into(),
            ));
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two numbers.
        unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }.result().map_err(|e| absent(format!("{e:?}")))?;
        let known = known_archs().map_err(absent)?;
        let (target, machine_code) = target(arch, &known).ok_or_else(|| {
            absent(format!(
                "version {major}.{minor} knows cards from compute capability {} on, this one has {}.{}; install an older one",
                known.first().map_or_else(|| "?".into(), |n| format!("{}.{}", n / 10, n % 10)),
                arch.major,
                arch.minor
            ))
        })?;
        Ok(Compiler { arch, version: (major, minor), target, machine_code, cache })
    }

    /// The kind of card.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// NVRTC's version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles a unit, or takes what was compiled of the same sources before.
    ///
    /// # Errors
    /// What the compiler says to it.
    pub fn compile(&self, unit: &Unit) -> Result<Compiled, DeviceError> {
        let kept = self.cache.as_ref().map(|dir| dir.join(self.file_name(unit)));
        if let Some(image) = kept.as_ref().and_then(|path| fs::read(path).ok()).filter(|image| !image.is_empty()) {
            return Ok(Compiled { image, log: String::new() });
        }
        let compiled = self.compile_anew(unit)?;
        if let Some(path) = kept {
            // A cache that cannot be written costs time at the next start, nothing else.
            if let Err(e) = keep(&path, &compiled.image) {
                tracing::debug!("{}: {e}", path.display());
            }
        }
        Ok(compiled)
    }

    fn options(&self, unit: &Unit) -> Vec<String> {
        let mut options: Vec<String> = OPTIONS.iter().map(|option| (*option).to_owned()).collect();
        options.push(self.target.clone());
        options.extend(unit.defines.iter().map(|(name, value)| format!("--define-macro={name}={value}")));
        options
    }

    /// A name that says everything that the machine code depends on.
    fn file_name(&self, unit: &Unit) -> String {
        let mut hash = Sha256::new();
        let (major, minor) = self.version;
        hash.update(format!("{major}.{minor}\0{}\0", self.options(unit).join("\0")));
        hash.update(unit.text().unwrap_or_default());
        for header in HEADERS {
            hash.update(format!("\0{}\0{}", header.name, header.text));
        }
        let digest = hash.finalize();
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{hex}.{}", unit.file.trim_end_matches(".cu"), if self.machine_code { "cubin" } else { "ptx" })
    }

    #[allow(unsafe_code, reason = "speaks to NVRTC")]
    fn compile_anew(&self, unit: &Unit) -> Result<Compiled, DeviceError> {
        let failed = |why: String| DeviceError::Compile { unit: unit.label(), why };
        let c_string = |text: &str| CString::new(text).map_err(|e| failed(e.to_string()));
        let source = c_string(unit.text().ok_or_else(|| failed("there is no such file".into()))?)?;
        let name = c_string(unit.file)?;
        let texts = HEADERS.iter().map(|h| c_string(h.text)).collect::<Result<Vec<_>, _>>()?;
        let names = HEADERS.iter().map(|h| c_string(h.name)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).collect::<Vec<*const c_char>>();
        let (texts_at, names_at) = (pointers(&texts), pointers(&names));
        let mut program = std::ptr::null_mut();
        // SAFETY: all texts end with a zero and live until the program is destroyed.
        unsafe {
            sys::nvrtcCreateProgram(
                &raw mut program,
                source.as_ptr(),
                name.as_ptr(),
                i32::try_from(HEADERS.len()).unwrap_or(0),
                texts_at.as_ptr(),
                names_at.as_ptr(),
            )
        }
        .result()
        .map_err(|e| failed(format!("{e:?}")))?;
        // SAFETY: the program was just made, and is not used after this.
        let compiled = unsafe { self.run(program, unit) };
        // SAFETY: as above.
        let _ = unsafe { result::destroy_program(program) };
        compiled.map_err(failed)
    }

    /// # Safety
    /// The program exists.
    #[allow(unsafe_code, reason = "speaks to NVRTC")]
    unsafe fn run(&self, program: sys::nvrtcProgram, unit: &Unit) -> Result<Compiled, String> {
        let said = |e: result::NvrtcError| format!("{e:?}");
        // SAFETY: the program exists, for all of what follows.
        unsafe {
            let done = result::compile_program(program, &self.options(unit));
            let log = result::get_program_log(program).map_err(said)?;
            let log =
                CStr::from_bytes_until_nul(&bytes(&log)).map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
            // That a kind of card will not be known to later versions is no fault of the file.
            let log: Vec<&str> = log.lines().filter(|line| !line.contains("Architectures prior to")).collect();
            let log = log.join("\n");
            if done.is_err() {
                return Err(log);
            }
            if !self.machine_code {
                return Ok(Compiled { image: bytes(&result::get_ptx(program).map_err(said)?), log });
            }
            let mut size = 0;
            sys::nvrtcGetCUBINSize(program, &raw mut size).result().map_err(said)?;
            let mut image = vec![0_u8; size];
            sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result().map_err(said)?;
            Ok(Compiled { image, log })
        }
    }
}

fn bytes(characters: &[c_char]) -> Vec<u8> {
    characters.iter().map(|c| c.to_ne_bytes()[0]).collect()
}

/// The kinds of cards that the loaded NVRTC knows, rising.
#[allow(unsafe_code, reason = "asks NVRTC")]
fn known_archs() -> Result<Vec<u32>, String> {
    let mut count = 0;
    // SAFETY: writes a number.
    unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }.result().map_err(|e| format!("{e:?}"))?;
    let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many numbers as it said.
    unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result().map_err(|e| format!("{e:?}"))?;
    let mut known: Vec<u32> = known.into_iter().filter_map(|n| u32::try_from(n).ok()).collect();
    known.sort_unstable();
    Ok(known)
}

/// Machine code for the card where NVRTC knows it; else PTX for the newest that it knows before it, which the driver
/// translates. Cards from 9.0 on have instructions that only code for just that card may use.
fn target(arch: Arch, known: &[u32]) -> Option<(String, bool)> {
    let number = arch.number();
    if known.contains(&number) {
        let suffix = if number >= 90 { "a" } else { "" };
        return Some((format!("--gpu-architecture=sm_{number}{suffix}"), true));
    }
    let nearest = known.iter().rev().find(|n| **n <= number)?;
    Some((format!("--gpu-architecture=compute_{nearest}"), false))
}

/// Writes a file that is whole or not there.
fn keep(path: &Path, image: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let partial =
        dir.join(format!(".{}-{}", std::process::id(), path.file_name().unwrap_or_default().to_string_lossy()));
    fs::write(&partial, image)?;
    fs::rename(&partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_from_the_log() {
        let log = "ptxas info    : 16 bytes gmem\n\
            ptxas info    : Compiling entry function 'glu' for 'sm_75'\n\
            ptxas info    : Function properties for glu\n\
            ptxas         .     8 bytes stack frame, 24 bytes spill stores, 4 bytes spill loads\n\
            ptxas info    : Used 17 registers, used 0 barriers, 404 bytes cmem[0]\n\
            ptxas info    : Compiling entry function 'add' for 'sm_75'\n\
            ptxas info    : Used 8 registers, used 0 barriers";
        let costs = Compiled { image: Vec::new(), log: log.into() }.costs();
        let cost = |name: &str, registers, spilled| KernelCost { name: name.into(), registers, spilled };
        assert_eq!(costs, [cost("glu", 17, 24), cost("add", 8, 0)]);
    }

    #[test]
    fn targets() {
        let known = [75, 80, 86, 89, 90, 100, 120];
        let of = |number| target(Arch::from_number(number), &known);
        assert_eq!(of(86), Some(("--gpu-architecture=sm_86".into(), true)));
        assert_eq!(of(90), Some(("--gpu-architecture=sm_90a".into(), true)));
        assert_eq!(of(87), Some(("--gpu-architecture=compute_86".into(), false)));
        assert_eq!(of(130), Some(("--gpu-architecture=compute_120".into(), false)));
        assert_eq!(of(61), None);
    }
}
