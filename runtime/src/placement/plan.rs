//! What a plan says.

use bantam_backend::KvType;

use super::{ExpertMode, Setting, StateFlags};

/// Where a model goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its architecture.
    pub architecture: String,
    /// Format of cached keys.
    pub k_type: KvType,
    /// Format of cached values.
    pub v_type: KvType,
    /// Whether dense weights in 16-bit floats are brought to the device in 8 bits.
    pub requantized: bool,
    /// How much state it is for.
    pub state: StateFlags,
    /// The device that computes; none: all is done by the CPU.
    pub device: Option<DevicePlan>,
    /// The host.
    pub host: HostPlan,
    /// Its layers.
    pub layers: Vec<LayerPlan>,
    /// Its routed experts, if it has any.
    pub experts: Option<ExpertPlan>,
    /// Whether there is a device, and the CPU computes what did not fit there.
    pub spilled: bool,
    /// Settings of which each brings all of what spilled back to the device.
    pub advice: Vec<Setting>,
}

/// What lies on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePlan {
    /// Its number.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub total: u64,
    /// Bytes that could be taken.
    pub free: u64,
    /// What takes them, in the order in which they are given out.
    pub uses: Vec<Use>,
}

/// What lies on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// Bytes that could be taken; `u64::MAX` where nobody knows.
    pub available: u64,
    /// What takes them, in the order in which they are given out.
    pub uses: Vec<Use>,
}

/// A use of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// What it is for.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
}

/// Where a layer is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerPlan {
    /// Whether its mixer is, with its state, on the device.
    pub mixer_on_device: bool,
    /// Whether its feed-forward block is.
    pub ffn_on_device: bool,
}

/// Where routed experts are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertPlan {
    /// On the CPU alone, on the device alone, or (auto) on both.
    pub mode: ExpertMode,
    /// Experts of all mixtures.
    pub experts: usize,
    /// Bytes that all of them take on a device.
    pub bytes: u64,
    /// By mixture, how many are on the device at a time.
    pub hot: Vec<usize>,
    /// Bytes of these.
    pub hot_bytes: u64,
}

fn sum(uses: &[Use]) -> u64 {
    uses.iter().fold(0, |sum, used| sum.saturating_add(used.bytes))
}

impl DevicePlan {
    /// Bytes taken.
    pub fn used(&self) -> u64 {
        sum(&self.uses)
    }
}

impl HostPlan {
    /// Bytes taken.
    pub fn used(&self) -> u64 {
        sum(&self.uses)
    }
}

impl ExpertPlan {
    /// Experts on the device at a time, of all mixtures.
    pub fn on_device(&self) -> usize {
        self.hot.iter().sum()
    }
}

impl Plan {
    /// Layers whose mixer is on the device.
    pub fn mixers_on_device(&self) -> usize {
        self.layers.iter().filter(|layer| layer.mixer_on_device).count()
    }

    /// Layers whose feed-forward block is on the device.
    pub fn ffns_on_device(&self) -> usize {
        self.layers.iter().filter(|layer| layer.ffn_on_device).count()
    }
}
