//! An NVIDIA card as a device, through the driver that is installed. Nothing of CUDA is needed to build this, nor to run
//! without a card: driver and compiler are looked for when a card is opened.

mod compiler;
mod reserved;

use std::{
    collections::HashMap,
    ffi::{CString, c_void},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cudarc::driver::{
    result::{self, DriverError},
    sys,
};

pub use compiler::{Arch, Compiled, Compiler, KernelCost, LOWEST};

use crate::{Device, DeviceError, Kernel, Launch, Memory, device::Address, source::Unit};
use reserved::Reservations;

/// What is known of a card before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardInfo {
    /// Its number.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub arch: Arch,
    /// Bytes of its memory.
    pub total_bytes: u64,
}

/// How a card is opened.
#[derive(Clone, Debug, Default)]
pub struct CardOptions {
    /// Its number.
    pub ordinal: usize,
    /// Where NVRTC lies, if the system's loader does not find it.
    pub nvrtc: Option<PathBuf>,
    /// Where compiled kernels are kept.
    pub cache: Option<PathBuf>,
}

/// The cards of this machine.
///
/// # Errors
/// If there is no driver, or it does not work.
pub fn cards() -> Result<Vec<CardInfo>, DeviceError> {
    whole(find_cards)
}

/// What `ask` says, where the libraries have all functions that it calls: a call of one that is missing panics, and leaves
/// nothing behind.
pub(crate) fn whole<T>(ask: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a function is missing".into());
        let what = "the NVIDIA driver, or NVRTC, in a version that has all that is needed".into();
        Err(DeviceError::Absent { what, why: format!("{why}; install a newer one") })
    })
}

#[allow(unsafe_code, reason = "asks the driver")]
fn find_cards() -> Result<Vec<CardInfo>, DeviceError> {
    let absent = |why: String| DeviceError::Absent { what: "the NVIDIA driver".into(), why };
    let failed = |e: DriverError| absent(format!("{e:?}"));
    // SAFETY: looks for the library and loads it.
    if !unsafe { sys::is_culib_present() } {
        return Err(absent("libcuda is not found; install NVIDIA's driver".into()));
    }
    result::init().map_err(failed)?;
    let count = result::device::get_count().map_err(failed)?;
    let card = |ordinal: i32| {
        let device = result::device::get(ordinal)?;
        let attribute = |attribute| {
            // SAFETY: the device exists.
            let value = unsafe { result::device::get_attribute(device, attribute) }?;
            Ok::<u32, DriverError>(u32::try_from(value).unwrap_or(0))
        };
        let arch = Arch {
            major: attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        };
        // SAFETY: the device exists.
        let total_bytes = unsafe { result::device::total_mem(device) }? as u64;
        let name = result::device::get_name(device)?;
        Ok(CardInfo { ordinal: usize::try_from(ordinal).unwrap_or(0), name, arch, total_bytes })
    };
    (0..count).map(|ordinal| card(ordinal).map_err(failed)).collect()
}

/// The memory of a card that nobody has opened.
///
/// # Errors
/// If there is no such card, or it does not answer.
pub fn memory_of(ordinal: usize) -> Result<Memory, DeviceError> {
    whole(|| ask_memory(ordinal))
}

#[allow(unsafe_code, reason = "speaks to the driver")]
fn ask_memory(ordinal: usize) -> Result<Memory, DeviceError> {
    let failed = |e: DriverError| DeviceError::Lost(format!("CUDA device {ordinal}: {e:?}"));
    result::init().map_err(failed)?;
    let device = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX)).map_err(failed)?;
    // SAFETY: the device exists, and its context is released behind the one question that is asked of it.
    unsafe {
        let context = result::primary_ctx::retain(device).map_err(failed)?;
        let memory = result::ctx::set_current(context).and_then(|()| result::mem_get_info());
        let released = result::primary_ctx::release(device);
        let (free, total) = memory.map_err(failed)?;
        released.map_err(failed)?;
        Ok(Memory { free: free as u64, total: total as u64 })
    }
}

/// A card.
#[derive(Debug)]
pub struct Card {
    info: CardInfo,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// Most dynamic shared memory of a block.
    shared: i32,
    compiler: Compiler,
    loaded: Mutex<Loaded>,
    /// Where the card can give addresses their memory later.
    reservations: Option<Mutex<Reservations>>,
}

#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<Unit, sys::CUmodule>,
    numbers: HashMap<(Unit, String), usize>,
    kernels: Vec<(String, sys::CUfunction)>,
}

