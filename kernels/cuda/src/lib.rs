//! The CUDA backend: compiles graphs into programs of kernel launches on one NVIDIA card.
//!
//! Kernels are CUDA files in `cu`, compiled for the card at hand when they are needed. Everything that runs them sees a
//! [`Device`]: a card, or in tests the host, which runs the same files thread by thread.

pub mod attention;
mod backend;
pub mod card;
mod compile;
pub mod device;
mod exec;
pub mod linear;
mod pages;
pub mod pool;
mod program;
pub mod recurrent;
mod slots;
pub mod source;
pub mod state;

pub use backend::CudaBackend;
pub use device::{Buffer, Device, DeviceError, Growing, Kernel, Launch, Memory};
