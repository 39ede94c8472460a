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
    /// There is no such device, or something that it needs is not installed.
    #[error("{what}: {why}")]
    Absent {
        /// What is missing.
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// The device does not answer any more, or refused a copy.
    #[error("the device failed: {0}")]
    Lost(String),
}

impl DeviceError {
    /// The error with the node of a graph at which it came.
    #[must_use]
    pub fn at(self, node: &str) -> Self {
        match self {
            DeviceError::Launch { kernel, why } => {
                DeviceError::Launch { kernel, why: format!("{why}, at node `{node}`") }
            }
            other => other,
        }
    }
}

/// An address in a device's memory.
pub type Address = u64;

/// A kernel that can be launched: its number on the device that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(pub usize);

/// Most arguments of a launch, and most 8-byte words that they take together: far more than any kernel has.
const MAX_ARGUMENTS: usize = 32;
const MAX_WORDS: usize = 128;

/// How many threads run a kernel, and what they are given. It lies on the stack: a launch allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// The arguments, each from a word on.
    words: [u64; MAX_WORDS],
    /// First word and bytes of each.
    arguments: [(u16, u16); MAX_ARGUMENTS],
    count: usize,
    used: usize,
}

impl Launch {
    /// A launch without arguments.
    pub fn new(grid: [u32; 3], threads: u32) -> Self {
        Launch {
            grid,
            threads,
            shared: 0,
            words: [0; MAX_WORDS],
            arguments: [(0, 0); MAX_ARGUMENTS],
            count: 0,
            used: 0,
        }
    }

    /// Asks for dynamic shared memory.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    /// Adds an argument: a number, an address, or a struct that kernels declare alike. What there is no room for is left out,
    /// and the launch refused by the device for its number of arguments.
    #[allow(clippy::needless_pass_by_value, reason = "arguments are numbers, addresses and small structs")]
    pub fn arg(mut self, argument: impl Argument) -> Self {
        let mut writer = Writer { words: &mut self.words[self.used..], bytes: 0 };
        argument.write(&mut writer);
        let bytes = writer.bytes;
        if let Some(place) = self.arguments.get_mut(self.count).filter(|_| bytes <= (MAX_WORDS - self.used) * 8) {
            *place = (self.used as u16, bytes as u16);
            self.used += bytes.div_ceil(8);
        }
        self.count += 1;
        self
    }

    /// The arguments: where each lies, and its bytes. `None` if there were too many.
    pub fn arguments(&self) -> Option<impl ExactSizeIterator<Item = (&u64, usize)>> {
        let places = self.arguments.get(..self.count)?;
        Some(
            places
                .iter()
                .map(|(word, bytes)| (&self.words[usize::from(*word).min(MAX_WORDS - 1)], usize::from(*bytes))),
        )
    }
}

/// Takes an argument's bytes.
#[derive(Debug)]
pub struct Writer<'a> {
    words: &'a mut [u64],
    bytes: usize,
}

impl Writer<'_> {
    /// Adds bytes, without padding.
    pub fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(word) = self.words.get_mut(self.bytes / 8) {
                let mut whole = word.to_ne_bytes();
                whole[self.bytes % 8] = *byte;
                *word = u64::from_ne_bytes(whole);
            }
            self.bytes += 1;
        }
    }

    /// Leaves room up to a multiple of `align` bytes.
    pub fn pad(&mut self, align: usize) {
        self.bytes = self.bytes.next_multiple_of(align);
    }
}

/// What kernels take, as its bytes on the device.
pub trait Argument {
    /// The multiple of bytes at which it stands in a struct.
    const ALIGN: usize = 8;

    /// Writes the bytes, with the padding that C gives them.
    fn write(&self, out: &mut Writer<'_>);
}

macro_rules! numbers {
    ($($ty:ty),*) => {
        $(impl Argument for $ty {
            const ALIGN: usize = size_of::<$ty>();

            fn write(&self, out: &mut Writer<'_>) {
                out.put(&self.to_ne_bytes());
            }
        })*
    };
}

numbers!(u32, i32, f32, u64);

impl<A: Argument> Argument for &A {
    const ALIGN: usize = A::ALIGN;

