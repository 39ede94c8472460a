//! Activations rounded to 8 bits, on the device.

use super::{Linear, layout::SUPERBLOCK};
use crate::{
    device::{Address, Argument, Buffer, Device, DeviceError, Launch},
    source::Unit,
};
use std::sync::Arc;

/// Columns that are rounded together.
const GROUP: usize = 32;

/// Threads of a block that rounds, each of which has four columns.
const THREADS: usize = 256;

/// Room for rows rounded to 8 bits: integers, a scale for each group of 32 columns, and the sums of the integers of a group's
/// halves. Rows are filled up with zeros to a whole number of superblocks.
#[derive(Debug)]
pub struct Activations {
    capacity: usize,
    cols: usize,
    twice: bool,
    pub(super) superblocks: usize,
    pub(super) codes: Buffer,
    pub(super) scales: Buffer,
    pub(super) sums: Buffer,
}

impl Activations {
    /// Room for `rows` rows of `cols` columns. With `twice` each row is rounded, and what that leaves is rounded again, which
    /// makes the rounding some two hundred times finer and products twice as much work.
    ///
    /// # Errors
    /// If the device has no room for them.
    pub fn new(device: &Arc<dyn Device>, rows: usize, cols: usize, twice: bool) -> Result<Self, DeviceError> {
        let superblocks = cols.div_ceil(SUPERBLOCK);
        let groups = (rows << usize::from(twice)) * superblocks * (SUPERBLOCK / GROUP);
        let buffer = |bytes| Buffer::new(device, bytes, "rounded activations");
        Ok(Activations {
            capacity: rows,
            cols,
            twice,
            superblocks,
            codes: buffer(groups * GROUP)?,
            scales: buffer(groups * 4)?,
            sums: buffer(groups * 8)?,
        })
    }

    /// Rows that there is room for.
    pub fn rows(&self) -> usize {
        self.capacity
    }

    /// Columns of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Whether rows are rounded twice.
    pub fn is_twice(&self) -> bool {
        self.twice
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.codes.bytes() + self.scales.bytes() + self.sums.bytes()
    }
}

impl Argument for Activations {
    /// The struct `Rounded` of the kernel.
    fn write(&self, out: &mut crate::device::Writer<'_>) {
        for buffer in [&self.codes, &self.scales, &self.sums] {
            buffer.write(out);
        }
        (self.superblocks as u32).write(out);
        u32::from(self.twice).write(out);
    }
}

impl Linear {
    /// Rounds `rows` rows of floats at `x`. Where a matrix is a stack, a row of its operand is so many rows of these. More rows
    /// than there is room for are not rounded.
    ///
    /// # Errors
    /// If the device failed.
    pub fn quantize(&self, x: Address, rows: usize, to: &Activations) -> Result<(), DeviceError> {
        let rows = rows.min(to.capacity);
        let kernel = self.shared.quantize.get(&self.device, &Unit::plain("activations.cu"), "quantize")?;
        let blocks = (to.superblocks * SUPERBLOCK / 4).div_ceil(THREADS);
        let launch = Launch::new([rows as u32, blocks as u32, 1], THREADS as u32).arg(x).arg(to.cols as u32).arg(to);
        self.device.launch(kernel, &launch)
    }
}
