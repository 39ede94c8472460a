//! What a plan knows of a machine.

use crate::os;

/// Compute capability below which a card is not used: 6.1.
pub const LEAST_CAPABILITY: (u32, u32) = (6, 1);

/// A machine: its devices, and the memory of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its devices, numbered as `--device` counts them.
    pub devices: Vec<Device>,
    /// Bytes of the host that can be taken; `u64::MAX` where nobody knows.
    pub host: u64,
    /// Whether a model may lie in a device and the host at once. What this version runs does not: a model is whole in one of
    /// them. Machines that are only described may.
    pub spreads: bool,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is called.
    pub name: String,
    /// Its compute capability; none where it was only described.
    pub capability: Option<(u32, u32)>,
    /// Bytes of its memory.
    pub total: u64,
    /// Bytes of it that can be taken.
    pub free: u64,
}

impl Device {
    /// A device of so much memory, all of it free.
    pub fn described(bytes: u64) -> Self {
        Device { name: "described".into(), capability: None, total: bytes, free: bytes }
    }

    /// Why it cannot be used, if it cannot.
    pub fn unusable(&self) -> Option<String> {
        let (major, minor) = self.capability.filter(|capability| *capability < LEAST_CAPABILITY)?;
        let (least, least_minor) = LEAST_CAPABILITY;
        Some(format!("{} has compute capability {major}.{minor}, expected {least}.{least_minor} or more", self.name))
    }
}

impl Machine {
    /// This machine, with these devices.
    pub fn of_this_process(devices: Vec<Device>) -> Self {
        Machine { devices, ..Machine::host_alone(os::available_memory()) }
    }

    /// A machine without devices, and so much memory that can be taken.
    pub fn host_alone(available: Option<u64>) -> Self {
        Machine { devices: Vec::new(), host: available.unwrap_or(u64::MAX), spreads: false }
    }
}