    fn write(&self, out: &mut Writer<'_>) {
        (**self).write(out);
    }
}

impl Argument for Buffer {
    const ALIGN: usize = size_of::<Address>();

    fn write(&self, out: &mut Writer<'_>) {
        self.address().write(out);
    }
}

/// Declares structs that kernels declare alike, field by field.
macro_rules! argument {
    ($($(#[$about:meta])* pub struct $name:ident {
        $($(#[$of_field:meta])* pub $field:ident: $ty:ty,)*
    })*) => {
        $($(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $ty,)*
        }

        impl $crate::device::Argument for $name {
            const ALIGN: usize = {
                let mut align = 1;
                $(if <$ty as $crate::device::Argument>::ALIGN > align {
                    align = <$ty as $crate::device::Argument>::ALIGN;
                })*
                align
            };

            fn write(&self, out: &mut $crate::device::Writer<'_>) {
                $(out.pad(<$ty as $crate::device::Argument>::ALIGN);
                self.$field.write(out);)*
                out.pad(Self::ALIGN);
            }
        })*
    };
}

pub(crate) use argument;

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// That can be taken now.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// A device. Everything it is told is done in the order in which it is told; only downloads and [`Device::synchronize`] wait.
pub trait Device: Send + Sync + fmt::Debug {
    /// What it is, for people.
    fn name(&self) -> String;

    /// Its compute capability, times ten: 75, 90.
    fn arch(&self) -> u32;

    /// Takes memory; the addresses are multiples of 256 bytes. What it holds is not said.
    ///
    /// # Errors
    /// If there is not so much left.
    fn alloc(&self, bytes: usize, what: &str) -> Result<Address, DeviceError>;

    /// Gives memory back that [`Device::alloc`] or [`Device::reserve`] gave.
    fn free(&self, address: Address);

    /// Its number among the machine's devices.
    fn number(&self) -> usize;

    /// Its memory.
    ///
    /// # Errors
    /// If the device failed.
    fn memory(&self) -> Result<Memory, DeviceError>;

    /// Takes addresses for so many bytes, a multiple of 256, without memory behind them.
    ///
    /// # Errors
    /// If there are not so many addresses.
    fn reserve(&self, bytes: usize, what: &str) -> Result<Address, DeviceError>;

    /// Sees to it that there is memory behind the first `bytes` bytes of addresses that [`Device::reserve`] gave. What is there
    /// stays as it is; what the new memory holds is not said.
    ///
    /// # Errors
    /// If there is not so much left; what there was stays.
    fn back(&self, address: Address, bytes: usize, what: &str) -> Result<(), DeviceError>;

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

/// Addresses on a device that get their memory as it is needed, without moving. Given back when dropped.
#[derive(Debug)]
pub struct Growing {
    device: Arc<dyn Device>,
    what: &'static str,
    address: Address,
    /// Bytes of addresses.
    reserved: usize,
    /// Of these, with memory behind them.
    backed: usize,
}

impl Growing {
    /// Addresses for at most so many bytes.
    ///
    /// # Errors
    /// If there are not so many.
    pub fn new(device: &Arc<dyn Device>, most: usize, what: &'static str) -> Result<Self, DeviceError> {
        let address = device.reserve(most.max(1), what)?;
        Ok(Growing { device: Arc::clone(device), what, address, reserved: most, backed: 0 })
    }

    /// Sees to it that there is memory behind the first `bytes` bytes.
    ///
    /// # Errors
    /// If there is not so much left, or it is more than there are addresses for.
    pub fn grow(&mut self, bytes: usize) -> Result<(), DeviceError> {
        if bytes <= self.backed {
            return Ok(());
        }
        if bytes > self.reserved {
            return Err(DeviceError::Memory { bytes, what: self.what.into() });
        }
        self.device.back(self.address, bytes, self.what)?;
        self.backed = bytes;
        Ok(())
    }

    /// Where it lies.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Bytes that there is memory for.
    pub fn backed(&self) -> usize {
        self.backed
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        self.device.free(self.address);
    }
}
