//! What computes a model's steps.

use std::{fmt, sync::Arc};

use bantam_backend::Backend;
use bantam_cpu::CpuBackend;

use crate::placement::Device;

/// The devices of a machine, and what opens them. Opened anew when a model is loaded again, so one that was lost can be had back.
pub trait Devices: Send + Sync {
    /// The devices, with what is free of their memory now, numbered as they stand.
    ///
    /// # Errors
    /// If there is none, or something is missing that they need: what, and what to do.
    fn list(&self) -> Result<Vec<Device>, String>;

    /// A backend that computes on a device.
    ///
    /// # Errors
    /// If it cannot be opened: why, and what to do.
    fn open(&self, index: usize) -> Result<Arc<dyn Backend>, String>;
}

/// What computes.
#[derive(Clone, Default)]
pub enum Hardware {
    /// The CPU.
    #[default]
    Cpu,
    /// One of these devices, or the CPU, as a plan says.
    Devices(Arc<dyn Devices>),
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hardware::Cpu => "Cpu",
            Hardware::Devices(_) => "Devices",
        })
    }
}

impl Hardware {
    /// The devices that there are.
    ///
    /// # Errors
    /// As [`Devices::list`].
    pub fn devices(&self) -> Result<Vec<Device>, String> {
        match self {
            Hardware::Cpu => Ok(Vec::new()),
            Hardware::Devices(devices) => devices.list(),
        }
    }

    /// The backend of the device of this number, or of the CPU, and the threads that it computes with: on the CPU as many as
    /// asked for, 0 for its own choice; none of the host's otherwise.
    ///
    /// # Errors
    /// If the system gives no threads, or the device cannot be opened.
    pub(crate) fn backend(&self, device: Option<usize>, threads: usize) -> Result<(Arc<dyn Backend>, usize), String> {
        match (self, device) {
            (Hardware::Devices(devices), Some(index)) => Ok((devices.open(index)?, 0)),
            (Hardware::Cpu, Some(index)) => Err(format!("device {index}: this process has opened none")),
            (_, None) => {
                let backend = CpuBackend::new(threads).map_err(|e| e.to_string())?;
                let threads = backend.threads();
                Ok((Arc::new(backend), threads))
            }
        }
    }

    /// The backend for what is computed beside a model that was placed: on the first device where there are any.
    ///
    /// # Errors
    /// As [`Hardware::backend`].
    pub fn first_backend(&self, threads: usize) -> Result<(Arc<dyn Backend>, usize), String> {
        let device = self.devices()?.iter().position(|device| device.unusable().is_none());
        self.backend(device, threads)
    }
}
