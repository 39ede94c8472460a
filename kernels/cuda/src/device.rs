//! What runs kernels: memory, copies, launches, all in order.

use std::{fmt, sync::Arc};

use crate::source::Unit;

/// Why a device could not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no memory for it.
    #[error("the device has no {bytes} bytes of memory left for {what}")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// What they were for.
        what: String,
    },
    /// A kernel file does not compile.
    #[error("kernel file {unit}: {why}")]
    Compile {
        /// The file and its macros.
        unit: String,
        /// What the compiler said.
        why: String,
    },
    /// A file has no such kernel.
    #[error("kernel file {unit} has no kernel `{kernel}`")]
    Missing {
        /// The file and its macros.
        unit: String,
        /// The kernel.
        kernel: String,
    },
    /// A launch, or something before it, failed.
    #[error("kernel `{kernel}` failed: {why}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// What the device said.
        why: String,
    },
    /// The device does not answer any more, or refused a copy.
    #[error("the device failed: {0}")]
    Lost(String),
}

/// An address in a device's memory.
pub type Address = u64;

/// A kernel that can be launched: its number on the device that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(pub usize);

/// How many threads run a kernel, and what they are given.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    arguments: Vec<u8>,
    sizes: Vec<usize>,
}

impl Launch {
    /// A launch without arguments.
    pub fn new(grid: [u32; 3], threads: u32) -> Self {
        Launch { grid, threads, ..Launch::default() }
    }

    /// Asks for dynamic shared memory.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    /// Adds an argument: a number, an address, or a struct that kernels declare alike.
    pub fn arg(mut self, argument: impl Argument) -> Self {
        let start = self.arguments.len();
        argument.write(&mut self.arguments);
        self.sizes.push(self.arguments.len() - start);
        self
    }

    /// The arguments' bytes, one after another, with the size of each.
    pub fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.arguments.as_slice();
        self.sizes.iter().map(move |size| {
            let (argument, behind) = rest.split_at(*size);
            rest = behind;
            argument
        })
    }
}

/// What kernels take, as its bytes on the device.
pub trait Argument {
    /// Appends the bytes.
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($ty:ty),*) => {
        $(impl Argument for $ty {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_ne_bytes());
            }
        })*
    };
}

numbers!(u32, i32, f32, u64);

impl<A: Argument> Argument for &A {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

impl Argument for Buffer {
    fn write(&self, out: &mut Vec<u8>) {
        self.address().write(out);
    }
}

/// A device. Everything it is told is done in the order in which it is told; only downloads and [`Device::synchronize`] wait.
pub trait Device: Send + Sync + fmt::Debug {
    /// What it is, for people.
    fn name(&self) -> String;

    /// Takes memory; the addresses are multiples of 256 bytes. What it holds is not said.
    ///
    /// # Errors
    /// If there is not so much left.
    fn alloc(&self, bytes: usize, what: &str) -> Result<Address, DeviceError>;

    /// Gives memory back that [`Device::alloc`] gave.
    fn free(&self, address: Address);

    /// Copies from the host.
    ///
    /// # Errors
    /// If the device failed.
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Copies to the host, after everything before it is done.
    ///
    /// # Errors
    /// If the device failed, with this or with something before.
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies within the device.
    ///
    /// # Errors
    /// If the device failed.
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), DeviceError>;

    /// Fills with a byte.
    ///
    /// # Errors
    /// If the device failed.
    fn fill(&self, to: Address, byte: u8, bytes: usize) -> Result<(), DeviceError>;

    /// A kernel of a compiled file; compiles it if need be.
    ///
    /// # Errors
    /// If it does not compile, or has no such kernel.
    fn kernel(&self, unit: &Unit, name: &str) -> Result<Kernel, DeviceError>;

    /// Launches a kernel. A grid without blocks is nothing to do.
    ///
    /// # Errors
    /// If the launch is refused. What goes wrong later is said by what waits.
    fn launch(&self, kernel: Kernel, launch: &Launch) -> Result<(), DeviceError>;

    /// Waits until everything is done.
    ///
    /// # Errors
    /// If something failed.
    fn synchronize(&self) -> Result<(), DeviceError>;
}

/// Memory on a device, given back when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    device: Arc<dyn Device>,
    address: Address,
    bytes: usize,
}

impl Buffer {
    /// Takes memory of at least one byte.
    ///
    /// # Errors
    /// If there is not so much left.
    pub fn new(device: &Arc<dyn Device>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        let address = device.alloc(bytes.max(1), what)?;
        Ok(Buffer { device: Arc::clone(device), address, bytes })
    }

    /// Memory with these bytes in it.
    ///
    /// # Errors
    /// As [`Buffer::new`], and if the device failed.
    pub fn of(device: &Arc<dyn Device>, bytes: &[u8], what: &str) -> Result<Self, DeviceError> {
        let buffer = Buffer::new(device, bytes.len(), what)?;
        device.upload(buffer.address, bytes)?;
        Ok(buffer)
    }

    /// Memory with these numbers in it.
    ///
    /// # Errors
    /// As [`Buffer::of`].
    pub fn of_f32(device: &Arc<dyn Device>, numbers: &[f32], what: &str) -> Result<Self, DeviceError> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
        Buffer::of(device, &bytes, what)
    }

    /// Memory with these integers in it.
    ///
    /// # Errors
    /// As [`Buffer::of`].
    pub fn of_u32(device: &Arc<dyn Device>, numbers: &[u32], what: &str) -> Result<Self, DeviceError> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
        Buffer::of(device, &bytes, what)
    }

    /// Where it lies.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it holds, when everything before is done.
    ///
    /// # Errors
    /// If the device failed.
    pub fn read(&self) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.bytes];
        self.device.download(self.address, &mut bytes)?;
        Ok(bytes)
    }

    /// As [`Buffer::read`], as numbers.
    ///
    /// # Errors
    /// If the device failed.
    pub fn read_f32(&self) -> Result<Vec<f32>, DeviceError> {
        let bytes = self.read()?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.free(self.address);
    }
}
