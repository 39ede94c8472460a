//! The CUDA backend: compiles graphs into programs of kernel launches on one NVIDIA card.
//!
//! Kernels are CUDA files in `cu`, compiled for the card at hand when they are needed. Everything that runs them sees a
//! [`Device`]: a card, or in tests the host, which runs the same files thread by thread.

pub mod device;
pub mod linear;
pub mod source;

pub use device::{Buffer, Device, DeviceError, Kernel, Launch};
