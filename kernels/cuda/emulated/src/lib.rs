//! The host as a device, for tests: kernel files are compiled by a C++ compiler under a small header that stands for CUDA's
//! language, and run thread by thread.
//!
//! It shows what a kernel computes, that it stays within its memory (a page that cannot be touched stands behind each
//! buffer, and memory that was never written holds NaNs), and that all threads of a block reach its barriers. It says nothing
//! about speed, nor about threads that run at the same time.

mod build;
mod memory;
mod under_test;

use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_void},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bantam_cuda::{Device, DeviceError, Kernel, Launch, Memory, device::Address, source::Unit};

use memory::{Guarded, Reserved};
pub use under_test::{CARD, under_test};

/// `grid, threads, shared, arguments, sizes, count` to an error message, or null.
type Start = unsafe extern "C" fn(Grid, u32, usize, *mut *mut c_void, *const usize, usize) -> *const c_char;

#[repr(C)]
#[derive(Clone, Copy)]
struct Grid {
    x: u32,
    y: u32,
    z: u32,
}

#[derive(Debug)]
struct Loaded {
    name: String,
    start: Start,
}

#[derive(Debug, Default)]
struct State {
    buffers: HashMap<Address, Guarded>,
    reserved: HashMap<Address, Reserved>,
    units: HashMap<Unit, libloading::Library>,
    kernels: Vec<Loaded>,
    numbers: HashMap<(Unit, String), usize>,
    taken: usize,
    launches: u64,
    /// Launches that still succeed; none: all do.
    left: Option<u64>,
}

/// The host as a device.
#[derive(Debug)]
pub struct Emulated {
    state: Mutex<State>,
    memory: usize,
    arch: u32,
}

impl Default for Emulated {
    fn default() -> Self {
        Self::new()
    }
}

impl Emulated {
    /// A card with tensor cores, without a bound on its memory.
    pub fn new() -> Self {
        Self::of_kind(80)
    }

    /// A card of this compute capability, times ten.
    pub fn of_kind(arch: u32) -> Self {
        Emulated { state: Mutex::default(), memory: usize::MAX, arch }
    }

    /// A device of so many bytes of memory.
    pub fn with_memory(bytes: usize) -> Self {
        Emulated { memory: bytes, ..Self::new() }
    }

    /// Lets all launches fail behind the next so many, as a card that was lost does.
    pub fn fail_after(&self, launches: u64) {
        self.state().left = Some(launches);
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> usize {
        self.state().taken
    }

    /// Launches until now.
    pub fn launches(&self) -> u64 {
        self.state().launches
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Host memory that a device's address stands for.
fn pointer(address: Address) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

impl Device for Emulated {
    fn name(&self) -> String {
        "the host, emulating a card".into()
    }

    fn arch(&self) -> u32 {
        self.arch
    }

    fn alloc(&self, bytes: usize, what: &str) -> Result<Address, DeviceError> {
        let none = || DeviceError::Memory { bytes, what: what.into() };
        let mut state = self.state();
        if bytes > self.memory - state.taken.min(self.memory) {
            return Err(none());
        }
        let buffer = Guarded::new(bytes).ok_or_else(none)?;
        let address = buffer.address();
        state.taken += bytes;
        state.buffers.insert(address, buffer);
        Ok(address)
    }

    fn free(&self, address: Address) {
        let mut state = self.state();
        if let Some(buffer) = state.buffers.remove(&address) {
            state.taken -= buffer.bytes();
        }
        if let Some(reserved) = state.reserved.remove(&address) {
            state.taken -= reserved.backed();
        }
    }

    fn number(&self) -> usize {
        0
    }

    fn memory(&self) -> Result<Memory, DeviceError> {
        let taken = self.state().taken;
        Ok(Memory { free: self.memory.saturating_sub(taken) as u64, total: self.memory as u64 })
    }

    fn reserve(&self, bytes: usize, what: &str) -> Result<Address, DeviceError> {
        let none = || DeviceError::Memory { bytes, what: what.into() };
        let reserved = Reserved::new(bytes).ok_or_else(none)?;
        let address = reserved.address();
        self.state().reserved.insert(address, reserved);
        Ok(address)
    }

    fn back(&self, address: Address, bytes: usize, what: &str) -> Result<(), DeviceError> {
        let none = || DeviceError::Memory { bytes, what: what.into() };
        let mut state = self.state();
        let left = self.memory - state.taken.min(self.memory);
        let reserved = state.reserved.get_mut(&address).ok_or_else(none)?;
        let more = reserved.missing(bytes).filter(|more| *more <= left).ok_or_else(none)?;
        if !reserved.back(more) {
            return Err(none());
        }
        state.taken += more;
        Ok(())
    }

    #[allow(unsafe_code, reason = "addresses are pointers here")]
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller names memory of this device of at least so many bytes; a guard page catches what it does not.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(to), bytes.len()) };
        Ok(())
    }

