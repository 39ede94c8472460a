//! The compiled kernels, each compiled when it is first needed.

use std::sync::{Arc, OnceLock};

use bantam_gguf::GgmlType;

use super::layout::superblock_bytes;
use crate::{
    device::{Device, DeviceError, Kernel},
    source::Unit,
};

/// A kernel that is compiled when it is first asked for.
#[derive(Debug, Default)]
pub(super) struct Lazy(OnceLock<Kernel>);

impl Lazy {
    pub(super) fn get(&self, device: &Arc<dyn Device>, unit: &Unit, name: &str) -> Result<Kernel, DeviceError> {
        if let Some(kernel) = self.0.get() {
            return Ok(*kernel);
        }
        let kernel = device.kernel(unit, name)?;
        Ok(*self.0.get_or_init(|| kernel))
    }
}

/// Kernels that are the same for all formats.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) quantize: Lazy,
    pub(super) interleave: Lazy,
    pub(super) count: Lazy,
    pub(super) assign: Lazy,
}

/// Rows of the kernels for few rows.
pub(super) const FEW: [usize; 4] = [1, 2, 4, 8];
/// Rows of the tiles of the kernels for many rows.
pub(super) const MANY: [usize; 3] = [16, 32, 64];

/// The kernels of a format.
#[derive(Debug)]
pub(super) struct Kernels {
    few_unit: Unit,
    many_unit: Unit,
    embed_unit: Unit,
    few: [Lazy; FEW.len()],
    pairs: Lazy,
    many: [Lazy; MANY.len()],
    grouped: [Lazy; MANY.len()],
    embed: Lazy,
}

/// The units of a format: for few rows, for many, and to read rows back. `splits`: many rows meet floats by the tensor cores.
fn units_of(ty: GgmlType, arch: u32, splits: bool) -> [Unit; 3] {
    let files = match (ty.is_quantized(), splits) {
        (true, _) => ["linear_few.cu", "linear_many.cu", "embed.cu"],
        (false, false) => ["float_few.cu", "float_many.cu", "embed.cu"],
        (false, true) => ["float_few.cu", "float_tensor.cu", "embed.cu"],
    };
    files.map(|file| Unit {
        defines: vec![("FORMAT", ty.name().to_owned()), ("ARCH", arch.to_string())],
        ..Unit::plain(file)
    })
}

/// Everything that may be compiled of these files for cards of this compute capability, times ten.
pub(crate) fn units(arch: u32) -> Vec<Unit> {
    let formats = GgmlType::ALL.iter().copied().filter(|ty| superblock_bytes(*ty).is_some());
    let mut units: Vec<Unit> = formats.clone().flat_map(|ty| units_of(ty, arch, false)).collect();
    if arch >= SPLITTING_ARCH {
        units.extend(formats.filter(|ty| !ty.is_quantized()).map(|ty| units_of(ty, arch, true)[1].clone()));
    }
    units
}

/// The least compute capability, times ten, whose tensor cores multiply bf16.
pub(super) const SPLITTING_ARCH: u32 = 80;

impl Kernels {
    /// `splits`: many rows meet floats by the tensor cores.
    pub(super) fn new(ty: GgmlType, arch: u32, splits: bool) -> Self {
        let [few_unit, many_unit, embed_unit] = units_of(ty, arch, splits);
        Kernels {
            few_unit,
            many_unit,
            embed_unit,
            few: Default::default(),
            pairs: Lazy::default(),
            many: Default::default(),
            grouped: Default::default(),
            embed: Lazy::default(),
        }
    }

    /// The kernel for `FEW[i]` rows.
    pub(super) fn few(&self, device: &Arc<dyn Device>, i: usize) -> Result<Kernel, DeviceError> {
        self.few[i].get(device, &self.few_unit, ["few_1", "few_2", "few_4", "few_8"][i])
    }

    /// The kernel for rows that each say which matrix they meet.
    pub(super) fn pairs(&self, device: &Arc<dyn Device>) -> Result<Kernel, DeviceError> {
        self.pairs.get(device, &self.few_unit, "few_pairs")
    }

    /// The kernel for tiles of `MANY[i]` rows.
    pub(super) fn many(&self, device: &Arc<dyn Device>, i: usize) -> Result<Kernel, DeviceError> {
        self.many[i].get(device, &self.many_unit, ["many_16", "many_32", "many_64"][i])
    }

    /// The kernel for tiles of `MANY[i]` rows, grouped by matrix.
    pub(super) fn grouped(&self, device: &Arc<dyn Device>, i: usize) -> Result<Kernel, DeviceError> {
        self.grouped[i].get(device, &self.many_unit, ["grouped_16", "grouped_32", "grouped_64"][i])
    }

    /// The kernel that reads rows back.
    pub(super) fn embed(&self, device: &Arc<dyn Device>) -> Result<Kernel, DeviceError> {
        self.embed.get(device, &self.embed_unit, "embed")
    }
}
