//! Matrix products on the device, for every weight format.
//!
//! A [`Matrix`] holds weights as small as in the file, interleaved for coalesced reading. Quantized ones meet activations that
//! were rounded to 8 bits ([`Linear::quantize`]), in exact integer dot products; what `cu/linear.cuh` says about the order of
//! sums holds for every kernel, so that a row's bits depend on its weights and its activations alone: not on how many rows are
//! multiplied at once, nor on how experts were grouped.

mod activations;
mod assignment;
mod kernels;
mod layout;
mod matrix;
mod product;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bantam_gguf::{GgmlType, code_book};

use crate::device::{Buffer, Device, DeviceError};

pub use activations::Activations;
pub use assignment::Assignment;
pub use layout::{STRIP, SUPERBLOCK, superblock_bytes};
pub use matrix::{Matrix, MatrixError};
pub use product::{ExpertProduct, Input, Product};

pub(crate) use kernels::units;
use kernels::{Kernels, SPLITTING_ARCH, Shared};

/// Multiplies matrices on one device: what matrices of the same format share.
#[derive(Debug)]
pub struct Linear {
    device: Arc<dyn Device>,
    /// The card's compute capability, times ten.
    arch: u32,
    /// Whether many rows meet matrices of floats by the tensor cores.
    splits_floats: bool,
    shared: Shared,
    formats: Mutex<HashMap<GgmlType, Format>>,
}

/// What the matrices of a format share.
#[derive(Clone, Debug)]
struct Format {
    kernels: Arc<Kernels>,
    book: Option<Arc<Buffer>>,
}

impl Linear {
    /// For a card of this compute capability, times ten: 61, 75, 80, 90.
    pub fn new(device: &Arc<dyn Device>, arch: u32) -> Self {
        let device = Arc::clone(device);
        Linear { device, arch, splits_floats: false, shared: Shared::default(), formats: Mutex::default() }
    }

    /// Has the tensor cores multiply many rows of floats with matrices of floats, split into terms of 16 bits (`cu/float_tensor.cu`):
    /// as near to the exact products as sums in f32 are, but not the bits that few rows get. Needs compute capability 8.0; below
    /// that nothing changes. Without it, all products of floats are computed in f32, and have the same bits for any number of rows.
    pub fn splitting_floats(self) -> Self {
        Linear { splits_floats: self.arch >= SPLITTING_ARCH, ..self }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn format(&self, ty: GgmlType) -> Result<Format, DeviceError> {
        let mut formats = self.formats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(format) = formats.get(&ty) {
            return Ok(format.clone());
        }
        let book = match code_book(ty) {
            Some(book) => Some(Arc::new(Buffer::of(&self.device, book, &format!("the code book of {ty}"))?)),
            None => None,
        };
        let format = Format { kernels: Arc::new(Kernels::new(ty, self.arch, self.splits_floats)), book };
        formats.insert(ty, format.clone());
        Ok(format)
    }
}