    #[allow(unsafe_code, reason = "addresses are pointers here")]
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: as for uploads.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    #[allow(unsafe_code, reason = "addresses are pointers here")]
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as for uploads; the two may overlap.
        unsafe { std::ptr::copy(pointer(from), pointer(to), bytes) };
        Ok(())
    }

    #[allow(unsafe_code, reason = "addresses are pointers here")]
    fn fill(&self, to: Address, byte: u8, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as for uploads.
        unsafe { std::ptr::write_bytes(pointer(to), byte, bytes) };
        Ok(())
    }

    #[allow(unsafe_code, reason = "loads the library that was just compiled, and calls what it registers")]
    fn kernel(&self, unit: &Unit, name: &str) -> Result<Kernel, DeviceError> {
        let mut state = self.state();
        let key = (unit.clone(), name.to_owned());
        if let Some(number) = state.numbers.get(&key) {
            return Ok(Kernel(*number));
        }
        if !state.units.contains_key(unit) {
            let path = build::library(unit)?;
            // SAFETY: the library was compiled from our own sources and has no initialisers that matter.
            let library = unsafe { libloading::Library::new(&path) }
                .map_err(|e| DeviceError::Compile { unit: unit.label(), why: e.to_string() })?;
            state.units.insert(unit.clone(), library);
        }
        let missing = || DeviceError::Missing { unit: unit.label(), kernel: name.into() };
        let library = state.units.get(unit).ok_or_else(missing)?;
        // SAFETY: `emulated_NAME` is a function of this type by construction (build.rs writes it).
        let start = unsafe { library.get::<Start>(format!("emulated_{name}\0").as_bytes()) }.map_err(|_| missing())?;
        let start = *start;
        state.kernels.push(Loaded { name: name.into(), start });
        let number = state.kernels.len() - 1;
        state.numbers.insert(key, number);
        Ok(Kernel(number))
    }

    #[allow(unsafe_code, reason = "calls a compiled kernel")]
    fn launch(&self, kernel: Kernel, launch: &Launch) -> Result<(), DeviceError> {
        let [x, y, z] = launch.grid;
        let (name, start) = {
            let mut state = self.state();
            state.launches += 1;
            if let Some(left) = &mut state.left {
                *left = left.checked_sub(1).ok_or_else(|| DeviceError::Lost("it was told to".into()))?;
            }
            match state.kernels.get(kernel.0) {
                Some(loaded) => (loaded.name.clone(), loaded.start),
                None => return Err(DeviceError::Launch { kernel: format!("{kernel:?}"), why: "unknown".into() }),
            }
        };
        let failed = |why: String| DeviceError::Launch { kernel: name.clone(), why };
        let arguments = launch.arguments().ok_or_else(|| failed("too many arguments".into()))?;
        let (mut pointers, sizes): (Vec<*mut c_void>, Vec<usize>) =
            arguments.map(|(word, bytes)| (std::ptr::from_ref(word).cast_mut().cast(), bytes)).unzip();
        // SAFETY: the function checks number and sizes of arguments against the kernel's; what the kernel does with
        // addresses is what is being tested.
        let error = unsafe {
            start(
                Grid { x, y, z },
                launch.threads,
                launch.shared as usize,
                pointers.as_mut_ptr(),
                sizes.as_ptr(),
                sizes.len(),
            )
        };
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: errors are texts that end with a zero, valid until this thread's next launch.
        let why = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
        Err(failed(why))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
