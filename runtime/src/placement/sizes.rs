//! What a model takes, in bytes, by the parts that can lie in different places.

use bantam_backend::{KvType, RowForm, StateGroup};
use bantam_cpu::PAGE_ROWS;
use bantam_graph::StateKind;

/// A model's sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelSizes {
    /// Its architecture.
    pub architecture: String,
    /// Dense weights that belong to no layer: the output head, and norms around it.
    pub head: DenseBytes,
    /// Tables of which single rows are read, on the host: bytes in mapped files, where they stay.
    pub tables: u64,
    /// Those that had to be computed: bytes in memory.
    pub computed_tables: u64,
    /// Its layers, in the order in which rows pass them.
    pub layers: Vec<LayerSizes>,
    /// Its mixtures of experts, in the same order.
    pub mixtures: Vec<MixtureSizes>,
    /// Layers that a device's part may begin with, rising: none behind it reads state of one before it.
    pub cuts: Vec<usize>,
    /// Buffers of a step.
    pub workspace: WorkspaceSizes,
}

/// Bytes of dense weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenseBytes {
    /// On a device, in the formats of the file.
    pub device: u64,
    /// On a device, those in 16-bit floats brought to 8 bits.
    pub device_q8: u64,
    /// On the host.
    pub host: HostBytes,
}

/// Bytes of weights on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostBytes {
    /// In memory, where all are repacked.
    pub repacked: u64,
    /// In memory even so, where they are not (`--repack off`): what is computed when it is loaded.
    pub computed: u64,
    /// In the mapped files, where they are not repacked.
    pub mapped: u64,
}

/// A layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerSizes {
    /// What mixes tokens, with its norms: attention, recurrence. Nothing where the layer has no state.
    pub mixer: DenseBytes,
    /// What stands behind it: the feed-forward block, routers, shared experts.
    pub ffn: DenseBytes,
    /// Its states of rows.
    pub rows: Vec<RowForm>,
    /// Bytes of its recurrent states in a slot.
    pub slot: u64,
}

/// A mixture of routed experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MixtureSizes {
    /// Its layer.
    pub layer: usize,
    /// Experts.
    pub experts: usize,
    /// Experts that a token goes through.
    pub used: usize,
    /// Bytes of one expert on a device.
    pub expert: u64,
    /// Bytes of all of them on the host.
    pub host: HostBytes,
}

/// What the buffers of a step take by its rows: the most of these points, each bytes of a token row and of a logit row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceSizes {
    /// Bytes that are live at once: `(per token row, per logit row)`.
    pub points: Vec<(u64, u64)>,
}

impl WorkspaceSizes {
    /// Bytes for steps of so many rows; saturates.
    pub fn bytes(&self, rows: usize, logit_rows: usize) -> u64 {
        let of = |(token, logit): &(u64, u64)| {
            token.saturating_mul(rows as u64).saturating_add(logit.saturating_mul(logit_rows as u64))
        };
        self.points.iter().map(of).max().unwrap_or(0)
    }
}

impl std::ops::Add for HostBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        HostBytes {
            repacked: self.repacked.saturating_add(other.repacked),
            computed: self.computed.saturating_add(other.computed),
            mapped: self.mapped.saturating_add(other.mapped),
        }
    }
}

impl std::iter::Sum for HostBytes {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(HostBytes::default(), |sum, part| sum + part)
    }
}

impl HostBytes {
    /// Bytes in memory, and bytes in mapped files.
    pub fn held(self, repack: bool) -> (u64, u64) {
        if repack { (self.repacked, 0) } else { (self.computed, self.mapped) }
    }
}

impl DenseBytes {
    /// Bytes on a device.
    pub fn on_device(self, requantized: bool) -> u64 {
        if requantized { self.device_q8 } else { self.device }
    }
}

impl MixtureSizes {
    /// Bytes of all its experts on a device; saturates.
    pub fn on_device(&self) -> u64 {
        self.expert.saturating_mul(self.experts as u64)
    }
}

impl ModelSizes {
    /// The state groups of some of its layers, as a program of these layers would have them.
    pub fn groups(&self, layers: std::ops::Range<usize>, k_type: KvType, v_type: KvType) -> Vec<StateGroup> {
        let mut rows: Vec<(StateKind, usize)> = Vec::new();
        for form in self.layers.get(layers).unwrap_or_default().iter().flat_map(|layer| &layer.rows) {
            let bytes = form.row_bytes(k_type, v_type);
            match rows.iter_mut().find(|(kind, _)| *kind == form.kind) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => rows.push((form.kind, bytes)),
            }
        }
        rows.into_iter().map(|(kind, bytes)| StateGroup::new(kind, PAGE_ROWS, bytes)).collect()
    }

    /// Bytes of a slot for the recurrent states of some of its layers; none where they have none.
    pub fn slot(&self, layers: std::ops::Range<usize>) -> Option<u64> {
        let slots = self.layers.get(layers).unwrap_or_default().iter().map(|layer| layer.slot);
        Some(slots.fold(0, u64::saturating_add)).filter(|bytes| *bytes > 0)
    }

    /// Bytes of its dense weights on the host, all of them.
    pub fn dense_on_host(&self) -> HostBytes {
        self.layers.iter().map(|layer| layer.mixer.host + layer.ffn.host).chain([self.head.host]).sum()
    }

    /// Bytes of its experts on the host, all of them.
    pub fn experts_on_host(&self) -> HostBytes {
        self.mixtures.iter().map(|mixture| mixture.host).sum()
    }

    /// Experts of all mixtures together.
    pub fn experts(&self) -> usize {
        self.mixtures.iter().fold(0, |sum, mixture| sum.saturating_add(mixture.experts))
    }

    /// Whether its dense weights take less where 16-bit floats become 8 bits.
    pub(super) fn shrinks_by_requantizing(&self) -> bool {
        let parts = self.layers.iter().flat_map(|layer| [layer.mixer, layer.ffn]).chain([self.head]);
        parts.into_iter().any(|part| part.device_q8 < part.device)
    }
}