// SAFETY: the driver's handles may be used from any thread, one at a time or several; each call makes the context current.
#[allow(unsafe_code, reason = "handles of the driver are not bound to threads")]
unsafe impl Send for Card {}
// SAFETY: as above; what this crate keeps beside them lies behind a lock.
#[allow(unsafe_code, reason = "handles of the driver are not bound to threads")]
unsafe impl Sync for Card {}

impl Card {
    /// Opens a card.
    ///
    /// # Errors
    /// If there is no such card, it is too old, or there is no NVRTC for it.
    pub fn open(options: &CardOptions) -> Result<Self, DeviceError> {
        whole(|| Self::open_whole(options))
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn open_whole(options: &CardOptions) -> Result<Self, DeviceError> {
        let cards = cards()?;
        let absent = |why: String| DeviceError::Absent { what: format!("CUDA device {}", options.ordinal), why };
        let info =
            cards.get(options.ordinal).ok_or_else(|| absent(format!("this machine has {}", cards.len())))?.clone();
        if info.arch < LOWEST {
            let Arch { major, minor } = info.arch;
            let least = format!("{}.{}", LOWEST.major, LOWEST.minor);
            return Err(absent(format!(
                "{} has compute capability {major}.{minor}, expected {least} or more",
                info.name
            )));
        }
        let compiler = Compiler::new(info.arch, options.nvrtc.as_deref(), options.cache.clone())?;
        let lost = |e: DriverError| DeviceError::Lost(format!("{}: {e:?}", info.name));
        let device = result::device::get(i32::try_from(options.ordinal).unwrap_or(0)).map_err(lost)?;
        // SAFETY: the device exists; the context is released when the card is dropped.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(lost)?;
        // SAFETY: the context was just retained.
        unsafe { result::ctx::set_current(context) }.map_err(lost)?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(lost)?;
        let most = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        // SAFETY: the device exists.
        let shared = unsafe { result::device::get_attribute(device, most) }.map_err(lost)?;
        let reservations = reserved::is_supported(device).then(Mutex::default);
        Ok(Card { info, device, context, stream, shared, compiler, loaded: Mutex::default(), reservations })
    }

    /// What it is.
    pub fn info(&self) -> &CardInfo {
        &self.info
    }

    /// Makes the context that of this thread.
    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context lives as long as the card.
        unsafe { result::ctx::set_current(self.context) }.map_err(|e| self.lost(e))
    }

    #[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
    fn lost(&self, error: DriverError) -> DeviceError {
        DeviceError::Lost(format!("{}: {error:?}", self.info.name))
    }

    fn short(&self, error: DriverError, bytes: usize, what: &str) -> DeviceError {
        match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::Memory { bytes, what: what.into() },
            _ => self.lost(error),
        }
    }

    fn reservations(&self) -> Option<MutexGuard<'_, Reservations>> {
        self.reservations.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads a module, and lets its kernels use all shared memory that the card has.
    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn function(&self, loaded: &mut Loaded, unit: &Unit, name: &str) -> Result<sys::CUfunction, DeviceError> {
        let failed = |why: String| DeviceError::Compile { unit: unit.label(), why };
        if !loaded.modules.contains_key(unit) {
            let image = self.compiler.compile(unit)?.image;
            // SAFETY: the image is what NVRTC made: machine code, or a text that ends with a zero.
            let module =
                unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(|e| failed(format!("{e:?}")))?;
            loaded.modules.insert(unit.clone(), module);
        }
        let missing = || DeviceError::Missing { unit: unit.label(), kernel: name.into() };
        let module = *loaded.modules.get(unit).ok_or_else(missing)?;
        let symbol = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the module is loaded, and stays so.
        let function = unsafe { result::module::get_function(module, symbol) }.map_err(|_| missing())?;
        let (fixed, most) = (
            sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        );
        // SAFETY: the function exists.
        unsafe {
            let fixed = result::function::get_function_attribute(function, fixed).map_err(|e| self.lost(e))?;
            result::function::set_function_attribute(function, most, self.shared - fixed).map_err(|e| self.lost(e))?;
        }
        Ok(function)
    }
}

impl Drop for Card {
    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        // SAFETY: nothing uses these any more.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            for module in self.loaded().modules.values() {
                let _ = result::module::unload(*module);
            }
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

impl Device for Card {
    fn name(&self) -> String {
        self.info.name.clone()
    }

    fn arch(&self) -> u32 {
        self.info.arch.number()
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn alloc(&self, bytes: usize, what: &str) -> Result<Address, DeviceError> {
        self.enter()?;
        // SAFETY: the memory is not read before it is written.
        unsafe { result::malloc_sync(bytes) }.map_err(|e| self.short(e, bytes, what))
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn free(&self, address: Address) {
        if self.enter().is_ok() {
            // What still uses it ends first: giving addresses back does not wait for that.
            if let Some(mut reservations) = self.reservations() {
                let _ = self.synchronize();
                if reservations.free(address) {
                    return;
                }
            }
            // SAFETY: the address came from `alloc`, and whoever had it has dropped it. This waits for what still uses it.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    fn number(&self) -> usize {
        self.info.ordinal
    }

    fn memory(&self) -> Result<Memory, DeviceError> {
        self.enter()?;
        let (free, total) = result::mem_get_info().map_err(|e| self.lost(e))?;
        Ok(Memory { free: free as u64, total: total as u64 })
    }

    /// Where the card cannot give memory later, it is there from the beginning.
    fn reserve(&self, bytes: usize, what: &str) -> Result<Address, DeviceError> {
        self.enter()?;
        match self.reservations() {
            Some(mut reservations) => reservations.reserve(self.device, bytes).map_err(|e| self.short(e, bytes, what)),
            None => self.alloc(bytes, what),
        }
    }

    fn back(&self, address: Address, bytes: usize, what: &str) -> Result<(), DeviceError> {
        self.enter()?;
        let Some(mut reservations) = self.reservations() else { return Ok(()) };
        reservations.back(self.device, address, bytes).map(drop).map_err(|e| self.short(e, bytes, what))
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the caller names memory of this card of at least so many bytes. Bytes that are not pinned have been taken
        // when the call returns.
        unsafe { result::memcpy_htod_async(to, bytes, self.stream) }.map_err(|e| self.lost(e))
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return self.synchronize();
        }
        self.enter()?;
        // SAFETY: as for uploads; the bytes are there after the wait.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.stream) }.map_err(|e| self.lost(e))?;
        self.synchronize()
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the caller names memory of this card of at least so many bytes.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }.map_err(|e| self.lost(e))
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn fill(&self, to: Address, byte: u8, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: as for copies.
        unsafe { result::memset_d8_async(to, byte, bytes, self.stream) }.map_err(|e| self.lost(e))
    }

    fn kernel(&self, unit: &Unit, name: &str) -> Result<Kernel, DeviceError> {
        self.enter()?;
        let mut loaded = self.loaded();
        let key = (unit.clone(), name.to_owned());
        if let Some(number) = loaded.numbers.get(&key) {
            return Ok(Kernel(*number));
        }
        let function = self.function(&mut loaded, unit, name)?;
        loaded.kernels.push((name.to_owned(), function));
        let number = loaded.kernels.len() - 1;
        loaded.numbers.insert(key, number);
        Ok(Kernel(number))
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn launch(&self, kernel: Kernel, launch: &Launch) -> Result<(), DeviceError> {
        self.enter()?;
        let loaded = self.loaded();
        let Some((name, function)) = loaded.kernels.get(kernel.0) else {
            return Err(DeviceError::Launch { kernel: format!("number {}", kernel.0), why: "there is none".into() });
        };
        let failed = |why: String| DeviceError::Launch { kernel: name.clone(), why };
        let arguments = launch.arguments().ok_or_else(|| failed("too many arguments".into()))?;
        let mut pointers = [std::ptr::null_mut::<c_void>(); 32];
        let count = arguments.len();
        for (pointer, (word, _)) in pointers.iter_mut().zip(arguments) {
            *pointer = std::ptr::from_ref(word).cast_mut().cast();
        }
        let [x, y, z] = launch.grid;
        // SAFETY: the arguments are copied before the call returns; what the kernel does with addresses is what tests on the
        // emulated device show to be right.
        unsafe {
            result::launch_kernel(
                *function,
                (x, y, z),
                (launch.threads, 1, 1),
                launch.shared,
                self.stream,
                &mut pointers[..count],
            )
        }
        .map_err(|e| failed(format!("{e:?}")))
    }

    #[allow(unsafe_code, reason = "speaks to the driver")]
    fn synchronize(&self) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the stream exists.
        unsafe { result::stream::synchronize(self.stream) }.map_err(|e| self.lost(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_function_is_an_error() {
        let asked = whole(|| -> Result<(), DeviceError> { std::panic::panic_any("Missing symbol cuX".to_owned()) });
        assert!(asked.unwrap_err().to_string().contains("Missing symbol cuX; install a newer one"));
    }
}
